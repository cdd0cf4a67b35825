"""Plan the changes of an index to another state of the knowledge base. Pure functions.

The plan is the same whether the candidates are the rows of the engine's diff or all rows, as a
property test checks. Documents may have no collection, because other programs that insert rows by
SQL only know the tables of documents. A collection is assumed for these.

A row of `collections` keeps the name of the model with which it was made, in every past revision,
even after another model has replaced it under the same name. Its texts are embedded with the
successor wherever they are indexed, so an old revision needs no old version of this program.
Indexes and fingerprints name the successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from vmrag_link.embedding.base import Model
from vmrag_link.engines import logical
from vmrag_link.engines.base import RowSource
from vmrag_link.errors import MassDeletion
from vmrag_link.index.view import indexes_equally
from vmrag_link.models import TABLE_OF_KIND, At, ChangeCounts, Collection, DocumentHeader, Record

Key = tuple[str, str]

MASS_DELETION = 100


class Plan(Record, frozen=True):
    """Changes of an index, in the order in which they are applied.

    `remove` does not contain documents of dropped collections.
    """

    drop: tuple[str, ...]
    create: tuple[Collection, ...]
    redefine: tuple[Collection, ...]
    remove: tuple[Key, ...]
    add: tuple[Key, ...]
    changes: ChangeCounts

    @property
    def is_empty(self) -> bool:
        return not (self.drop or self.create or self.redefine or self.remove or self.add)


def list_rebuilt(held: Mapping[str, Collection], collections: Mapping[str, Collection]) -> set[str]:
    """Return the collections that must be indexed from scratch: new ones, and those whose model,
    distance or chunking changed.
    """
    return {name for name, new in collections.items() if name not in held or not indexes_equally(held[name], new)}


def make_plan(
    held: Mapping[str, Collection],
    collections: Mapping[str, Collection],
    present: Mapping[Key, DocumentHeader],
    target: Mapping[Key, DocumentHeader],
) -> Plan:
    """Return the plan from the index's state (`held`, `present`) to the knowledge base's
    (`collections`, `target`).

    `present` and `target` must contain every document that differs, and all documents of dropped
    and of rebuilt collections.
    """
    fresh = list_rebuilt(held, collections)
    dropped = {name for name in held if name not in collections or name in fresh}
    unequal = {key for key in present.keys() | target.keys() if present.get(key) != target.get(key)}
    return Plan(
        drop=tuple(sorted(dropped)),
        create=tuple(collections[name] for name in sorted(fresh)),
        redefine=tuple(
            collections[name] for name in sorted(collections.keys() - fresh) if held[name] != collections[name]
        ),
        remove=tuple(sorted(key for key in unequal if key in present and key[0] not in dropped)),
        add=tuple(sorted(key for key in target if key in unequal or key[0] in fresh)),
        changes=ChangeCounts(
            added=sum(key not in present for key in unequal),
            modified=sum(key in present and key in target for key in unequal),
            removed=sum(key not in target for key in unequal),
        ),
    )


def refuse_mass_deletion(plan: Plan, documents: int) -> None:
    """Raise `MassDeletion` if a plan removes more than half of an index's documents, and more than
    100.

    This is for plans from a comparison of all rows. A diff between two revisions explains its
    removals.
    """
    if plan.changes.removed > max(MASS_DELETION, documents // 2):
        raise MassDeletion(
            f"this would remove {plan.changes.removed} of {documents} documents from the index, "
            "and the history of the knowledge base does not explain it.",
            hint="run 'vmrag status' to see the state, or 'vmrag sync --rebuild' to build the index again",
            removed=plan.changes.removed,
            documents=documents,
        )


Models = Callable[[Collection], Model]
"""Return a collection's embedding model."""


def assume_collection(name: str, model_for: Models) -> Collection:
    """Return the collection with which documents without a collection row are indexed.

    It is the same on every machine, regardless of the settings.
    """
    table = logical.implied_table(name)
    kinds = [kind for kind, name_of_table in TABLE_OF_KIND.items() if table and name_of_table == table.name]
    bare = Collection(name, kind=kinds[0]) if kinds else Collection(name)
    model = model_for(bare)
    return msgspec.structs.replace(bare, embedding_model=model.fingerprint, embedding_dimensions=model.dimensions)


def read_rows_at(engine: RowSource, at: At) -> dict[str, Collection]:
    """Return the rows of collections at a place by name, in the form in which they are indexed."""
    return {collection.name: use_present_model(collection) for collection in engine.list_collections(at)}


def read_collections_at(engine: RowSource, at: At, held: Iterable[str], model_for: Models) -> dict[str, Collection]:
    """Return the collections at a place by name. Those that are `held` are included if they have
    documents there but no row.
    """
    collections = read_rows_at(engine, at)
    rowless = [name for name in held if name not in collections and engine.count_documents(at, collection=name)]
    return collections | {name: assume_collection(name, model_for) for name in rowless}


FORMER_DEFAULTS = frozenset({"wordllama-l2-supercat-256 64b47a2dc493cb8e 93248f2a9ec36c7b mean unit v1"})
"""Former fingerprints of `default`: the package wordllama's own file, float16."""


def use_present_model(collection: Collection) -> Collection:
    """Return the collection in the form in which it is indexed now."""
    if (collection.embedding_function, collection.embedding_model in FORMER_DEFAULTS) != ("default", True):
        return collection
    from vmrag_link.embedding.static import StaticModel  # imports cryptography, which a checkout does not need

    return msgspec.structs.replace(collection, embedding_model=StaticModel.fingerprint)

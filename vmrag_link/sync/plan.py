"""What has to change in an index so that it stands at another state of the knowledge base. Pure.

The plan comes out the same whether the candidates are the rows of the engine's diff or all rows
there are: a property test. Documents may have no collection: other programs insert rows by SQL, and
know the tables of documents only. A collection is assumed for these.

A row of `collections` goes on naming the model that it was made with, in every revision of the
past, when another model has taken its place under the same name. Its texts are embedded with the
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
    """Applied in the order of its fields.

    Documents of a dropped collection go with it and are not in `remove`.
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


def list_rebuilt(held: Mapping[str, Collection], wanted: Mapping[str, Collection]) -> set[str]:
    """Collections that have to be indexed from nothing: new ones, and those whose model, distance
    or chunking changed.
    """
    return {name for name, new in wanted.items() if name not in held or not indexes_equally(held[name], new)}


def make_plan(
    held: Mapping[str, Collection],
    wanted: Mapping[str, Collection],
    present: Mapping[Key, DocumentHeader],
    target: Mapping[Key, DocumentHeader],
) -> Plan:
    """The plan from what the index has (`held`, `present`) to what the knowledge base has
    (`wanted`, `target`).

    `present` and `target` must hold every document that differs, and all documents of dropped and
    of `rebuilt` collections.
    """
    fresh = list_rebuilt(held, wanted)
    dropped = {name for name in held if name not in wanted or name in fresh}
    unequal = {key for key in present.keys() | target.keys() if present.get(key) != target.get(key)}
    return Plan(
        drop=tuple(sorted(dropped)),
        create=tuple(wanted[name] for name in sorted(fresh)),
        redefine=tuple(wanted[name] for name in sorted(wanted.keys() - fresh) if held[name] != wanted[name]),
        remove=tuple(sorted(key for key in unequal if key in present and key[0] not in dropped)),
        add=tuple(sorted(key for key in target if key in unequal or key[0] in fresh)),
        changes=ChangeCounts(
            added=sum(key not in present for key in unequal),
            modified=sum(key in present and key in target for key in unequal),
            removed=sum(key not in target for key in unequal),
        ),
    )


def refuse_mass_deletion(plan: Plan, documents: int) -> None:
    """Raise `MassDeletion` if more than half of an index's documents, and more than 100, would go.

    For plans that come from comparing all rows. A diff between two revisions explains what it
    removes.
    """
    if plan.changes.removed > max(MASS_DELETION, documents // 2):
        raise MassDeletion(
            f"This would remove {plan.changes.removed} of {documents} documents from the index, "
            "and the history of the knowledge base does not say why.",
            hint="Look at what is there: vmrag status. To build the index from what the knowledge base holds: vmrag sync --rebuild",
            removed=plan.changes.removed,
            documents=documents,
        )


Models = Callable[[Collection], Model]
"""Gives a collection's embedding model."""


def assume_collection(name: str, model_for: Models) -> Collection:
    """The collection as its documents are indexed while it has no row.

    It is the same on every machine, whatever the settings say.
    """
    table = logical.implied_table(name)
    kinds = [kind for kind, each in TABLE_OF_KIND.items() if table and each == table.name]
    bare = Collection(name, kind=kinds[0]) if kinds else Collection(name)
    model = model_for(bare)
    return msgspec.structs.replace(bare, embedding_model=model.fingerprint, embedding_dimensions=model.dimensions)


def read_rows_at(engine: RowSource, at: At) -> dict[str, Collection]:
    """The rows of collections at a place, as they are indexed, by name."""
    return {collection.name: use_present_model(collection) for collection in engine.list_collections(at)}


def read_collections_at(engine: RowSource, at: At, held: Iterable[str], model_for: Models) -> dict[str, Collection]:
    """The collections at a place, by name; of those that are `held`, also such that have documents
    there and no row.
    """
    wanted = read_rows_at(engine, at)
    rowless = [name for name in held if name not in wanted and engine.count_documents(at, collection=name)]
    return wanted | {name: assume_collection(name, model_for) for name in rowless}


FORMER_DEFAULTS = frozenset({"wordllama-l2-supercat-256 64b47a2dc493cb8e 93248f2a9ec36c7b mean unit v1"})
"""Of `default`: the package wordllama's own file, float16."""


def use_present_model(collection: Collection) -> Collection:
    """The collection as it is indexed now."""
    if (collection.embedding_function, collection.embedding_model in FORMER_DEFAULTS) != ("default", True):
        return collection
    from vmrag_link.embedding.static import StaticModel  # cryptography, which a checkout does not load

    return msgspec.structs.replace(collection, embedding_model=StaticModel.fingerprint)

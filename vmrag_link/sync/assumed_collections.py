"""Collections of documents that have none: other programs insert rows by SQL, and know the tables
of documents only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from vmrag_link.embedding.base import Model
from vmrag_link.embedding.successors import with_present_model
from vmrag_link.engines import logical
from vmrag_link.engines.base import RowSource
from vmrag_link.models import TABLE_OF_KIND, At, Collection

Models = Callable[[Collection], Model]
"""Gives a collection's embedding model."""


def assumed(name: str, model_for: Models) -> Collection:
    """The collection as its documents are indexed while it has no row.

    It is the same on every machine, whatever the settings say.
    """
    table = logical.table_implied(name)
    kinds = [kind for kind, each in TABLE_OF_KIND.items() if table and each == table.name]
    bare = Collection(name, kind=kinds[0]) if kinds else Collection(name)
    model = model_for(bare)
    return msgspec.structs.replace(bare, embedding_model=model.fingerprint, embedding_dimensions=model.dimensions)


def rows_at(engine: RowSource, at: At) -> dict[str, Collection]:
    """The rows of collections at a place, as they are indexed, by name."""
    return {each.name: with_present_model(each) for each in engine.collections(at)}


def collections_at(engine: RowSource, at: At, held: Iterable[str], model_for: Models) -> dict[str, Collection]:
    """The collections at a place, by name; of those that are `held`, also such that have documents
    there and no row.
    """
    wanted = rows_at(engine, at)
    rowless = [name for name in held if name not in wanted and engine.count(at, collection=name)]
    return wanted | {name: assumed(name, model_for) for name in rowless}

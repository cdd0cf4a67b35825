"""Models whose place another one has taken under the same name.

A row of `collections` goes on naming the model that it was made with, in every revision of the
past. Its texts are embedded with the successor wherever they are indexed, so an old revision needs
no old version of this program. Indexes and fingerprints name the successor.
"""

from __future__ import annotations

import msgspec

from vmrag_link.models import Collection

FORMER_DEFAULTS = frozenset({"wordllama-l2-supercat-256 64b47a2dc493cb8e 93248f2a9ec36c7b mean unit v1"})
"""Of `default`: the package wordllama's own file, float16."""


def with_present_model(collection: Collection) -> Collection:
    """The collection as it is indexed now."""
    if (collection.embedding_function, collection.embedding_model in FORMER_DEFAULTS) != ("default", True):
        return collection
    from vmrag_link.embedding.static import StaticModel  # cryptography, which a checkout does not load

    return msgspec.structs.replace(collection, embedding_model=StaticModel.fingerprint)

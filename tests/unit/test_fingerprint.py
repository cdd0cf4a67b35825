"""Equal contents have equal fingerprints, and only they."""

from __future__ import annotations

import msgspec
import pytest

from vmrag_link.models import Chunking, Collection, DocumentHeader
from vmrag_link.retrieval.ranking import DEFAULT_RANKING, hash_contents

COLLECTIONS = [Collection("guide", embedding_model="m", embedding_dimensions=4), Collection("notes")]
HEADERS = [DocumentHeader("guide", "a", "A", "h1", "{}"), DocumentHeader("notes", "a", "", "h2", '{"x":1}')]
PRINT = hash_contents(DEFAULT_RANKING, COLLECTIONS, HEADERS)


def test_order_does_not_matter():
    assert hash_contents(DEFAULT_RANKING, reversed(COLLECTIONS), reversed(HEADERS)) == PRINT
    assert len(PRINT) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"content_hash": "h3"}, {"metadata": '{"x":2}'}, {"doc_id": "b"}, {"collection": "guide", "doc_id": "c"}, {"title": "T"},
    ],
    ids=str,
)  # fmt: skip
def test_every_part_of_a_document_counts(change):
    assert (
        hash_contents(DEFAULT_RANKING, COLLECTIONS, [HEADERS[0], msgspec.structs.replace(HEADERS[1], **change)])
        != PRINT
    )


@pytest.mark.parametrize(
    "change",
    [
        {"chunking": Chunking(size=100)}, {"distance": "l2"}, {"embedding_model": "other"}, {"embedding_function": "hash"},
        {"embedding_dimensions": 8}, {"name": "manual"},
    ],
    ids=str,
)  # fmt: skip
def test_fingerprint_depends_on_index_settings_of_a_collection(change):
    assert (
        hash_contents(DEFAULT_RANKING, [msgspec.structs.replace(COLLECTIONS[0], **change), COLLECTIONS[1]], HEADERS)
        != PRINT
    )


def test_fingerprint_ignores_metadata_of_a_collection():
    renamed = [
        msgspec.structs.replace(collection, metadata='{"about":"x"}', created_at="now") for collection in COLLECTIONS
    ]
    assert hash_contents(DEFAULT_RANKING, renamed, HEADERS) == PRINT


@pytest.mark.parametrize(
    "change",
    [{"version": DEFAULT_RANKING.version + 1}, {"vector_weight": 0.401}, {"document_weight": 0.0}, {"per_document": 1}],
    ids=str,
)
def test_version_and_the_settings_of_the_ranking_count(change):
    assert hash_contents(msgspec.structs.replace(DEFAULT_RANKING, **change), COLLECTIONS, HEADERS) != PRINT


def test_documents_and_collections_count():
    assert hash_contents(DEFAULT_RANKING, COLLECTIONS, HEADERS[:1]) != PRINT
    assert hash_contents(DEFAULT_RANKING, COLLECTIONS[:1], HEADERS) != PRINT


def test_fingerprint_of_sample_is_constant_while_ranking_is_unchanged():
    """Change it only together with `ranking.VERSION`, or with the description of a collection."""
    assert PRINT == "7b5d6f8e86127a30804abd58704e40ebb17da951e784e92792cfdb9d2fe4df76"

"""Equal contents have equal fingerprints, and only they."""

from __future__ import annotations

import msgspec
import pytest

from vmrag_link.models import Chunking, Collection, DocumentHeader
from vmrag_link.retrieval.fingerprint import fingerprint

COLLECTIONS = [Collection("guide", embedding_model="m", embedding_dimensions=4), Collection("notes")]
HEADERS = [DocumentHeader("guide", "a", "A", "h1", "{}"), DocumentHeader("notes", "a", "", "h2", '{"x":1}')]
PRINT = fingerprint("settings", COLLECTIONS, HEADERS)


def test_the_order_does_not_matter():
    assert fingerprint("settings", reversed(COLLECTIONS), reversed(HEADERS)) == PRINT
    assert len(PRINT) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"content_hash": "h3"}, {"metadata": '{"x":2}'}, {"doc_id": "b"}, {"collection": "guide", "doc_id": "c"}, {"title": "T"},
    ],
    ids=str,
)  # fmt: skip
def test_every_part_of_a_document_counts(change):
    assert fingerprint("settings", COLLECTIONS, [HEADERS[0], msgspec.structs.replace(HEADERS[1], **change)]) != PRINT


@pytest.mark.parametrize(
    "change",
    [
        {"chunking": Chunking(size=100)}, {"distance": "l2"}, {"embedding_model": "other"}, {"embedding_function": "hash"},
        {"embedding_dimensions": 8}, {"name": "manual"},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_collection_says_about_indexing_counts(change):
    assert (
        fingerprint("settings", [msgspec.structs.replace(COLLECTIONS[0], **change), COLLECTIONS[1]], HEADERS) != PRINT
    )


def test_what_a_collection_says_about_itself_does_not_count():
    renamed = [msgspec.structs.replace(each, metadata='{"about":"x"}', created_at="now") for each in COLLECTIONS]
    assert fingerprint("settings", renamed, HEADERS) == PRINT


def test_settings_and_documents_count():
    assert fingerprint("other", COLLECTIONS, HEADERS) != PRINT
    assert fingerprint("settings", COLLECTIONS, HEADERS[:1]) != PRINT
    assert fingerprint("settings", COLLECTIONS[:1], HEADERS) != PRINT

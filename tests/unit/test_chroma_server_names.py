"""Names of collections and records on a Chroma server, and their seals."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.chroma_server import contents
from vmrag_link.chroma_server.contents import CollectionSeal, fingerprint_contents, parse_seal
from vmrag_link.models import Chunking, Collection, DocumentHeader, content_hash

COLLECTION = Collection(
    "api", embedding_function="openai", embedding_model="openai m 3 unit v1", embedding_dimensions=3
)
HEADERS = [DocumentHeader("api", name, name.title(), content_hash(name), "{}") for name in ("one", "two")]


def test_fingerprint_depends_neither_on_order_nor_on_metadata():
    assert fingerprint_contents(COLLECTION, HEADERS) == fingerprint_contents(COLLECTION, reversed(HEADERS))
    other = msgspec.structs.replace(COLLECTION, metadata='{"a":1}', created_at="2026", distance="l2")
    assert fingerprint_contents(other, HEADERS) == fingerprint_contents(COLLECTION, HEADERS)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "apj"},
        {"embedding_model": "openai m 3 unit v2"},
        {"embedding_dimensions": 4},
        {"chunking": Chunking("characters", 10, 1)},
    ],
)
def test_fingerprint_depends_on_embedding_settings(change):
    assert fingerprint_contents(msgspec.structs.replace(COLLECTION, **change), HEADERS) != fingerprint_contents(
        COLLECTION, HEADERS
    )


@pytest.mark.parametrize("change", [{"doc_id": "x"}, {"title": "x"}, {"content_hash": "x"}, {"metadata": '{"a":1}'}])
def test_every_document_counts(change):
    changed = [HEADERS[0], msgspec.structs.replace(HEADERS[1], **change)]
    assert fingerprint_contents(COLLECTION, changed) != fingerprint_contents(COLLECTION, HEADERS)


@given(st.text(max_size=300), st.integers(0, 10**9), st.text(max_size=300))
def test_names_and_ids_are_short_and_plain_for_any_document(doc_id, number, root):
    doc_id = doc_id.encode("utf-8", "replace").decode()
    root = root.encode("utf-8", "replace").decode()
    one = contents.record_id(doc_id, number, content_hash("x"))
    name = contents.collection_name(contents.make_owner_mark(root), fingerprint_contents(COLLECTION, HEADERS))
    given_up = contents.make_abandoned_name(name + contents.BUILDING)
    assert len(one) == 32
    assert len(given_up) <= 63
    assert contents.is_sealed_name(name)
    assert not contents.is_sealed_name(given_up)
    for collection_name in (name, name + contents.BUILDING, given_up):
        assert contents.belongs_to(collection_name, contents.make_owner_mark(root))
        assert not contents.belongs_to(collection_name, contents.make_owner_mark(root + "x"))


@pytest.mark.parametrize(
    "name", ["vmrag-x", "vmrag-" + "0" * 12 + "-../../x", "vmrag-" + "0" * 12 + "-" + "1" * 32 + "-b/x", ""]
)
def test_other_name_is_not_recognized(name):
    assert not contents.belongs_to(name, "0" * 12)


def test_seal_round_trips_and_other_metadata_is_not_a_seal():
    seal = CollectionSeal(3, "abc", 17)
    assert parse_seal(seal.to_metadata("api")) == seal
    assert seal.to_metadata("api")["collection"] == "api"
    for strange in (None, {}, {"vmrag_count": "3"}, seal.to_metadata("x") | {"vmrag_format": 2}, {"vmrag_count": True}):
        assert parse_seal(strange) is None


def test_digest_of_vectors_depends_on_their_texts():
    one, other = {"a": b"1", "b": b"2"}, {"a": b"2", "b": b"1"}
    assert contents.digest_vectors(one.items()) != contents.digest_vectors(other.items())
    assert contents.digest_vectors(one.items()) == contents.digest_vectors(reversed(one.items()))

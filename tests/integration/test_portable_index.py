"""Vectors from a store with untrusted writers make the same index as no vectors, or are discarded:
never another answer.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.support import people, poison
from tests.support.people import User, World
from vmrag_link.ops.portable_index import VECTORS, ProvidedIndex, pack_vectors, provide_index
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

shared, world = people.shared, people.world


@pytest.fixture
def folder(world: World, tmp_path: Path) -> Path:
    """Return the folder that Ada's machine has written."""
    packed(world.ada, tmp_path / "store")
    return tmp_path / "store"


def packed(user: User, folder: Path) -> None:
    ws = Workspace.open(user.top, QUIET)
    try:
        assert pack_vectors(ws, folder) == sum(path.stat().st_size for path in folder.iterdir())
    finally:
        ws.close()


def brought(user: User, folder: Path) -> ProvidedIndex:
    ws = Workspace.open(user.top, QUIET)
    try:
        return provide_index(ws, folder)
    finally:
        ws.close()


def test_restored_vectors_avoid_embedding(world, folder):
    bob = world.join("bob")
    provided = brought(bob, folder)
    assert (provided.reused, provided.rejected, provided.sync.chunks.embedded) == (True, (), 0)
    assert provided.vectors >= provided.sync.chunks.cached == provided.verified.chunks
    assert provided.verified.fingerprint == world.ada.fingerprint()
    assert provided.verified.recomputed == provided.verified.vectors == provided.verified.chunks > 0
    assert bob.answers() == world.ada.answers()


def test_restored_vectors_of_another_revision_are_reused(world, folder):
    world.ada.write_document("new.md", "Words that nobody had written before.")
    world.ada.git("push", "-q")
    provided = brought(world.join("bob"), folder)
    assert not provided.reused
    assert provided.sync.chunks.embedded == 1
    assert provided.sync.chunks.added == provided.sync.chunks.cached + 1 == provided.verified.chunks > 1


def test_index_without_a_store_is_built(world, tmp_path):
    provided = brought(world.join("bob"), tmp_path / "nowhere")
    assert (provided.vectors, provided.reused, provided.rejected) == (0, False, ())
    assert provided.sync.chunks.embedded == provided.verified.chunks


@pytest.mark.parametrize("spoil", poison.FORGED, ids=lambda function: function.__name__)
def test_forged_vectors_are_rejected_and_the_index_is_rebuilt(world, folder, tmp_path, spoil):
    spoil(folder)
    bob = world.join("bob")
    provided = brought(bob, folder)
    assert not provided.reused
    assert len(provided.rejected) == 1
    assert provided.sync.chunks.embedded == provided.verified.chunks > 0
    assert provided.verified.fingerprint == world.ada.fingerprint()
    assert bob.answers() == world.ada.answers()  # `build` has verified what it built
    packed(bob, tmp_path / "next")  # nothing of them is left
    assert brought(world.join("carol"), tmp_path / "next").reused


@pytest.mark.parametrize("spoil", poison.LEFT_OUT, ids=lambda function: function.__name__)
@pytest.mark.sample(2)
def test_unusable_portable_vectors_are_ignored(world, folder, spoil):
    spoil(folder)
    bob = world.join("bob")
    provided = brought(bob, folder)
    assert (provided.reused, provided.rejected) == (False, ())
    assert provided.sync.chunks.embedded == provided.verified.vectors == provided.verified.chunks > 0
    assert provided.verified.fingerprint == world.ada.fingerprint()
    assert bob.answers() == world.ada.answers()


def test_portable_vectors_contain_no_paths_of_the_machine(world, folder):
    held = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert str(world.top).encode() not in held
    assert {path.name for path in folder.iterdir()} == {VECTORS}


def test_damaged_vector_that_was_packed_is_made_again(world, tmp_path):
    with contextlib.closing(sqlite3.connect(world.ada.shared / VECTORS)) as cache, cache:
        [expected] = cache.execute("SELECT count(*) FROM vectors").fetchone()
        cache.execute("UPDATE vectors SET vector = zeroblob(length(vector)) WHERE rowid = 1")
    packed(world.ada, tmp_path / "store")
    bob = world.join("bob")
    provided = brought(bob, tmp_path / "store")
    assert (provided.vectors, provided.reused, provided.rejected) == (expected - 1, False, ())
    assert provided.sync.chunks.embedded == 1
    assert bob.answers() == world.ada.answers()


def test_damaged_existing_index_is_rebuilt(world, folder):
    bob = world.join("bob")
    brought(bob, folder)
    [path] = bob.shared.glob("segments/*/manifest.sqlite")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    provided = brought(bob, folder)
    assert (provided.reused, provided.rejected, provided.verified.problems) == (True, (), ())
    assert provided.sync.chunks.added == provided.verified.chunks > 0
    assert bob.answers() == world.ada.answers()

"""An index that comes back from a store that anybody may have written to is used as it is, or built
again: never another answer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import people, poison
from tests.support.people import User, World
from vmrag_link.errors import IndexFailed
from vmrag_link.ops.index.portable import VECTORS, Provided, pack, provide
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

shared, world = people.shared, people.world


@pytest.fixture
def folder(world: World, tmp_path: Path) -> Path:
    """What Ada's machine has written."""
    ws = Workspace.open(world.ada.top, QUIET)
    pack(ws, tmp_path / "store")
    ws.close()
    return tmp_path / "store"


def brought(user: User, folder: Path) -> Provided:
    ws = Workspace.open(user.top, QUIET)
    try:
        return provide(ws, folder)
    finally:
        ws.close()


def test_nothing_is_built_where_the_index_came_back(world, folder):
    bob = world.join("bob")
    provided = brought(bob, folder)
    assert (provided.reused, provided.rejected, provided.sync.chunks.embedded) == (True, (), 0)
    assert provided.verified.fingerprint == world.ada.fingerprint()
    assert provided.verified.recomputed == provided.verified.vectors == provided.verified.chunks > 0
    assert bob.answers() == world.ada.answers()


def test_no_vector_is_computed_again_where_another_revision_came_back(world, folder):
    world.ada.write_document("new.md", "Words that nobody had written before.")
    world.ada.git("push", "-q")
    provided = brought(world.join("bob"), folder)
    assert not provided.reused
    assert provided.sync.chunks.embedded == provided.sync.chunks.added == 1


def test_without_a_store_it_is_built(world, tmp_path):
    provided = brought(world.join("bob"), tmp_path / "nowhere")
    assert (provided.reused, provided.rejected) == (False, ())
    assert provided.sync.chunks.embedded == provided.verified.chunks


@pytest.mark.parametrize("spoil", poison.POISONS, ids=lambda each: each.__name__)
@pytest.mark.sample(5)
def test_a_spoilt_index_is_found_and_built_again(world, folder, spoil):
    spoil(folder)
    bob = world.join("bob")
    provided = brought(bob, folder)
    assert not provided.reused
    assert len(provided.rejected) == 1
    assert bob.answers() == world.ada.answers()  # `provide` has verified what it built


def test_vectors_that_are_no_database_are_left_out(world, folder):
    poison.no_database(folder)
    provided = brought(world.join("bob"), folder)
    assert provided.reused
    assert provided.verified.vectors == 0  # none is proven by the cache
    assert provided.verified.recomputed == provided.verified.chunks


def test_what_is_packed_names_no_place_of_this_machine(world, folder):
    held = b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())
    assert str(world.top).encode() not in held
    assert {each.name for each in folder.iterdir()} == {"snapshots", VECTORS}


def test_a_damaged_index_is_not_packed(world, tmp_path):
    ws = Workspace.open(world.ada.top, QUIET)
    path = ws.snapshots.path(ws.revision()) / "manifest.sqlite"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(IndexFailed):
        pack(ws, tmp_path / "store")
    ws.close()

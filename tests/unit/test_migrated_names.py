"""Names of revisions before a migration, and the fingerprint by which both sides are recognized."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.engines.contents import RowSet, RowStep
from vmrag_link.engines.folder import DOLT_FOLDER, DOLTLITE_FILE
from vmrag_link.errors import PinMalformed
from vmrag_link.models import Collection, CollectionChange, DocumentHeader, HeaderChange, HeaderDifference, Project
from vmrag_link.pin import Pin

OLD, NEW, OTHER = "a" * 40, "v" * 32, "b" * 40


@pytest.fixture
def kb(tmp_path: Path) -> Path:
    """Create a Dolt knowledge base to which one revision was migrated."""
    (tmp_path / DOLT_FOLDER).mkdir()
    migrated.write_map(tmp_path, "dolt", OTHER, {OLD: NEW})
    return tmp_path


def test_migrated_revision_gets_its_new_name_and_others_stay(kb: Path) -> None:
    assert [migrated.translate_revision(kb, revision) for revision in (OLD, NEW, OTHER)] == [NEW, NEW, OTHER]
    assert migrated.read_map_head(kb, "dolt") == OTHER


def test_names_apply_to_the_engine_of_the_knowledge_base(kb: Path) -> None:
    (kb / DOLTLITE_FILE).touch()  # it has taken Dolt's place
    assert migrated.translate_revision(kb, OLD) == OLD
    migrated.write_map(kb, "doltlite", OTHER, {NEW: OLD})
    assert [migrated.translate_revision(kb, revision) for revision in (OLD, NEW)] == [OLD, OLD]


def test_names_are_unchanged_without_a_migration(tmp_path: Path) -> None:
    assert migrated.translate_revision(tmp_path, OLD) == OLD
    assert migrated.read_map_head(tmp_path, "dolt") == ""


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"vmrag-migrated 2 x\n" + f"{OLD} {NEW}\n".encode(), b"\0" * 99])
def test_file_of_another_form_counts_as_empty(kb: Path, content: bytes) -> None:
    migrated.map_path(kb, "dolt").write_bytes(content)
    assert (migrated.translate_revision(kb, OLD), migrated.read_map_head(kb, "dolt")) == (OLD, "")


def test_file_that_changes_is_read_again(kb: Path) -> None:
    assert migrated.translate_revision(kb, OLD) == NEW
    migrated.write_map(kb, "dolt", NEW, {OTHER: NEW})
    assert [migrated.translate_revision(kb, revision) for revision in (OLD, OTHER)] == [OLD, NEW]


def test_pin_names_the_new_revision_and_is_otherwise_as_it_was(kb: Path) -> None:
    pin = Pin("git:", "main", OLD, "2026-01-02T03:04:05Z", (("later", '{"a":1}'),))
    read = migrated.read_pin(kb, pins.format_pin(pin))
    assert (read.dolt_commit, read.dolt_branch, read.linked_at, read.extra) == (
        NEW,
        pin.dolt_branch,
        pin.linked_at,
        pin.extra,
    )
    with pytest.raises(PinMalformed, match="somewhere, line 1"):
        migrated.read_pin(kb, b"{}", source="somewhere")


# -- fingerprints


def header(name: str, text: str = "1") -> DocumentHeader:
    return DocumentHeader("guide", name, name, text * 64, "{}")


def added(*rows: DocumentHeader) -> RowStep:
    return RowStep(HeaderDifference((), tuple(HeaderChange("added", None, row) for row in rows)), (), ())


def test_way_to_some_rows_does_not_matter() -> None:
    rows = [header("a"), header("b"), header("c")]
    fingerprints = {RowSet().apply_step(added(*order)).fingerprint for order in itertools.permutations(rows)}
    one_by_one = RowSet()
    for row in rows:
        one_by_one = one_by_one.apply_step(added(row))
    assert fingerprints == {one_by_one.fingerprint}


def test_reverted_changes_leave_the_row_set_unchanged() -> None:
    start = RowSet().apply_step(added(header("a")))
    collection = Collection("guide")
    forward = HeaderDifference(
        (CollectionChange("added", None, collection),), (HeaderChange("modified", header("a"), header("a", "2")),)
    )
    back = HeaderDifference(
        (CollectionChange("removed", collection, None),), (HeaderChange("modified", header("a", "2"), header("a")),)
    )
    changed = start.apply_step(RowStep(forward, (Project("p"),), ()))
    assert changed != start
    assert changed.apply_step(RowStep(back, (), (Project("p"),))) == start


def test_rows_of_different_kinds_and_fields_differ() -> None:
    steps = [
        added(header("a")),
        added(header("b")),
        added(header("a", "2")),
        RowStep(HeaderDifference((), ()), (Project("a"),), ()),
        RowStep(HeaderDifference((CollectionChange("added", None, Collection("a")),), ()), (), ()),
    ]
    assert len({RowSet().apply_step(step).fingerprint for step in steps}) == len(steps)

"""From where the ids of imported documents count: the pure part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.documents.import_base import (
    OUTSIDE,
    ROOT,
    ImportBase,
    count_bases,
    find_base_problem,
    locate_path,
    make_base,
    restore_base,
)

TOP = Path("/work/repo")
NAMES = st.sampled_from(["docs", "guide", "a", "b.md", "é", "x y", "-n"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
FOLDERS = st.one_of(st.just(ROOT), PATHS)


@given(FOLDERS, PATHS)
def test_recorded_base_gives_the_same_ids_on_each_machine(folder: str, file: str) -> None:
    base, restored = (
        make_base(TOP / folder, TOP),
        restore_base(make_base(TOP / folder, TOP).recorded, Path("/home/ada/clone")),
    )
    assert find_base_problem(base.recorded) is None
    assert (
        base.make_doc_id(TOP / folder / file) == restored.make_doc_id(Path("/home/ada/clone") / folder / file) == file
    )
    assert base.make_source(TOP / folder / file) == restored.make_source(Path("/home/ada/clone") / folder / file)
    assert TOP / base.make_source(TOP / folder / file) == TOP / folder / file


@given(PATHS)
def test_source_outside_the_repository_counts_from_the_base(file: str) -> None:
    bases = [make_base(Path(folder), TOP) for folder in ("/home/ada/notes", "/home/bob/n")]
    assert {base.recorded for base in bases} == {OUTSIDE}
    assert {base.make_doc_id(base.folder / file) for base in bases} == {file}
    assert {base.make_source(base.folder / file) for base in bases} == {file}


def test_folder_around_the_repository_is_outside() -> None:
    base = make_base(TOP.parent, TOP)
    assert base.recorded == OUTSIDE
    assert base.make_doc_id(TOP / "docs/a.md") == base.make_source(TOP / "docs/a.md") == "repo/docs/a.md"


@given(FOLDERS, st.sets(PATHS, min_size=1))
def test_base_of_documents_is_derived_from_older_records(folder: str, files: set[str]) -> None:
    stored = [(file, make_base(TOP / folder, TOP).make_source(TOP / folder / file)) for file in files]
    assert count_bases([*stored, ("by hand", "")]) == {folder: len(files)}
    absolute = [(file, f"/home/ada/notes/{file}") for file in files]
    assert count_bases(absolute) == {"/home/ada/notes": len(files)}


@given(FOLDERS, FOLDERS, st.sets(PATHS, min_size=1))
def test_file_stays_the_same_document_under_another_base(before: str, after: str, files: set[str]) -> None:
    first, then = make_base(TOP / before, TOP), make_base(TOP / after, TOP)
    stored = [(file, first.make_source(TOP / before / file)) for file in files]
    assert then.map_ids_by_source(then.list_sources(stored)) == {source: doc_id for doc_id, source in stored}


def test_current_id_of_a_file_precedes_its_other_ids() -> None:
    stored = [("a.md", "docs/guide/a.md"), ("guide/a.md", "docs/guide/a.md"), ("docs/guide/a.md", "docs/guide/a.md")]
    for base, expected in (
        ("docs", "guide/a.md"),
        ("docs/guide", "a.md"),
        (ROOT, "docs/guide/a.md"),
        ("b", "docs/guide/a.md"),
    ):
        for rows in (stored, stored[::-1]):
            result = restore_base(base, TOP)
            assert result.map_ids_by_source(result.list_sources(rows)) == {"docs/guide/a.md": expected}


def test_absolute_source_of_before_is_the_same_file_on_another_machine() -> None:
    base = make_base(Path("/home/bob/n"), TOP)
    stored = [("sub/far.md", "/home/ada/notes/sub/far.md"), ("near.md", "/elsewhere/other.md"), ("by hand", "")]
    assert base.list_sources(stored) == [("sub/far.md", "sub/far.md"), ("near.md", "/elsewhere/other.md")]


def test_source_through_a_link_is_the_file_itself(tmp_path: Path) -> None:
    top = locate_path(tmp_path)
    (top / "docs").mkdir()
    (top / "linked").symlink_to("docs")
    (top / "out").symlink_to("/")
    base = restore_base(ROOT, top)
    for typed in ("linked/a.md", "docs/a.md", str(top / "docs/a.md")):
        assert base.list_sources([("a.md", typed)]) == [("a.md", "docs/a.md")]
    for strange in ("out/etc/passwd", "../x.md", "docs/../../x.md", "/elsewhere/a.md", "/"):
        assert base.list_sources([("a.md", strange)]) == [("a.md", strange)]


def test_file_is_located_the_same_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path(os.path.realpath(tmp_path)) / "real"
    (real / "docs").mkdir(parents=True)
    (real / "docs/a.md").touch()
    (real / "docs/alias.md").symlink_to("a.md")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "link/docs")
    for name in ("a.md", "../docs/a.md", tmp_path / "link/docs/a.md", tmp_path / "link/docs/../docs/a.md"):
        assert locate_path(Path(name)) == real / "docs/a.md"
    assert locate_path(Path()) == locate_path(tmp_path / "link/docs") == real / "docs"
    assert locate_path(Path("alias.md")) == real / "docs/alias.md", "a link to a file is a document of its own"


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        ("/etc", "is absolute"),
        ("../other", "leaves the repository"),
        ("docs/../..", "leaves the repository"),
        ("docs/", "is not a normalised path"),
        ("./docs", "is not a normalised path"),
        ("docs//a", "is not a normalised path"),
        ("", "is not a normalised path"),
        ("do\ncs", "has control characters"),
        ("do\0cs", "has control characters"),
        ("\udcff", "is not UTF-8"),
        ("d" * 256, "is longer than 255 characters"),
    ],
)
def test_recorded_base_that_no_import_writes_is_refused(recorded: str, why: str) -> None:
    assert find_base_problem(recorded) == why


@given(st.text(st.characters(codec="utf-8"), max_size=12) | st.text("./ab", max_size=8))
def test_valid_recorded_base_is_within_the_root(recorded: str) -> None:
    if find_base_problem(recorded) is None and recorded != OUTSIDE:
        base = ImportBase(recorded, TOP / recorded, TOP)
        assert Path(os.path.normpath(base.folder)).is_relative_to(TOP)
        assert make_base(base.folder, TOP).recorded == recorded

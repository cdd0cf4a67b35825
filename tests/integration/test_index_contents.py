"""Indexes whose files are of the right size and hold something else."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support import knowledge, terminal
from tests.support.bits import flip, mark_verified, simulate_reboot
from tests.support.knowledge import Knowledge, collection, doc
from tests.support.terminal import Project
from vmrag_link import file_access
from vmrag_link.embedding.base import Model
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.embedding.hash_model import HashModel
from vmrag_link.index import draft, flat_files, postings, seal, view
from vmrag_link.index.view import find_index_problem, segments_folder
from vmrag_link.sync import adding

kb = knowledge.kb

template, project = terminal.template, terminal.project


@pytest.fixture
def revision(kb: Knowledge) -> str:
    rows = [doc(f"d{n}", f"text number {n}", metadata={"even": n % 2 == 0}) for n in range(20)]
    made = kb.commit(*rows, collections=[collection()])
    kb.index(made)
    return made


def problem(kb: Knowledge, folder: Path, revision: str) -> str:
    return find_index_problem(folder, revision=revision)


def segments(folder: Path) -> list[Path]:
    """List the segments of a view, in its order."""
    return [segments_folder(folder) / part.segment for part in view.read_view(folder).parts]


def test_flipped_bit_in_any_index_file_is_found_after_reboot(kb, revision):
    folder, rng = kb.views.view_path(revision), random.Random(13)
    [segment] = segments(folder)
    files = [
        path for directory in (folder, segment) for path in sorted(directory.iterdir()) if path.name != seal.VERIFIED
    ]
    names = {
        "vectors-1.i8",
        "lengths-1.u32",
        "texts-1.utf8",
        "texts-1.u64",
        "words-1.idx",
        seal.SEAL,
        "manifest.sqlite",
    }
    assert {path.name for path in segment.iterdir()} == {*names, seal.VERIFIED}
    assert {path.name for path in folder.iterdir()} == {view.VIEW_FILE, seal.SEAL, seal.VERIFIED}
    for path in files:
        for _ in range(3):
            place = rng.randrange(path.stat().st_size), rng.randrange(8)
            flip(path, *place)
            mark_verified(path.parent)
            # An ordinary query reads nothing of the other files.
            assert problem(kb, folder, revision) == "" or path.name in (seal.SEAL, view.VIEW_FILE)
            simulate_reboot(path.parent)
            assert problem(kb, folder, revision) != "", path.name
            flip(path, *place)
            assert problem(kb, folder, revision) == ""


def test_flipped_bit_in_seal_key_hides_no_segment(kb, revision):
    folder = kb.views.view_path(revision)
    flip(folder / seal.SEAL, (folder / seal.SEAL).read_bytes().index(b'"segments"') + 3, 0)
    simulate_reboot(folder)
    assert problem(kb, folder, revision) != ""
    assert kb.views.segments.list_spare([kb.views.root]) == []


def test_copied_index_is_verified_before_use(kb, revision, tmp_path):
    copied = tmp_path / "elsewhere" / "views" / "copied"
    shutil.copytree(kb.views.view_path(revision), copied)
    [segment] = segments(kb.views.view_path(revision))
    [damaged] = segments(copied)
    shutil.copytree(segment, damaged)
    flip(damaged / flat_files.vectors_name(1), 100, 2)
    assert "vectors-1.i8 is not what was written" in problem(kb, copied, revision)
    assert problem(kb, kb.views.view_path(revision), revision) == ""


@pytest.mark.parametrize("of", ["view", "segment"])
def test_index_without_seal_is_rebuilt(kb, revision, of):
    folder = kb.views.view_path(revision)
    bare = folder if of == "view" else segments(folder)[0]
    for name in (seal.SEAL, seal.VERIFIED):
        (bare / name).unlink()
    built = kb.index(revision, base=revision)
    assert (built.how, built.changes.added) == ("fresh" if of == "view" else "delta", 20)
    assert problem(kb, folder, revision) == ""


def test_damaged_segment_is_not_reused(kb, revision):
    """It is proven when it becomes part of another one."""
    folder = kb.views.view_path(revision)
    [segment] = segments(folder)
    flip(segment / flat_files.vectors_name(1), 100, 2)
    mark_verified(segment)
    later = kb.commit(doc("new", "something new"))
    built = kb.index(later, base=revision)
    assert (built.how, built.changes.added) == ("delta", 21), "without the segment, all of it is indexed again"
    assert segment not in segments(built.path)
    assert "not what was written" in problem(kb, folder, revision)  # which is known now
    latest = kb.commit(doc("d7", "changed"))
    built = kb.index(latest, base=revision)
    assert (built.how, built.changes.added) == ("delta", 21), "without the segment, all of it is indexed again"
    assert segment not in segments(built.path)


def test_segment_with_invalid_text_is_not_reused(kb, revision):
    """Python's own module refuses it, without a code of SQLite's."""
    [segment] = segments(kb.views.view_path(revision))
    with contextlib.closing(sqlite3.connect(segment / flat_files.MANIFEST_FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE documents SET title = CAST(X'ff' AS TEXT)")
    mark_verified(segment)
    later = kb.commit(doc("d7", "changed"))
    built = kb.index(later, base=revision)
    assert (built.how, built.changes.added) == ("delta", 20)
    assert segment not in segments(built.path)


def test_segment_with_confusing_damage_is_not_reused(kb, revision):
    """Reading the data fails first, with any error."""
    folder = kb.views.view_path(revision)
    [segment] = segments(folder)
    with contextlib.closing(sqlite3.connect(segment / flat_files.MANIFEST_FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE documents SET first = 'nowhere' || first")
    mark_verified(segment)
    later = kb.commit(doc("d7", "changed"))
    built = kb.index(later, base=revision)
    assert (built.how, built.changes.added) == ("delta", 20)
    assert segment not in segments(built.path)
    assert "not what was written" in problem(kb, folder, revision)


def test_large_damaged_segment_is_found_at_the_next_start(kb, revision, monkeypatch):
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 0)
    folder = kb.views.view_path(revision)
    [segment] = segments(folder)
    flip(segment / flat_files.vectors_name(1), 100, 2)
    mark_verified(segment)
    later = kb.commit(doc("new", "something new"))
    built = kb.index(later, base=revision)
    assert segment in segments(built.path)
    simulate_reboot(segment)
    assert "not what was written" in problem(kb, built.path, later)
    assert kb.index(later, base=later).changes.added == 20
    assert problem(kb, built.path, later) == ""


def test_index_files_are_synced_before_publishing(kb, revision, monkeypatch):
    order: list[str] = []
    rename = Path.rename

    def renamed(path: Path, to: Path) -> Path:
        order.append(f"renamed {to.parent.name}")
        return rename(path, to)

    for module in (file_access, draft):
        monkeypatch.setattr(module, "sync_to_disk", lambda path: order.append(f"fsync {path.name}"))
    monkeypatch.setattr(Path, "rename", renamed)
    kb.index(kb.commit(doc("new", "something new")), base=revision)
    made, published = order.index("renamed segments"), order.index("renamed views")
    for name in (
        flat_files.vectors_name(1),
        flat_files.lengths_name(1),
        postings.file_name(1),
        flat_files.MANIFEST_FILE,
        seal.SEAL,
    ):
        assert f"fsync {name}" in order[:made]
    assert order[made - 1].startswith("fsync .building-")
    assert order[made + 1] == "fsync segments"
    assert made < published
    for name in (view.VIEW_FILE, seal.SEAL):
        assert f"fsync {name}" in order[made:published]
    assert order[published - 1].startswith("fsync .building-")
    assert order[published + 1] == "fsync views"


# -- as a person meets it


def bound(project: Project) -> Path:
    [path] = [path for path in (project.shared / "views").glob(f"{project.pinned}-*") if path.is_dir()]
    return path


def segment_of(folder: Path) -> Path:
    """The one segment of a view."""
    [segment] = segments(folder)
    return segment


def damaged(project: Project) -> None:
    segment = segment_of(bound(project))
    for byte in range(0, 200, 3):
        flip(segment / flat_files.vectors_name(1), byte, 6)
    mark_verified(segment)


def test_damaged_index_is_rebuilt_after_boot_with_one_warning(project):
    before = project.answers()
    damaged(project)
    assert project.answers() != before
    simulate_reboot(segment_of(bound(project)))
    said = project.vmrag("query", "rest").err
    assert said.count("rebuilding the damaged index of ") == 1
    assert len(said.splitlines()) == 1
    assert project.answers() == before
    assert project.vmrag("query", "rest").err == ""


def test_doctor_finds_and_repairs_data_lost_by_the_disk(project):
    before = project.answers()
    damaged(project)
    [finding] = [
        finding
        for topic in project.ask("doctor", code=1)["topics"]
        for finding in topic["findings"]
        if finding["level"] == "error"
    ]
    assert (finding["code"], finding["fix"]) == ("INDEX_DAMAGED", "run 'vmrag sync --rebuild' to build the index again")
    assert project.answers() == before  # data known as damaged are no longer served
    damaged(project)
    project.vmrag("doctor", "--fix")
    assert project.answers() == before


def test_fingerprint_is_equal_and_verify_finds_the_damage(project):
    said = project.vmrag("fingerprint").out
    assert project.vmrag("fingerprint", "--verify").out.startswith(said)
    damaged(project)
    assert project.vmrag("fingerprint").out == said
    result = project.vmrag("fingerprint", "--verify", code=1)
    assert "vectors-1.i8 is not what was written." in result.out
    assert "vmrag sync --rebuild" in result.out
    project.vmrag("sync", "--rebuild")
    report = project.ask("fingerprint", "--verify")
    assert (report["problems"], report["chunks"] > 0, report["vectors"]) == ([], True, report["chunks"])


@pytest.mark.parametrize("word", ["texts", "vectors"])
def test_verify_finds_data_written_by_a_bug(project, monkeypatch, word):
    """Every byte is what was written, and it is not what the documents make."""
    cut, embedded = adding.split_document, adding.embed_texts
    with monkeypatch.context() as patch:
        if word == "texts":
            patch.setattr(
                adding,
                "split_document",
                lambda document, chunking: cut(replace(document, content=document.content.upper()), chunking),
            )
        else:
            patch.setattr(
                adding,
                "embed_texts",
                lambda cache, model, *rest, **more: embedded(
                    EmbeddingCache(project.top / "x"), Swapped(model), *rest, **more
                ),
            )
        project.vmrag("sync", "--rebuild")
    assert project.vmrag("doctor").code == 0
    assert f"The {word} of handbook/" in project.vmrag("fingerprint", "--verify", code=1).out


class Swapped(HashModel):
    """Embeds other texts than it is given."""

    def __init__(self, _: Model) -> None:
        super().__init__()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        return super().embed([text[::-1] for text in texts])


def test_uncommitted_documents_are_not_indexed_into_a_damaged_working_copy(project):
    project.put("draft.md", "A draft about rest.")
    before = project.answers()
    [copy] = [path for path in (project.shared / "uncommitted").iterdir() if path.is_dir()]
    segment = segment_of(copy)
    for byte in range(0, 200, 3):
        flip(segment / flat_files.vectors_name(1), byte, 6)
    mark_verified(segment)
    assert project.answers() != before
    project.put("other.md", "Another draft.")
    project.drop("other.md")
    assert project.answers() == before


def test_query_rebuilds_index_with_malformed_word_postings(project):
    before = project.answers()
    segment = segment_of(bound(project))
    path = segment / postings.file_name(1)
    path.write_bytes(path.read_bytes()[:-20])
    mark_verified(segment)
    result = project.vmrag("query", "rest")
    assert "rebuilding the damaged index" in result.err
    assert project.answers() == before


@pytest.mark.parametrize("name", ["workspace.json", "views/{bound}/proven.json", "segments/{segment}/proven.json"])
def test_derived_file_with_invalid_text_is_ignored(project, name):
    before = project.answers()
    path = project.shared / name.format(bound=bound(project).name, segment=segment_of(bound(project)).name)
    flip(path, path.read_bytes().index(b":") + 3, 7)
    assert project.answers() == before
    assert project.vmrag("doctor").code == 0

"""Indexes whose files are of the right size and hold something else."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import knowledge, terminal
from tests.support.bits import flip, restarted, unnoticed
from tests.support.knowledge import Knowledge, collection, doc
from tests.support.terminal import Project
from vmrag_link import paths
from vmrag_link.embedding.base import Model
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.embedding.hashing import HashModel
from vmrag_link.index import keywords, manifest, seal, vectors
from vmrag_link.index.verify import problem_of
from vmrag_link.sync import indexer

kb = knowledge.kb

template, project = terminal.template, terminal.project


@pytest.fixture
def revision(kb: Knowledge) -> str:
    rows = [doc(f"d{n}", f"text number {n}", metadata={"even": n % 2 == 0}) for n in range(20)]
    made = kb.commit(*rows, collections=[collection()])
    kb.index(made)
    return made


def problem(kb: Knowledge, folder: Path, revision: str) -> str:
    return problem_of(folder, revision=revision)


def test_a_flipped_bit_in_any_file_is_found_after_the_machine_was_started_again(kb, revision):
    folder, rng = kb.snapshots.path(revision), random.Random(13)
    files = [path for path in folder.iterdir() if path.name != seal.PROVEN]
    assert {path.name for path in files} == {
        "vectors-1.i8",
        "lengths-1.u32",
        keywords.FILE,
        seal.SEAL,
        "manifest.sqlite",
    }
    for path in files:
        for _ in range(3):
            place = rng.randrange(path.stat().st_size), rng.randrange(8)
            flip(path, *place)
            unnoticed(folder)
            # An ordinary query reads nothing of the other files.
            assert problem(kb, folder, revision) == "" or path.name == seal.SEAL
            restarted(folder)
            assert problem(kb, folder, revision) != "", path.name
            flip(path, *place)
            assert problem(kb, folder, revision) == ""


def test_a_copied_index_is_looked_at_before_it_is_served(kb, revision, tmp_path):
    copied = tmp_path / "copied"
    shutil.copytree(kb.snapshots.path(revision), copied)
    flip(copied / vectors.file_name(1), 100, 2)
    assert "vectors-1.i8 is not what was written" in problem(kb, copied, revision)


def test_an_index_without_a_seal_is_built_again(kb, revision):
    folder = kb.snapshots.path(revision)
    for name in (seal.SEAL, seal.PROVEN):
        (folder / name).unlink()
    assert kb.index(revision).how == "fresh"
    assert problem(kb, folder, revision) == ""


def test_no_index_is_made_from_one_that_is_damaged(kb, revision):
    folder = kb.snapshots.path(revision)
    flip(folder / vectors.file_name(1), 100, 2)
    unnoticed(folder)
    later = kb.commit(doc("new", "something new"))
    assert kb.index(later, base=revision).how == "fresh"
    assert "not what was written" in problem(kb, folder, revision)  # which is known now


def test_an_index_whose_damage_confuses_the_next_one_is_no_base_either(kb, revision):
    """It is proven beside the change, which may fail first, with any error."""
    folder = kb.snapshots.path(revision)
    with contextlib.closing(sqlite3.connect(folder / manifest.FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE documents SET first = 'nowhere'")
    unnoticed(folder)
    later = kb.commit(doc("d7", "changed"))
    assert kb.index(later, base=revision).how == "fresh"
    assert "not what was written" in problem(kb, folder, revision)


def test_what_is_published_was_written_through(kb, revision, monkeypatch):
    order: list[str] = []
    through, rename = seal.write_through, Path.rename
    monkeypatch.setattr(seal, "write_through", lambda folder: (through(folder), order.append("written"))[0])
    monkeypatch.setattr(paths, "fsync", lambda path: order.append(f"fsync {path.name}"))
    monkeypatch.setattr(Path, "rename", lambda path, to: (order.append("renamed"), rename(path, to))[1])
    kb.index(kb.commit(doc("new", "something new")), base=revision)
    published = order.index("renamed")
    for name in (vectors.file_name(1), keywords.FILE, "manifest.sqlite", seal.SEAL):
        assert f"fsync {name}" in order[:published]
    assert "written" in order[:published]
    assert order[published + 1] == f"fsync {kb.snapshots.root.name}"


# -- as a person meets it


def bound(project: Project) -> Path:
    [path] = [path for path in (project.shared / "snapshots").glob(f"{project.pinned}-*") if path.is_dir()]
    return path


def damaged(project: Project) -> None:
    folder = bound(project)
    for byte in range(0, 200, 3):
        flip(folder / vectors.file_name(1), byte, 6)
    unnoticed(folder)


def test_a_damaged_index_is_built_again_after_a_start_of_the_machine_and_says_so_in_one_line(project):
    before = project.answers()
    damaged(project)
    assert project.answers() != before
    restarted(bound(project))
    said = project.vmrag("query", "rest").err
    assert said.count("does not verify: vectors-1.i8 is not what was written. It is built again.") == 1
    assert len(said.splitlines()) == 1
    assert project.answers() == before
    assert project.vmrag("query", "rest").err == ""


def test_doctor_finds_what_a_disk_forgot_and_mends_it(project):
    before = project.answers()
    damaged(project)
    [found] = [
        each
        for topic in project.ask("doctor", code=1)["topics"]
        for each in topic["findings"]
        if each["level"] == "error"
    ]
    assert (found["code"], found["fix"]) == ("INDEX_DAMAGED", "vmrag sync --rebuild")
    assert project.answers() == before  # what is known to be damaged is not served any more
    damaged(project)
    project.vmrag("doctor", "--fix")
    assert project.answers() == before


def test_fingerprint_is_equal_and_verify_finds_the_damage(project):
    said = project.vmrag("fingerprint").out
    assert project.vmrag("fingerprint", "--verify").out.startswith(said)
    damaged(project)
    assert project.vmrag("fingerprint").out == said
    done = project.vmrag("fingerprint", "--verify", code=1)
    assert "Vectors-1.i8 is not what was written." in done.out
    assert "vmrag sync --rebuild" in done.out
    project.vmrag("sync", "--rebuild")
    report = project.ask("fingerprint", "--verify")
    assert (report["problems"], report["chunks"] > 0, report["vectors"]) == ([], True, report["chunks"])


@pytest.mark.parametrize("word", ["texts", "vectors"])
def test_verify_finds_what_a_bug_has_written(project, monkeypatch, word):
    """Every byte is what was written, and it is not what the documents make."""
    cut, embedded = indexer.chunks, indexer.vectors_for
    with monkeypatch.context() as patch:
        if word == "texts":
            patch.setattr(indexer, "chunks", lambda text, chunking: cut(text.upper(), chunking))
        else:
            patch.setattr(
                indexer,
                "vectors_for",
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
    [copy] = [path for path in (project.shared / "working").iterdir() if path.is_dir()]
    for byte in range(0, 200, 3):
        flip(copy / vectors.file_name(1), byte, 6)
    unnoticed(copy)
    assert project.answers() != before
    project.put("other.md", "Another draft.")
    project.drop("other.md")
    assert project.answers() == before


def test_malformed_words_met_by_a_query_are_an_index_that_is_built_again(project):
    before = project.answers()
    folder = bound(project)
    size = (folder / keywords.FILE).stat().st_size
    (folder / keywords.FILE).write_bytes((folder / keywords.FILE).read_bytes()[:4096] + b"\xff" * (size - 4096))
    unnoticed(folder)
    done = project.vmrag("query", "rest")
    assert "It is built again." in done.err
    assert project.answers() == before


@pytest.mark.parametrize("name", ["workspace.json", "snapshots/{bound}/proven.json"])
def test_bytes_that_are_no_text_in_a_derived_file_count_as_no_file(project, name):
    before = project.answers()
    path = project.shared / name.format(bound=bound(project).name)
    flip(path, path.read_bytes().index(b":") + 3, 7)
    assert project.answers() == before
    assert project.vmrag("doctor").code == 0

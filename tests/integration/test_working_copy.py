"""The index of uncommitted documents, between processes."""

from __future__ import annotations

import signal
import time

import pytest

from tests.support import knowledge
from tests.support.knowledge import Knowledge, child, collection, doc, end, said
from vmrag_link.errors import Busy
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.working import CopyState, WorkingCopy, remove_unused_copies

kb = knowledge.kb

BODY = """
kb = Knowledge(Path(sys.argv[1]) if len(sys.argv) > 1 else Path({folder!r}))
from vmrag_link.index.working import CopyState, WorkingCopy
copy = WorkingCopy(Path({root!r}), kb_branch='main', base={revision!r}, timeout=20.0)
"""


@pytest.fixture
def revision(kb: Knowledge) -> str:
    made = kb.commit(*[doc(f"d{n}", f"text number {n}") for n in range(5)], collections=[collection()])
    kb.index(made)
    return made


@pytest.fixture
def copy(kb: Knowledge, revision: str) -> WorkingCopy:
    return working(kb, revision)


def working(kb: Knowledge, revision: str, *, timeout: float = 0.2, branch: str = "main") -> WorkingCopy:
    return WorkingCopy(kb.folder / "working", kb_branch=branch, base=revision, timeout=timeout)


def other(kb: Knowledge, revision: str, body: str):
    return child(BODY.format(folder=str(kb.folder), root=str(kb.folder / "working"), revision=revision) + body)


def write(kb: Knowledge, copy: WorkingCopy, name: str) -> CopyState:
    """Write like the workspace; return the earlier state of the copy."""
    with copy.lock_for_writing() as stood:
        kb.write(doc(name, f"the text of {name}"))
        kb.bring_working(copy.path, copy.base, base=kb.views.view_path(copy.base) if stood == "gone" else None)
    return stood


def held(copy: WorkingCopy) -> set[str]:
    with IndexReader.open(copy.path) as reader:
        return {doc_id for _, doc_id in reader.read_headers()}


DOCUMENTS = {f"d{n}" for n in range(5)}


def test_first_write_makes_the_copy_and_the_next_takes_it_over(kb, copy):
    assert copy.find_problem() == "it does not exist"
    assert write(kb, copy, "new") == "gone"
    assert copy.find_problem() == ""
    assert write(kb, copy, "newer") == "current"
    assert held(copy) == DOCUMENTS | {"new", "newer"}


def test_copy_belongs_to_one_branch_and_one_revision(kb, copy, revision):
    write(kb, copy, "new")
    later = kb.commit()
    assert working(kb, later).find_problem() == "it does not exist"
    assert working(kb, revision, branch="topic").find_problem() == "it does not exist"


def test_failed_writer_leaves_a_mark_and_the_copy_is_rebuilt(kb, copy):
    write(kb, copy, "new")
    with pytest.raises(RuntimeError), copy.lock_for_writing():
        raise RuntimeError
    assert copy.find_problem() == "its writer was interrupted"
    assert write(kb, copy, "newer") == "gone"
    assert held(copy) == DOCUMENTS | {"new", "newer"}
    assert copy.find_problem() == ""


def test_killed_writer_leaves_a_mark_and_the_copy_is_made_again(kb, copy, revision):
    write(kb, copy, "new")
    writer = other(
        kb,
        revision,
        "from vmrag_link.index import seal\nwhole = seal.write_seal\n"
        "def half(folder, **given):\n    if folder != copy.path: return whole(folder, **given)\n"
        "    print('half', flush=True); sys.stdin.read()\n"
        "seal.write_seal = half\n"
        "with copy.lock_for_writing():\n    kb.write(doc('half'))\n    kb.bring_working(copy.path, copy.base)",
    )
    assert said(writer) == "half"
    with pytest.raises(Busy), copy.lock_for_reading():
        pass
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    with copy.lock_for_reading() as problem:
        assert problem == "its writer was interrupted"
    assert write(kb, copy, "newer") == "gone"
    assert held(copy) == DOCUMENTS | {"new", "half", "newer"}


def test_two_processes_write_one_after_the_other(kb, copy, revision):
    body = (
        "def write(name):\n    with copy.lock_for_writing() as stood:\n        kb.write(doc(name))\n"
        "        base = kb.views.view_path(copy.base) if stood == 'gone' else None\n"
        "        kb.bring_working(copy.path, copy.base, base=base)\n"
        "for number in range(4): write(f'{name}{number}')\nprint('done', flush=True)"
    )
    writers = [other(kb, revision, f"name = {name!r}\n" + body) for name in ("left", "right")]
    assert [said(writer) for writer in writers] == ["done", "done"]
    for writer in writers:
        end(writer)
    assert held(copy) == DOCUMENTS | {f"{name}{number}" for name in ("left", "right") for number in range(4)}
    assert {hit.doc_id for hit in kb.search(copy.path, "text", mode="keyword", k=50)} == held(copy)


def test_reader_never_sees_a_half_written_copy(kb, copy, revision):
    write(kb, copy, "new0")
    reader = other(
        kb,
        revision,
        "print('ready', flush=True)\nseen = set()\n"
        "while len(seen) < 3:\n    with copy.lock_for_reading() as problem:\n        assert problem == '', problem\n"
        "        hits = kb.search(copy.path, 'text', mode='keyword', k=50, where={'source_table': 'documents'})\n"
        "        seen.add(len(hits))\n    time.sleep(0.002)\n"
        "print(sorted(seen), flush=True)",
    )
    assert said(reader) == "ready"
    patient = working(kb, revision, timeout=20.0)
    deadline = time.monotonic() + 60
    number = 1
    while reader.poll() is None and time.monotonic() < deadline:
        write(kb, patient, f"new{number}")
        number += 1
        time.sleep(0.05)
    assert end(reader).startswith("[")


def test_sweeping_removes_unneeded_copies_unless_held(kb, copy, revision):
    write(kb, copy, "new")
    reader = other(kb, revision, "with copy.lock_for_reading():\n    print('reading', flush=True); sys.stdin.read()")
    assert said(reader) == "reading"
    remove_unused_copies(copy.root, needed=list)
    assert copy.path.is_dir()
    end(reader)
    remove_unused_copies(copy.root, needed=lambda: [copy.path])
    assert copy.path.is_dir()
    remove_unused_copies(copy.root, needed=list)
    assert not copy.path.exists()
    remove_unused_copies(copy.root / "absent", needed=list)

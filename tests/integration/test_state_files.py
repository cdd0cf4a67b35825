"""Small files below `.git/vmrag` that a power cut or another program left damaged."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from tests.support import terminal
from tests.support.long import LONG
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

DAMAGE = {
    "zeros": bytes(64),
    "empty": b"",
    "text": b'\xff\xfe{["\n',
    "digits": b"9" * 5000,
    "long path": b"/" + b"x" * 5000,
}

ABSENT = (
    *("merge.json", "merge-git.json", "index-failures.json", "sync.request", "sync.json", "trust-id"),
    *("builder/chroma.json", "builder/chroma.request", "builder/failures.json", "remotes/unreached.json"),
    *("tree/bound", "tree/stats", "tree/stats.listing"),
)
"""Files that exist in some states only."""

COMMANDS = (("status",), ("query", "rest"), ("list",), ("doctor",), ("doctor", "--fix"), ("sync",), ("status",))


def state_files(project: Project) -> list[str]:
    """Return the names of our small files that no checksum covers."""
    covered = ("kb", "views", "segments", "chroma", "uncommitted", "sources")
    files = (path.relative_to(project.shared) for path in project.shared.rglob("*") if path.is_file())
    named = (str(path) for path in files if path.parts[0] not in covered and path.suffix not in (".lock", ".sqlite"))
    return [*named, *ABSENT]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_state_file_causes_no_internal_error(project, tmp_path, damage):
    project.git("worktree", "add", "-q", "--force", str(tmp_path / "other"), "feature", env={"VMRAG": "0"})
    project.vmrag("sync")
    project.put("new.md", "An uncommitted text.")
    Project(tmp_path / "other").vmrag("sync")
    assert "leases" in {name.partition("/")[0] for name in state_files(project)}
    names = state_files(project)
    for name in names if LONG else names[list(DAMAGE).index(damage) :: len(DAMAGE)]:
        path = project.shared / name
        before = path.read_bytes() if path.exists() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DAMAGE[damage])
        for command in COMMANDS if LONG else COMMANDS[1::2]:
            result = project.vmrag(*command, code=None)
            assert result.code in (0, 1, 2, 3), (name, command, result)
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)
    assert project.marks()["new.md"] == "added"


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_lease_lets_the_main_work_tree_write(project, tmp_path, damage):
    project.git("worktree", "add", "-q", "--force", str(tmp_path / "other"), "main", env={"VMRAG": "0"})
    other = Project(tmp_path / "other")
    other.vmrag("sync")
    project.put("one.md", "A text.")
    for path in (project.shared / "leases").iterdir():
        path.write_bytes(DAMAGE[damage])
    project.put("two.md", "A text.")
    assert project.marks()["two.md"] == "added"
    assert "two.md" not in other.marks()


@pytest.mark.hooks("on")
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.sample(2)
def test_doctor_records_the_interpreter_again_if_its_file_is_damaged(project, damage):
    project.vmrag("install")
    (project.shared / "interpreter").write_bytes(DAMAGE[damage])
    assert "INTERPRETER_MISSING" in project.vmrag("doctor", code=None).out
    project.vmrag("doctor", "--fix", code=None)
    assert "INTERPRETER_MISSING" not in project.vmrag("doctor", code=None).out


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_read_and_named(project, monkeypatch, number):
    def fake_flock(_: int, __: int) -> None:
        """A fake of NFS without its lock service, which a test cannot mount."""
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fake_flock)
    assert project.ask("query", "rest and sleep")["results"]
    assert project.ask("list")["documents"]
    assert project.status()["state"] == "in_sync"
    refused = project.vmrag("add", "-", "--collection", "handbook", "--id", "x.md", code=3, stdin="text")
    assert "does not support locks" in refused.err
    assert "local_lock=flock" in refused.err
    assert project.vmrag("doctor", code=None).code in (0, 1)

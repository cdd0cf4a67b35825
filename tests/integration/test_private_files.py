"""Files below `.git/vmrag` are readable for their owner only, or for the group if git shares the
repository.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import VMRAG, WITHOUT_RIGHTS, start
from tests.support.repos import isolate
from tests.support.terminal import Done, Project, new_project

NOBODY, STRANGER = 65534, 65533
GROUP = 54321
"""A group without a name: numbers are enough."""

PEEK = """
import fcntl, os, sys
os.setgroups([]); os.setgid(STRANGER); os.setuid(STRANGER)
for name in sys.argv[1:]:
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except OSError:
        continue
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print(name)
""".replace("STRANGER", str(STRANGER))

IN_GROUP = (sys.executable, "-c", f"import os, sys; os.setgroups([{GROUP}]); os.execvp(sys.argv[1], sys.argv[1:])")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's own."""
    before = os.umask(0o022)
    folder = Path(tempfile.mkdtemp(prefix="vmrag-private-"))
    folder.chmod(0o755)
    isolate(monkeypatch, folder / "home")
    yield folder
    os.umask(before)
    shutil.rmtree(folder)


@pytest.fixture
def project(place: Path) -> Project:
    """Knowledge, an index, uncommitted documents, a remote that was pushed to, and a linked work
    tree.
    """
    project = new_project(place / "project")
    fill(project)
    subprocess.run(["git", "init", "-q", "--bare", str(place / "remote.git")], check=True)
    project.git("remote", "add", "origin", str(place / "remote.git"))
    project.vmrag("push")
    project.git("worktree", "add", "-q", "-b", "other", str(place / "other"))
    Project(place / "other").put("apart.md", "Apart.")
    project.put("uncommitted.md", "Uncommitted.")
    return project


def fill(project: Project) -> None:
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.put("setup.md", "# Setup\n\nInstall the program.")
    project.vmrag("commit", "-m", "first")
    project.git("commit", "-q", "-m", "first")


def kept(project: Project) -> list[Path]:
    """List all files of vmrag in the git directory."""
    git = project.top / ".git"
    tops = [git / "vmrag", *git.glob("worktrees/*/vmrag")]
    return [path for top in tops for path in (top, *top.rglob("*"))]


def openness(paths: list[Path]) -> dict[str, str]:
    """Return the permissions of group and others, for paths that grant any."""
    modes = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in paths}
    return {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


def peek(paths: list[Path]) -> list[str]:
    """List the paths that another user can open, and so lock."""
    result = subprocess.run([sys.executable, "-c", PEEK, *paths], capture_output=True, text=True, check=True)
    return result.stdout.split()


def test_other_users_have_no_access_below_the_vmrag_folder(project: Project) -> None:
    assert openness(kept(project)) == {}
    names = {branch.name for branch in kept(project)}
    assert {
        "remotes.git",
        "words-1.idx",
        "embeddings.sqlite",
        "links.queue",
        "remote.doltlite",
        "uncommitted",
    } <= names
    umasked = [project.top / ".dolt-version", project.top / ".git" / "hooks" / "post-commit"]
    assert [oct(stat.S_IMODE(path.stat().st_mode)) for path in umasked] == ["0o644", "0o755"]


@as_root
def test_other_user_can_neither_read_nor_lock_anything(project: Project) -> None:
    files = [branch for branch in kept(project) if branch.is_file()]
    assert peek(files) == []
    assert peek([project.top / ".dolt-version"]) != []  # who may enter the work tree


def test_next_write_restricts_files_left_open_by_earlier_versions(place: Path) -> None:
    project = new_project(place / "project")
    fill(project)
    for branch in kept(project):
        branch.chmod(0o755 if branch.is_dir() else 0o644)
    project.put("more.md", "More.")
    assert openness(kept(project)) == {}


def test_rewritten_proof_has_the_permissions_of_its_index(place: Path) -> None:
    project = new_project(place / "project")
    fill(project)
    kinds = ("views", "segments")
    for proof in (path for kind in kinds for path in project.shared.glob(f"{kind}/*/proven.json")):
        proof.unlink()
    project.vmrag("query", "install")
    for kind in kinds:
        (proof,) = project.shared.glob(f"{kind}/*/proven.json")
        assert stat.S_IMODE(proof.stat().st_mode) == 0o600


def test_stricter_permissions_of_the_user_are_kept(place: Path) -> None:
    project = new_project(place / "project")
    fill(project)
    project.shared.chmod(0o500)
    project.run_quietly("sync")
    assert stat.S_IMODE(project.shared.stat().st_mode) == 0o500
    project.shared.chmod(0o700)
    project.git("config", "core.sharedRepository", "group")
    project.put("more.md", "More.")
    assert stat.S_IMODE(project.shared.stat().st_mode) == 0o700


def test_repository_that_all_may_read_is_shared_with_all(place: Path) -> None:
    project = new_project(place / "project")
    project.git("config", "core.sharedRepository", "all")
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    modes = {branch: stat.S_IMODE(branch.stat().st_mode) for branch in kept(project)}
    assert {mode & 0o777 for path, mode in modes.items() if path.is_dir()} == {0o775}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o664}
    assert "OPEN_TO_OTHERS" not in project.run_quietly("doctor", "--json").out


@as_root
@pytest.mark.skipif(sys.platform != "linux", reason="rights that root gives up: Linux has them")
def test_group_members_share_a_knowledge_base_in_a_shared_repository(place: Path) -> None:
    project = new_project(place / "project")
    project.git("config", "core.sharedRepository", "group")
    share(project)
    fill(project)
    share(project)  # what git does not: the work tree
    for path in [project.top, *project.top.rglob("*")]:
        os.chown(path, NOBODY, -1)
    member = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}

    def vmrag(*arguments: str) -> Done:
        return start(project, *arguments, program=(*IN_GROUP, *WITHOUT_RIGHTS, *VMRAG), **member).done()

    project.write("docs/rest.md", "# Rest\n\nSleep well.")
    for arguments in (
        ["import", "docs/rest.md", "--collection", "handbook", "--copy"],
        ["commit", "-m", "second"],
        ["sync", "--rebuild"],
        ["query", "install"],
    ):
        result = vmrag(*arguments)
        assert result.code == 0, (arguments, result)
    assert peek([branch for branch in kept(project) if branch.is_file()]) == []


def share(project: Project) -> None:
    """Share an existing repository as git's documentation describes."""
    for path in [project.top, *project.top.rglob("*")]:
        if not path.is_relative_to(project.top / ".git" / "vmrag"):
            os.chown(path, -1, GROUP)
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (0o2070 if path.is_dir() else 0o060))

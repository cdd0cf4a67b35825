"""State of jj (Jujutsu): workspaces without `.git`, which its own files describe, and commits with
conflicts in the pin.

The tests write its files by hand, also hostile ones; if jj is installed, jj writes them itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import terminal
from tests.support.mcp import Tools, warned
from tests.support.terminal import Project
from vmrag_link import hints

pytestmark = pytest.mark.hooks("off")
needs_jj = pytest.mark.skipif(shutil.which("jj") is None, reason="jj is not installed")

template, project = terminal.template, terminal.project

OPERATION, VIEW = b"\x01" * 64, b"\x02" * 64
SCRIPTED = {"JJ_CONFIG": os.devnull, "JJ_USER": "Someone", "JJ_EMAIL": "someone@example.com"}


def field(number: int, value: bytes) -> bytes:
    """Encode a field of a protobuf message."""
    size, said = len(value), b""
    while size > 127:
        said, size = said + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + said + bytes([size]) + value


def workspace(project: Project, commit: str, *, name: str = "second") -> Project:
    """A folder beside the project, as `jj workspace add` leaves it at a commit of the code."""
    repo = project.top / ".jj" / "repo"
    for folder in ("store", "op_store/operations", "op_store/views"):
        (repo / folder).mkdir(parents=True, exist_ok=True)
    (repo / "store/git_target").write_text("../../../.git")
    top = project.top.parent / name
    (top / ".jj/working_copy").mkdir(parents=True, exist_ok=True)
    (top / ".jj/repo").write_text("../../project/.jj/repo")
    checks_out(project, Project(top), commit)
    return Project(top)


def checks_out(project: Project, second: Project, commit: str, *, operation: bytes = OPERATION) -> None:
    """Create jj's own commit on top of the given one, with the same files."""
    ours = project.git("commit-tree", f"{commit}^{{tree}}", "-p", commit, "-m", "jj's")
    store = project.top / ".jj/repo/op_store"
    entry = field(1, second.top.name.encode()) + field(2, bytes.fromhex(ours))
    (store / "views" / VIEW.hex()).write_bytes(b"\x18\x05" + field(1, b"head") + field(8, entry))
    (store / "operations" / operation.hex()).write_bytes(field(1, VIEW) + field(2, b"parent"))
    stated = field(2, operation) + field(3, second.top.name.encode())
    (second.top / ".jj/working_copy/checkout").write_bytes(stated)
    for path in (".dolt-version", ".vmrag.yaml"):
        (second.top / path).write_bytes(
            subprocess.run(
                ["git", "-C", project.top, "show", f"{commit}:{path}"], capture_output=True, check=True
            ).stdout
        )


# -- workspaces


def test_jj_workspace_answers_from_its_checked_out_commit(project):
    second = workspace(project, "feature")
    assert second.marks().keys() == {"setup.md", "rest.md", "uv.md"}
    assert second.ask("query", "uv")["kb"]["git_head"] == project.git("rev-parse", "feature")
    assert second.status()["state"] == "in_sync"
    checks_out(project, second, "first", operation=b"\x03" * 64)
    assert Tools(second.top)("chroma_list_collections")["kb"]["commit"] == second.pinned
    assert "uv.md" not in second.marks()
    assert "faq.md" in project.marks(), "the other folder stays where it is"
    assert project.git("status", "--porcelain", "--untracked-files=no") == ""


def test_folder_of_a_workspace_is_the_workspace(project):
    second = workspace(project, "feature")
    (second.top / "deep").mkdir()
    assert Project(second.top / "deep").marks() == second.marks()


def test_documents_are_written_if_git_has_a_branch(project, tmp_path):
    second = workspace(project, "feature")
    result = second.vmrag("add", "-", "--collection", "handbook", "--id", "x", stdin="x", code=None)
    assert result.code != 0
    assert f"cd {project.top} && git switch -c NAME" in result.err


def test_files_of_jj_are_ignored_inside_a_git_worktree(project):
    (project.top / "sub/.jj/repo").mkdir(parents=True)
    assert Project(project.top / "sub").ask("list") == project.ask("list")


def cut_off(second: Project, repo: Path) -> None:
    view = repo / "op_store/views" / VIEW.hex()
    view.write_bytes(view.read_bytes()[:-4])


def endless(second: Project, repo: Path) -> None:
    (second.top / ".jj/working_copy/checkout").write_bytes(b"\xff" * 4000)


def of_another_name(second: Project, repo: Path) -> None:
    (second.top / ".jj/working_copy/checkout").write_bytes(field(2, OPERATION) + field(3, b"third"))


def no_commit(second: Project, repo: Path) -> None:
    entry = field(1, b"second") + field(2, b"--upload-pack")
    (repo / "op_store/views" / VIEW.hex()).write_bytes(field(8, entry))


def a_commit_that_is_gone(second: Project, repo: Path) -> None:
    entry = field(1, b"second") + field(2, b"\x07" * 20)
    (repo / "op_store/views" / VIEW.hex()).write_bytes(field(8, entry))


def a_way_out(second: Project, repo: Path) -> None:
    (second.top / ".jj/working_copy/checkout").write_bytes(field(2, b"") + field(3, b"second"))


def no_operation(second: Project, repo: Path) -> None:
    (second.top / ".jj/working_copy/checkout").write_bytes(field(3, b"second"))


def a_pipe(second: Project, repo: Path) -> None:
    (repo / "store/git_target").unlink()
    os.mkfifo(repo / "store/git_target")


def no_git_directory(second: Project, repo: Path) -> None:
    (repo / "store/git_target").write_text("../../..")


def a_file(second: Project, repo: Path) -> None:
    (repo / "store/git_target").write_text("../../../.vmrag.yaml")


def nothing_there(second: Project, repo: Path) -> None:
    (second.top / ".jj/repo").write_text("../../nowhere")


HOSTILE = (cut_off, endless, of_another_name, no_commit, a_commit_that_is_gone, a_way_out, no_operation, a_pipe, no_git_directory, a_file, nothing_there)  # fmt: skip


@pytest.mark.parametrize("breaks", HOSTILE, ids=lambda function: function.__name__)
def test_unreadable_jj_files_are_an_error_and_change_nothing(project, breaks):
    second = workspace(project, "feature")
    breaks(second, project.top / ".jj/repo")
    error = second.vmrag("list", "--json", code=2).error
    assert error["code"] == "GIT_REPO_NOT_FOUND"
    assert "jj git root" in error["hint"]
    assert not (project.shared / "jj").exists() or not [*(project.shared / "jj").glob("*/HEAD")]


def test_folder_of_another_user_names_no_repository(project, monkeypatch):
    second = workspace(project, "feature")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert second.vmrag("list", "--json", code=2).error["code"] == "GIT_REPO_NOT_FOUND"


# -- conflicts


def half_merged(project: Project) -> str:
    """Create a commit as jj does for main and feature with conflicting pins; HEAD is at it."""
    trees = {"base-0": "first", "side-0": "main", "side-1": "feature"}
    lines = project.git("ls-tree", "main") + "\n"
    for name, branch in trees.items():
        lines += f"040000 tree {project.git('rev-parse', f'{branch}^{{tree}}')}\t.jjconflict-{name}\n"
    readme = project.run("hash-object", "-w", "--stdin", stdin="This commit was made by jj.\n").stdout.strip()
    lines += f"100644 blob {readme}\tJJ-CONFLICT-README\n"
    tree = project.run("mktree", stdin=lines).stdout.strip()
    commit = project.git("commit-tree", tree, "-p", "main", "-m", "half merged")
    project.git("switch", "-q", "-c", "half", commit)
    return commit


def test_verify_and_status_find_committed_conflict_in_the_pin(project):
    commit = half_merged(project)
    findings = project.ask("verify", "main..half", code=1)["findings"]
    assert [(finding["code"], finding["level"], finding["commit"]) for finding in findings] == [
        ("KNOWLEDGE_DROPPED", "error", commit)
    ]
    assert f"jj new {commit[:12]}" in findings[0]["hint"]
    status = project.status()
    assert (status["state"], status["hint"]) == ("dropped", findings[0]["hint"])
    [reason] = [text for text in status["reasons"] if "jj" in text]
    assert hints.append_to(findings[0]["message"], findings[0]["hint"]) in reason


def test_later_commit_with_both_sides_repairs_the_conflict(project):
    half_merged(project)
    project.vmrag("merge", "feature")
    project.vmrag("commit", "-m", "both", code=None)
    project.git("rm", "-rq", "--cached", ".jjconflict-base-0", ".jjconflict-side-0", ".jjconflict-side-1", "JJ-CONFLICT-README")  # fmt: skip
    project.git("add", ".dolt-version")
    project.git("commit", "-q", "-m", "resolved")
    [finding] = [
        finding for finding in project.ask("verify", "main..half")["findings"] if finding["code"] == "KNOWLEDGE_DROPPED"
    ]
    assert (finding["level"], finding["mended_by"]) == ("information", project.git("rev-parse", "HEAD"))


def test_verify_ignores_jj_conflicts_in_other_files(project):
    trees = "".join(
        f"040000 tree {project.git('rev-parse', 'main^{tree}')}\t.jjconflict-{name}\n" for name in ("base-0", "side-0", "side-1")
    )  # fmt: skip
    tree = project.run("mktree", stdin=project.git("ls-tree", "main") + "\n" + trees).stdout.strip()
    project.git("branch", "half", project.git("commit-tree", tree, "-p", "main", "-m", "half merged"))
    assert project.ask("verify", "main..half")["findings"] == []


# -- jj itself


def types(project: Project, *lines: str) -> None:
    for line in lines:
        result = subprocess.run(
            ["jj", *line.split()], cwd=project.top, env=os.environ | SCRIPTED, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert result.returncode == 0, (line, result.stderr)


@needs_jj
def test_rebase_that_ends_in_a_conflict_is_found_resolved_and_squashed(project):
    types(project, "git init --colocate", "rebase -b feature -d main", "new feature")
    assert project.status()["state"] == "malformed"
    assert [finding["code"] for finding in project.ask("verify", "main..feature", code=1)["findings"]] == [
        "KNOWLEDGE_DROPPED"
    ]
    project.vmrag("resolve")
    types(project, "squash")
    assert project.marks().keys() == {"setup.md", "rest.md", "uv.md", "faq.md"}
    assert project.ask("verify", "main..feature")["findings"] == []


@needs_jj
def test_conflict_in_a_workspace_is_resolved_in_it(project):
    types(project, "git init --colocate", "workspace add ../second -r main")
    second = Project(project.top.parent / "second")
    types(second, "new main feature")
    assert second.status()["state"] == "malformed"
    second.vmrag("resolve")
    merged = second.pinned
    project.vmrag("gc", "--apply")
    types(second, "commit -m merged")
    assert second.pinned == merged
    assert second.marks().keys() == {"setup.md", "rest.md", "uv.md", "faq.md"}
    assert second.status()["state"] == "in_sync"


@needs_jj
def test_repository_that_shares_no_folder_with_git_is_read(project):
    types(project, "git init --colocate", "git colocation disable")
    assert not (project.top / ".git").exists()
    assert project.marks().keys() == {"setup.md", "rest.md", "deep/tls.txt", "faq.md"}
    types(project, "new feature")
    assert "uv.md" in project.marks()


@needs_jj
def test_knowledge_not_pushed_by_jj_is_reported(project):
    subprocess.run(["git", "init", "-q", "--bare", project.top.parent / "hub.git"], check=True)
    project.git("remote", "add", "origin", str(project.top.parent / "hub.git"))
    project.git("push", "-q", "origin", "main")
    project.vmrag("push")
    types(project, "git init --colocate", "bookmark track feature@origin", "git push -b feature")
    said = "origin/feature: the pushed code pins revision"
    assert said in project.vmrag("list").err
    assert "KNOWLEDGE_NOT_PUSHED" in warned(Tools(project.top)("chroma_list_collections"))
    project.vmrag("push", "--all")
    assert said not in project.vmrag("list").err


@needs_jj
def test_documents_are_written_in_colocated_folder_after_git_switch(project):
    types(project, "git init --colocate", "new main")
    for number in range(2):
        project.git("switch", "-q", "main")
        project.put(f"{number}.md", "New.")
        project.vmrag("commit", "-m", "new")
        assert "the pin is not committed; run 'jj commit' to commit it" in project.status()["reasons"]
        types(project, "commit -m knowledge")
        assert f"{number}.md" in project.marks()
        types(project, "bookmark set main -r @-")
    project.git("switch", "-q", "main")
    assert project.status()["state"] == "in_sync"
    assert {"0.md", "1.md"} <= project.marks().keys()


@needs_jj
def test_pin_that_an_undone_commit_leaves_behind_is_found(project):
    types(project, "git init --colocate", "new main")
    project.git("switch", "-q", "main")
    project.put("new.md", "New.")
    project.vmrag("commit", "-m", "new")
    new = project.pinned
    types(project, "abandon")
    assert project.pinned != new
    assert new[:7] in project.vmrag("status", code=None).out
    assert "new.md" not in project.marks()


# -- archives


class Archive(NamedTuple):
    """An unpacked folder with `.jj` and no `.git`. Programs that its store names write `mark`."""

    project: Project
    store: Path
    mark: Path

    def git(self, *arguments: str, stdin: str = "") -> str:
        """Run git in the store as its maker does, and return its output."""
        command = ["git", "-C", self.store, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout.strip()

    def programs_run(self) -> str:
        return self.mark.read_text() if self.mark.exists() else ""


def archive_of(project: Project, folder: Path) -> Archive:
    top, mark = folder / "archive", folder / "programs-run"
    store = top / ".jj/repo/store/git"
    subprocess.run(["git", "clone", "-q", "--bare", project.top, store], check=True)
    shutil.copytree(project.shared / "kb", store / "vmrag/kb")
    (store.parent / "git_target").write_text("git")
    for folder_name in ("op_store/operations", "op_store/views"):
        (top / ".jj/repo" / folder_name).mkdir(parents=True)
    (top / ".jj/working_copy").mkdir()
    unpacked = Archive(Project(top), store, mark)
    write_checkout(unpacked, project.git("rev-parse", "main"))
    files = subprocess.run(["git", "-C", store, "archive", "main"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", top], input=files, check=True)
    return unpacked


def write_checkout(archive: Archive, commit: str) -> None:
    """Write jj's own files so that they name a commit on top of this one."""
    ours = archive.git("commit-tree", f"{commit}^{{tree}}", "-p", commit, "-m", "jj")
    entry = field(1, b"default") + field(2, bytes.fromhex(ours))
    (archive.project.top / ".jj/repo/op_store/views" / VIEW.hex()).write_bytes(field(8, entry))
    (archive.project.top / ".jj/repo/op_store/operations" / OPERATION.hex()).write_bytes(field(1, VIEW))
    (archive.project.top / ".jj/working_copy/checkout").write_bytes(field(2, OPERATION) + field(3, b"default"))


def make_hostile(archive: Archive) -> None:
    """Let the store name programs in each way that git knows."""
    script = archive.store / "run"
    script.write_text(f'#!/bin/sh\necho "$0 $*" >>{archive.mark}\nexit 1\n')
    script.chmod(0o755)
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"):
        shutil.copy(script, archive.store / "hooks" / hook)
    values = {
        "core.fsmonitor": script,
        "core.sshCommand": script,
        "core.askPass": script,
        "core.pager": script,
        "core.gitProxy": script,
        "core.alternateRefsCommand": script,
        "credential.helper": script,
        "diff.external": script,
        "diff.evil.textconv": script,
        "diff.evil.command": script,
        "filter.evil.clean": script,
        "filter.evil.smudge": script,
        "filter.evil.process": script,
        "filter.evil.required": "true",
        "merge.evil.driver": script,
        "gpg.program": script,
        "log.showSignature": "true",
        "uploadpack.packObjectsHook": script,
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "remote.origin.url": f"ext::{script} %S",
        "remote.origin.promisor": "true",
        "remote.origin.partialCloneFilter": "blob:none",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
    }
    for key, value in values.items():
        archive.git("config", key, str(value))
    (archive.store / "info").mkdir(exist_ok=True)
    (archive.store / "info/attributes").write_text("* filter=evil diff=evil merge=evil\n")
    (archive.project.top / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")


READING = (
    "status", "list", "query rest", "query rest --at feature", "grep rest", "log", "diff", "diff main", "show handbook/faq.md",
    "verify", "doctor", "links", "sources list", "fingerprint", "fingerprint --verify", "sync", "pin", "gc",
)  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("command", READING)
def test_archive_with_jj_store_runs_no_program(project, tmp_path, command):
    archive = archive_of(project, tmp_path)
    make_hostile(archive)
    archive.project.vmrag(*command.split(), code=None)
    assert archive.programs_run() == ""


@pytest.mark.sample(5)
@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("missing", ["main^{tree}", "main:.dolt-version"])
def test_archive_with_jj_store_fetches_no_missing_object(project, tmp_path, missing, command):
    archive = archive_of(project, tmp_path)
    name = archive.git("rev-parse", missing)
    unpack_objects(archive.store)
    (archive.store / "objects" / name[:2] / name[2:]).unlink()
    make_hostile(archive)
    archive.project.vmrag(*command.split(), code=None)
    assert archive.programs_run() == ""


def test_archive_with_jj_store_runs_no_program_for_agents_and_resolve(project, tmp_path):
    commit = half_merged(project)
    archive = archive_of(project, tmp_path)
    write_checkout(archive, commit)
    archive.project.write(".dolt-version", "<<<<<<< conflict 1 of 1\n>>>>>>> conflict 1 of 1 ends\n")
    make_hostile(archive)
    assert archive.project.status()["state"] == "malformed"
    Tools(archive.project.top).error("PIN_MALFORMED", "chroma_list_collections")
    archive.project.vmrag("resolve")
    assert archive.programs_run() == ""


@pytest.mark.sample(5)
@pytest.mark.parametrize("url", ["ext::RUN %S", "ssh://localhost/repository"])
@pytest.mark.parametrize("command", ["fetch", "pull", "push", "status", "query rest", "sync", "adopt main", "gc"])
def test_archive_with_jj_store_contacts_no_remote(project, tmp_path, url, command):
    archive = archive_of(project, tmp_path)
    make_hostile(archive)
    archive.git("config", "remote.origin.url", url.replace("RUN", str(archive.store / "run")))
    pin = archive.project.top / ".dolt-version"
    pin.write_text(pin.read_text().replace(project.pinned, "7" * len(project.pinned)))
    ended = archive.project.vmrag(*command.split(), code=None)
    assert archive.programs_run() == ""
    if command == "fetch":
        assert "without .git" in ended.err
        assert "hint: run 'jj git colocation enable" in ended.err


def test_archive_with_jj_store_answers(project, tmp_path):
    archive = archive_of(project, tmp_path)
    assert archive.project.marks() == project.marks()
    make_hostile(archive)
    assert archive.project.marks() == project.marks()


def test_jj_store_respects_safe_bare_repository(project, tmp_path):
    archive = archive_of(project, tmp_path)
    project.git("config", "--global", "safe.bareRepository", "explicit")
    error = archive.project.vmrag("list", "--json", code=2).error
    assert error["code"] == "GIT_REPO_NOT_FOUND"
    assert "safe.bareRepository" in error["message"]
    assert "jj git colocation enable" in error["hint"]
    assert not (archive.store / "vmrag/jj").exists()


def unpack_objects(store: Path) -> None:
    for pack in [*(store / "objects/pack").glob("*.pack")]:
        content = pack.read_bytes()
        for path in pack.parent.glob(f"{pack.stem}.*"):
            path.unlink()
        subprocess.run(["git", "-C", store, "unpack-objects", "-q"], input=content, check=True)

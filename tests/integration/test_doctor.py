"""`vmrag doctor`: each known problem is really caused here; the printed command repairs it, and
`--fix` repairs the safe ones.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import chroma_server, terminal
from tests.support.bits import flip, mark_verified
from tests.support.chroma import MISSING
from tests.support.cli import VMRAG, WITHOUT_RIGHTS, read_only, run_patched, small_disk, start
from tests.support.compare import assert_whole
from tests.support.indexes import copy_of, list_folders, segments_of, view_of
from tests.support.long import one_of_each
from tests.support.repos import ENGINE_CLASS
from tests.support.terminal import Project, new_project
from tests.unit.test_hint_form import find_flaw
from vmrag_hooks import doctor as hooks_doctor
from vmrag_hooks import shims
from vmrag_link import hints
from vmrag_link.chroma import bindings
from vmrag_link.cli.doctor import TOPICS
from vmrag_link.conversion.child import serving
from vmrag_link.git import hook_choice, hook_config, plumbing
from vmrag_link.index.flat_files import PAGE_SIZE
from vmrag_link.index.seal import VERIFIED
from vmrag_link.ops import doctor as operation
from vmrag_link.sync import background
from vmrag_link.sync.background import WatchedProgress
from vmrag_link.toolsets.thinking.think import NewThought, store_thought
from vmrag_link.toolsets.thinking.tools import similar_thoughts

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

QUIETLY = {"VMRAG": "0"}
LONG_AGO = 10_000
"""Seconds."""


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the installed program on PATH, so that printed commands can be typed."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


# -- asking


def examined(project: Project, *arguments: str) -> dict[str, Any]:
    report = json.loads(project.run_quietly("doctor", "--json", *arguments).out)
    assert report["healthy"] == all(finding["level"] in ("ok", "note") for finding in findings_of(report))
    return report


def findings_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    """All findings but the note about stored copies, which the template has."""
    findings = [finding for topic in report["topics"] for finding in topic["findings"]]
    assert all(finding["message"] and finding["fix"] for finding in findings), findings
    flaws = [find_flaw(finding["fix"]) for finding in findings]
    assert [flaw for flaw in flaws if flaw and "characters" not in flaw] == []  # paths of tests are long
    return [finding for finding in findings if finding["code"] != "STORED_COPIES"]


def findings(project: Project, *arguments: str) -> dict[str, dict[str, Any]]:
    """By their codes."""
    return {finding["code"]: finding for finding in findings_of(examined(project, *arguments))}


def obeyed(project: Project, fix: str) -> None:
    """Type the first command of a hint.

    vmrag commands run in this process, to save the start.
    """
    command = hints.list_commands(fix)[0]
    words = shlex.split(command)
    if command == "vmrag trust":
        words.append("--yes")  # it asks on a terminal
    if words[0] == "vmrag" and "&&" not in words:
        project.vmrag(*words[1:], code=None)
    else:
        subprocess.run(["sh", "-ec", command], cwd=project.top, check=True, capture_output=True)


# -- healthy


def test_fresh_repository_has_no_finding(tmp_path, monkeypatch):
    terminal.isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "fresh")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    assert examined(project) == examined(project, "--fix")
    assert findings(project) == {}
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "start")
    assert findings(project) == {}


def test_repository_in_use_has_no_finding(project):
    project.put("draft.md", "A draft.")
    project.git("switch", "-q", "feature")
    project.git("switch", "-q", "--detach", "main")
    project.git("worktree", "add", "-q", "../linked", "feature")
    linked = Project(project.top.parent / "linked")
    linked.vmrag("sync")
    assert findings(linked) == {}
    project.git("switch", "-q", "main")
    assert findings(project) == {}
    assert project.vmrag("doctor").out.endswith(f"Checked {len(TOPICS)} topics: 1 finding.\n")
    assert project.vmrag("doctor", "-v").out.count("ok ") == len(TOPICS) - 1


def test_doctor_changes_nothing_despite_many_problems(project):
    (project.shared / "embeddings.sqlite").write_bytes(b"no database")
    truncated_spare(project)
    (project.top / ".git" / "hooks" / "post-merge").unlink()
    project.git("checkout", "-q", "feature", env=QUIETLY)
    before = times(project)
    assert len(findings(project)) == 4
    assert times(project) == before


def times(project: Project) -> dict[Path, int]:
    """Return the times of all files except the notes of checks."""
    files = [path for path in (project.top / ".git").rglob("*") if path.is_file()]
    return {path: path.stat().st_mtime_ns for path in files if path.name != VERIFIED}


def test_healthy_repository_is_examined_in_well_under_a_second(project):
    took = []
    for _ in range(5):
        since = time.perf_counter()
        examined(project)
        took.append(time.perf_counter() - since)
    assert min(took) < 0.5


# -- broken


def hook(project: Project, name: str = "post-merge") -> Path:
    return project.top / ".git" / "hooks" / name


def rewritten(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new))


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def uninstalled(project: Project) -> None:
    project.vmrag("uninstall")


def hook_missing(project: Project) -> None:
    hook(project).unlink()


def hook_of_an_older_version(project: Project) -> None:
    rewritten(hook(project), f"vmrag-hook {shims.VERSION} ", f"vmrag-hook {shims.VERSION - 1} ")


def hook_edited(project: Project) -> None:
    hook(project).write_bytes(hook(project).read_bytes() + b"# more\n")


def hook_not_executable(project: Project) -> None:
    hook(project).chmod(0o644)


def with_chained_hook(project: Project) -> None:
    project.vmrag("uninstall")
    script(hook(project), "echo somebody's")
    project.vmrag("install")


def chained_not_executable(project: Project) -> None:
    with_chained_hook(project)
    hook(project, "post-merge.vmrag-chained").chmod(0o644)


def hook_written_over_by_its_own_tool(project: Project) -> None:
    with_chained_hook(project)
    script(hook(project), "echo somebody's")


def hooks_in_both_places(project: Project) -> None:
    scripts = {name: shims.format_shim(name, configured=True) for name in hook_config.HOOKS}
    hook_config.write_hooks(plumbing.locate_work_tree(project.top), scripts)


def hooks_where_older_gits_run_none(project: Project) -> None:
    project.vmrag("uninstall")
    hook_choice.record_chosen_hooks(plumbing.locate_work_tree(project.top), hook_config.HOOKS)
    hooks_in_both_places(project)


def hooks_path_outside(project: Project) -> None:
    script(project.top.parent / "global" / "post-checkout", "exit 0")
    project.git("config", "--global", "core.hooksPath", str(project.top.parent / "global"))


def hooks_path_no_directory(project: Project) -> None:
    project.git("config", "core.hooksPath", "/dev/null")


def hooks_path_tracked(project: Project) -> None:
    script(project.top / ".githooks" / "post-checkout", "exit 0")
    project.git("add", ".githooks")
    project.git("config", "core.hooksPath", ".githooks")
    project.git("commit", "-q", "-m", "hooks")


def hooks_path_missing(project: Project) -> None:
    project.git("config", "core.hooksPath", ".githooks")


def husky(project: Project) -> None:
    """Configure hooks as `husky init` does."""
    folder = project.top / ".husky" / "_"
    for name in ("pre-commit", "pre-push", "post-checkout", "post-merge", "post-commit"):
        script(folder / name, '. "$(dirname "$0")/h"')
    script(
        folder / "h", 'n=$(basename "$0")\ns=$(dirname "$(dirname "$0")")/$n\n[ ! -f "$s" ] && exit 0\nsh -e "$s" "$@"'
    )
    project.git("config", "core.hooksPath", ".husky/_")


def husky_again(project: Project) -> None:
    """On a branch whose scripts, which husky starts, do not start ours yet."""
    husky(project)
    project.vmrag("install")
    husky(project)
    assert not {"HOOK_REPLACED", "HOOK_MISSING"} & findings(project).keys(), "its scripts start ours"
    for path in (project.top / ".husky").iterdir():
        if path.is_file():
            path.unlink()


def interpreter_not_recorded(project: Project) -> None:
    (project.shared / "interpreter").unlink()


def interpreter_gone(project: Project) -> None:
    (project.shared / "interpreter").write_text("/gone/bin/python\n")


def interpreter(project: Project, text: str) -> None:
    path = script(project.top.parent / "other" / "python", text)
    (project.shared / "interpreter").write_text(f"{path}\n")


def interpreter_without_us(project: Project) -> None:
    interpreter(project, "echo 'No module named vmrag_hooks' >&2; exit 1")


def interpreter_that_is_no_program(project: Project) -> None:
    path = project.top.parent / "image.png"
    path.write_bytes(b"\x89PNG")
    path.chmod(0o755)
    (project.shared / "interpreter").write_text(f"{path}\n")


def interpreter_of_another_version(project: Project) -> None:
    interpreter(project, "echo 0.0.1")


def driver_forgotten(project: Project) -> None:
    project.git("config", "--remove-section", "merge.vmrag")


def driver_without_command(project: Project) -> None:
    project.git("config", "--unset", "merge.vmrag.driver")


def driver_of_a_gone_interpreter(project: Project) -> None:
    project.git(
        "config", "merge.vmrag.driver", "'/gone/my python' -P -E -m vmrag_hooks.merge_driver %O %A %B %L %P || exit 1"
    )


def driver_of_another_version(project: Project) -> None:
    project.git("config", "merge.vmrag.driver", f"{sys.executable} -m vmrag_hooks.merge_driver %O %A %B || exit 1")


def attributes_gone(project: Project) -> None:
    project.git("rm", "-q", ".gitattributes")


def attributes_in_this_clone_only(project: Project) -> None:
    (project.top / ".git" / "info" / "attributes").write_text(".dolt-version merge=vmrag\n")
    project.git("rm", "-q", ".gitattributes")


def attributes_overridden(project: Project) -> None:
    with (project.top / ".gitattributes").open("a") as file:
        file.write(".dolt-* merge=union\n")


def attributes_not_staged(project: Project) -> None:
    project.git("rm", "-q", "--cached", ".gitattributes")


def attributes_ignored(project: Project) -> None:
    project.write(".gitignore", ".git*\n")
    project.git("rm", "-q", "--cached", ".gitattributes")


def setting_misspelled(project: Project) -> None:
    project.git("config", "vmrag.index.keeep-mb", "2")


def setting_not_trusted(project: Project) -> None:
    project.write(".vmrag.yaml", "embedding:\n  model: hash\n  model_path: /some where\n")


def pin_malformed(project: Project) -> None:
    project.write(".dolt-version", "{\n")


def pin_malformed_everywhere(project: Project) -> None:
    project.write(".dolt-version", "no pin\n")
    project.git("commit", "-q", "-a", "-m", "a broken pin", env=QUIETLY)


def pin_gone(project: Project) -> None:
    project.git("rm", "-q", ".dolt-version")
    project.git("commit", "-q", "-m", "no pin")


def pin_not_staged(project: Project) -> None:
    revision = project.pinned
    project.vmrag("pin", "feature")
    project.git("reset", "-q")
    assert project.pinned != revision


def uncommitted_unnoted(project: Project) -> None:
    project.put("draft.md", "A draft.")
    (project.shared / "kb" / "uncommitted").unlink()


def uncommitted_noted_in_vain(project: Project) -> None:
    (project.shared / "kb" / "uncommitted").touch()


DIES = {
    "unpinned": "import vmrag_link.workspace.pins.pinning as m; m.write_pin = die",
    "replaying": f"from {ENGINE_CLASS} as m; m.discard_saved_rows = die",
}


def commit_killed(project: Project) -> None:
    project.put("note.md", "A note.")
    assert run_patched(project, DIES["unpinned"], "commit", "-m", "note").code == -signal.SIGKILL


def commit_killed_on_another_branch(project: Project) -> None:
    commit_killed(project)
    project.git("switch", "-q", "feature", env=QUIETLY)
    project.vmrag("sync")


def replay_killed(project: Project) -> None:
    project.put("note.md", "A note.")
    project.git("checkout", "-q", "feature", "--", ".dolt-version", env=QUIETLY)
    assert run_patched(project, DIES["replaying"], "sync").code == -signal.SIGKILL


def replay_killed_on_another_branch(project: Project) -> None:
    replay_killed(project)
    project.git("switch", "-q", "-f", "feature", env=QUIETLY)
    project.vmrag("sync")


def journal_damaged(project: Project) -> None:
    (project.shared / "journal" / "commit-0123456789abcdef.json").write_text("{")


def journal_set_aside(project: Project) -> None:
    journal_damaged(project)
    project.vmrag("sync")


def embeddings_foreign(project: Project) -> None:
    (project.shared / "embeddings.sqlite").write_bytes(b"no database")


def embeddings_damaged(project: Project) -> None:
    for number in range(3):
        text = "\n\n".join(f"Paragraph {number} {place} " + "of many words " * 30 for place in range(100))
        project.put(f"large-{number}.md", text)
    path = project.shared / "embeddings.sqlite"
    content = path.read_bytes()
    middle = len(content) // 2 // 4096 * 4096
    path.write_bytes(content[:middle] + b"\xff" * 4096 + content[middle + 4096 :])


def spare(project: Project) -> Path:
    return view_of(project, json.loads(project.git("show", "feature:.dolt-version"))["dolt_commit"])


def truncated(segment: Path) -> None:
    (segment / "words-1.idx").write_bytes(b"SQLite")


def truncated_spare(project: Project) -> None:
    """A segment that the bound index does not count."""
    [segment, *_] = (segment for segment in segments_of(spare(project)) if segment not in segments_of(view_of(project)))
    truncated(segment)


def truncated_view_of_a_spare(project: Project) -> None:
    os.truncate(spare(project) / "view", 10)


def index_with_a_flipped_bit(project: Project) -> None:
    segment = segments_of(view_of(project))[0]
    flip(segment / "vectors-1.i8", 10, 3)
    mark_verified(segment)


def view_with_a_flipped_bit(project: Project) -> None:
    flip(view_of(project) / "view", 10, 3)
    mark_verified(view_of(project))


def truncated_bound(project: Project) -> None:
    truncated(segments_of(view_of(project))[0])


def truncated_bound_view(project: Project) -> None:
    os.truncate(view_of(project) / "view", 10)


def manifest_scribbled_on(project: Project) -> None:
    """Keep the size, so that only reading shows the damage."""
    path = segments_of(view_of(project))[0] / "manifest.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[:PAGE_SIZE] + b"\xff" * (len(content) - PAGE_SIZE))


def working_copy_truncated(project: Project) -> None:
    """Truncate a segment that only the working copy uses."""
    project.put("draft.md", "A draft.")
    segments = {segment for view in list_folders(project.shared / "views") for segment in segments_of(view)}
    [segment, *_] = (segment for segment in segments_of(copy_of(project)) if segment not in segments)
    truncated(segment)


def working_copy_with_a_truncated_view(project: Project) -> None:
    project.put("draft.md", "A draft.")
    os.truncate(copy_of(project) / "view", 10)


def chroma_truncated(project: Project) -> None:
    if MISSING:
        pytest.skip(MISSING)
    store = project.ask("path", "chroma", env={"VMRAG_INDEX_CHROMA": "follow"})["chroma"]
    (Path(store) / "held").write_bytes(b"")


def checked_out_without_hooks(project: Project) -> None:
    project.git("checkout", "-q", "feature", env=QUIETLY)


def background_failed(project: Project) -> None:
    checked_out_without_hooks(project)
    WatchedProgress(background.get_sync_job(plumbing.locate_work_tree(project.top)), print).record_failure(
        "no room on the disk"
    )


def branch_elsewhere(project: Project) -> None:
    """Move the branch as with `auto_pin: false`."""
    project.put("note.md", "A note.")
    project.git("config", "vmrag.auto-pin", "false")
    project.vmrag("commit", "-m", "note")


HOLDING = """
import sys, time
from pathlib import Path
from vmrag_link import locks
with locks.hold_exclusive(Path(sys.argv[1]), purpose="try something", timeout=5):
    print("held", flush=True)
    time.sleep(60)
"""


def holding(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDING, lock], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def holder_killed(project: Project) -> None:
    ended(holding(project.own / "workspace.lock"))
    assert (project.own / "workspace.lock.holder").exists()


def aged(path: Path) -> Path:
    os.utime(path, (time.time() - LONG_AGO,) * 2)
    return path


def git_killed(project: Project) -> None:
    (project.own.parent / "index.lock").touch()
    aged(project.own.parent / "index.lock")


def work_tree_removed(project: Project) -> None:
    """By hand, with its lease on `feature`."""
    project.git("worktree", "add", "-q", "../linked", "feature")
    linked = Project(project.top.parent / "linked")
    linked.put("draft.md", "A draft.")
    shutil.rmtree(linked.top)


def lease_of_a_gone_work_tree(project: Project) -> None:
    work_tree_removed(project)
    project.git("worktree", "prune")


def temporaries_left(project: Project) -> None:
    aged(project.write(f".git/vmrag/.applied.{'a' * 12}.tmp", "x"))
    (project.shared / "views" / ".building-0123").mkdir()
    (project.shared / "segments" / ".building-0123").mkdir()


def many_links_queued(project: Project) -> None:
    head = project.git("rev-parse", "HEAD")
    (project.shared / "links.queue").write_text(f"commit {head} main\n" * 12_000)


def remote_lost(project: Project) -> None:
    bare = project.top.parent / "remote.git"
    project.git("init", "-q", "--bare", str(bare))
    project.git("remote", "add", "origin", str(bare))
    project.vmrag("push")
    subprocess.run(["git", "-C", bare, "update-ref", "-d", "refs/vmrag/data"], check=True)


def pushed_to_a_remote(project: Project) -> Path:
    """Return the hub."""
    hub = project.top.parent / "remote.git"
    project.git("init", "-q", "--bare", str(hub))
    project.git("remote", "add", "origin", str(hub))
    project.vmrag("push")
    return hub


def remote_object_emptied(project: Project) -> None:
    pushed_to_a_remote(project)
    for path in (project.shared / "remotes.git" / "objects").glob("??/*"):
        path.chmod(0o600)
        path.write_bytes(b"")


def remote_repository_without_configuration(project: Project) -> None:
    pushed_to_a_remote(project)
    (project.shared / "remotes.git" / "config.own").unlink()


def remote_copy_with_a_flipped_bit(project: Project) -> None:
    pushed_to_a_remote(project)
    [copy] = (project.shared / "remotes").glob("*/remote.doltlite")
    flip(copy, copy.stat().st_size // 2, 3)


def index_of_sources_truncated(project: Project) -> None:
    with (project.top / ".vmrag.yaml").open("a") as settings:
        settings.write("sources:\n  - collection: code\n    paths: [docs]\n")
    project.vmrag("query", "rest")
    [index] = list_folders(project.shared / "sources")
    os.truncate(index / "view", 10)


def local_index_truncated(project: Project) -> None:
    project.git("config", "vmrag.system.versioned", "false")
    with terminal.opened(project) as ws:
        store_thought(ws, NewThought("A thought of rest.", 1, 2, session_id="plan"))
        similar_thoughts(ws, "rest", k=3)
    [index] = list_folders(project.shared / "local" / "index")
    os.truncate(index / "view", 10)


def open_to_others(project: Project) -> None:
    project.shared.chmod(0o755)


def closed_although_shared(project: Project) -> None:
    project.git("config", "core.sharedRepository", "group")


class Broken(NamedTuple):
    """A function that breaks the project, the expected finding, and whether the printed command and
    `--fix` repair it.
    """

    breaks: Callable[[Project], None]
    code: str
    level: str
    printed: bool = True
    fixed: bool = True


BROKEN = [
    Broken(uninstalled, "HOOKS_NOT_INSTALLED", "note", fixed=False),
    Broken(hook_missing, "HOOK_MISSING", "note"),
    Broken(hook_of_an_older_version, "HOOK_OUTDATED", "warning"),
    Broken(hook_edited, "HOOK_OUTDATED", "warning"),
    Broken(hook_not_executable, "HOOK_NOT_EXECUTABLE", "warning"),
    Broken(chained_not_executable, "CHAINED_NOT_EXECUTABLE", "warning", fixed=False),
    Broken(hook_written_over_by_its_own_tool, "HOOK_REPLACED", "warning"),
    Broken(hooks_path_outside, "HOOKS_PATH_OUTSIDE", "warning", fixed=False),
    Broken(hooks_path_no_directory, "HOOKS_PATH_OUTSIDE", "warning", fixed=False),
    Broken(hooks_path_tracked, "HOOKS_PATH_TRACKED", "warning", fixed=False),
    Broken(hooks_path_missing, "HOOKS_PATH_MISSING", "warning", fixed=False),
    Broken(husky, "HOOKS_BYPASSED", "warning", fixed=False),
    Broken(husky_again, "HOOK_REPLACED", "warning"),
    Broken(hooks_in_both_places, "HOOKS_TWICE", "warning"),
    Broken(hooks_where_older_gits_run_none, "HOOKS_MISPLACED", "warning"),
    Broken(interpreter_not_recorded, "INTERPRETER_MISSING", "warning"),
    Broken(interpreter_gone, "INTERPRETER_MISSING", "warning"),
    Broken(interpreter_without_us, "INTERPRETER_BROKEN", "error"),
    Broken(interpreter_that_is_no_program, "INTERPRETER_BROKEN", "error"),
    Broken(interpreter_of_another_version, "INTERPRETER_OTHER_VERSION", "warning"),
    Broken(driver_forgotten, "DRIVER_MISSING", "warning"),
    Broken(driver_without_command, "DRIVER_INCOMPLETE", "error"),
    Broken(driver_of_a_gone_interpreter, "DRIVER_BROKEN", "warning"),
    Broken(driver_of_another_version, "DRIVER_OUTDATED", "warning"),
    Broken(attributes_gone, "ATTRIBUTES_MISSING", "warning", fixed=False),
    Broken(attributes_in_this_clone_only, "ATTRIBUTES_MISSING", "warning", fixed=False),
    Broken(attributes_overridden, "ATTRIBUTES_OVERRIDDEN", "warning", printed=False, fixed=False),
    Broken(attributes_not_staged, "ATTRIBUTES_NOT_STAGED", "warning", fixed=False),
    Broken(attributes_ignored, "ATTRIBUTES_NOT_STAGED", "warning", fixed=False),
    Broken(setting_misspelled, "CONFIG_IGNORED", "warning", fixed=False),
    Broken(setting_not_trusted, "CONFIG_IGNORED", "warning", fixed=False),
    Broken(pin_malformed, "PIN_MALFORMED", "error", fixed=False),
    Broken(pin_malformed_everywhere, "PIN_MALFORMED", "error", fixed=False),
    Broken(pin_gone, "PIN_NOT_THERE", "warning", fixed=False),
    Broken(pin_not_staged, "PIN_NOT_STAGED", "warning", fixed=False),
    Broken(uncommitted_unnoted, "UNCOMMITTED_NOTE", "warning"),
    Broken(uncommitted_noted_in_vain, "UNCOMMITTED_NOTE", "note"),
    Broken(commit_killed, "COMMIT_UNFINISHED", "warning"),
    Broken(commit_killed_on_another_branch, "COMMIT_UNFINISHED_ELSEWHERE", "warning", fixed=False),
    Broken(replay_killed, "REPLAY_UNFINISHED", "warning"),
    Broken(replay_killed_on_another_branch, "REPLAY_UNFINISHED_ELSEWHERE", "warning", fixed=False),
    Broken(journal_damaged, "JOURNAL_DAMAGED", "warning"),
    Broken(journal_set_aside, "JOURNAL_SET_ASIDE", "note", fixed=False),
    Broken(remote_lost, "REMOTE_LOST", "error"),
    Broken(remote_object_emptied, "REMOTE_COPY_DAMAGED", "warning"),
    Broken(remote_repository_without_configuration, "REMOTE_COPY_DAMAGED", "warning"),
    Broken(remote_copy_with_a_flipped_bit, "REMOTE_COPY_DAMAGED", "warning"),
    Broken(index_of_sources_truncated, "SOURCES_DAMAGED", "warning"),
    Broken(local_index_truncated, "LOCAL_INDEX_DAMAGED", "warning"),
    Broken(embeddings_foreign, "EMBEDDINGS_DAMAGED", "warning"),
    Broken(embeddings_damaged, "EMBEDDINGS_DAMAGED", "warning"),
    Broken(truncated_spare, "SNAPSHOT_DAMAGED", "warning"),
    Broken(truncated_view_of_a_spare, "SNAPSHOT_DAMAGED", "warning"),
    Broken(index_with_a_flipped_bit, "INDEX_DAMAGED", "error"),
    Broken(view_with_a_flipped_bit, "INDEX_DAMAGED", "error"),
    Broken(truncated_bound, "NOT_SYNCED", "warning"),
    Broken(truncated_bound_view, "NOT_SYNCED", "warning"),
    Broken(manifest_scribbled_on, "NOT_SYNCED", "warning"),
    Broken(working_copy_truncated, "WORKING_COPY_DAMAGED", "warning"),
    Broken(working_copy_with_a_truncated_view, "WORKING_COPY_DAMAGED", "warning"),
    Broken(chroma_truncated, "CHROMA_DAMAGED", "warning"),
    Broken(checked_out_without_hooks, "NOT_SYNCED", "warning"),
    Broken(background_failed, "BACKGROUND_FAILED", "warning"),
    Broken(branch_elsewhere, "KB_ELSEWHERE", "warning", fixed=False),
    Broken(open_to_others, "OPEN_TO_OTHERS", "warning"),
    Broken(closed_although_shared, "NOT_SHARED", "note", fixed=False),
    Broken(holder_killed, "HOLDER_STALE", "note"),
    Broken(git_killed, "GIT_LOCK_STALE", "warning", printed=False, fixed=False),
    Broken(work_tree_removed, "WORK_TREE_GONE", "note", fixed=False),
    Broken(lease_of_a_gone_work_tree, "LEASE_STALE", "note"),
    Broken(temporaries_left, "LEFTOVERS", "note"),
    Broken(many_links_queued, "LINKS_WAITING", "note"),
]


def every(broken: Broken) -> str:
    return broken.breaks.__name__


@pytest.mark.parametrize("broken", BROKEN, ids=every)
@pytest.mark.sample(12)
def test_doctor_finds_broken_states_and_prints_the_repair(project, tmp_path, broken):
    broken.breaks(project)
    finding = findings(project)[broken.code]
    assert finding["level"] == broken.level
    if broken.printed:
        obeyed(project, finding["fix"])
        assert broken.code not in findings(project)
    else:
        commands = hints.list_commands(finding["fix"])
        assert not any(command.startswith(("vmrag ", "git ", "rm ")) for command in commands)


@pytest.mark.parametrize("broken", one_of_each(BROKEN, lambda case: case.code if case.fixed else case.level), ids=every)
@pytest.mark.sample(15)
def test_fix_repairs_safe_problems_and_leaves_the_rest(project, broken):
    broken.breaks(project)
    before = findings(project)
    report = examined(project, "--fix")
    mended = {repair["finding"]["code"]: repair["done"] for repair in report["mended"]}
    codes = {finding["code"] for finding in findings_of(report)}
    assert (broken.code in mended, broken.code in codes) == (broken.fixed, not broken.fixed)
    assert mended.keys() | codes <= before.keys() | {"JOURNAL_SET_ASIDE"}
    assert all(mended.values())
    assert findings(project).keys() == codes


def test_fix_fetches_a_damaged_copy_of_a_remote_again(project):
    remote_copy_with_a_flipped_bit(project)
    [repair] = examined(project, "--fix")["mended"]
    assert repair["done"] == "removed it, and fetched it again."
    assert list((project.shared / "remotes").glob("*/remote.doltlite"))


def test_declared_repairs_match_the_tested_cases():
    declared = {code for topic in TOPICS for code in topic.repairs}
    elsewhere = {chroma_server.LACKS, chroma_server.CHANGED, "ROOT_MISPLACED"}  # the last one needs Dolt
    assert declared == {broken.code for broken in BROKEN if broken.fixed} | elsewhere
    assert (*operation.TOPICS, *hooks_doctor.TOPICS) == TOPICS
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)


RISKY = (
    commit_killed,
    replay_killed,
    uncommitted_unnoted,
    working_copy_truncated,
    truncated_bound,
    checked_out_without_hooks,
    lease_of_a_gone_work_tree,
    temporaries_left,
)


@pytest.mark.parametrize("breaks", RISKY, ids=lambda breaks: breaks.__name__)
@pytest.mark.sample(2)
def test_fix_loses_no_uncommitted_document(project, tmp_path, breaks):
    project.put("precious.md", "Written nowhere else.")
    breaks(project)
    project.vmrag("doctor", "--fix", code=None)
    project.git("switch", "-q", "main")
    assert project.texts()["precious.md"] == "Written nowhere else."
    assert_whole(project, tmp_path / "scratch")


# -- one after the other


def test_several_problems_are_found_and_repaired_at_once(project):
    hook_missing(project)
    interpreter_gone(project)
    embeddings_foreign(project)
    truncated_spare(project)
    holder_killed(project)
    checked_out_without_hooks(project)
    result = project.vmrag("doctor", code=1)
    assert "post-merge" in result.out
    assert "/gone/bin/python" in result.out
    assert result.out.splitlines()[-1] == f"Checked {len(TOPICS)} topics: 7 findings."
    result = project.vmrag("doctor", "--fix")
    assert result.out.count("fixed  ") == 6
    assert result.out.splitlines()[-1] == f"Checked {len(TOPICS)} topics: 1 finding."
    assert project.status()["state"] == "in_sync"
    assert not project.vmrag("doctor", "--quiet").out


def test_hook_of_a_newer_version_is_left_as_it_is(project):
    rewritten(hook(project), f"vmrag-hook {shims.VERSION} ", "vmrag-hook 999 ")
    before = hook(project).read_bytes()
    finding = findings(project)["HOOK_NEWER"]
    assert "pip install --upgrade vmrag-link" in finding["fix"]
    hook_missing_too = hook(project, "post-commit")
    hook_missing_too.unlink()
    interpreter_gone(project)
    assert {finding["code"] for finding in findings_of(examined(project, "--fix"))} == {"HOOK_NEWER"}
    assert hook(project).read_bytes() == before
    assert hook_missing_too.exists()


def test_hook_that_cannot_be_restored_safely_is_left_to_the_user(project):
    with_chained_hook(project)
    script(hook(project), "echo yet another tool's")
    assert findings(project, "--fix").keys() == {"HOOK_BLOCKED"}
    assert "yet another" in hook(project).read_text()
    fix = findings(project)["HOOK_BLOCKED"]["fix"]
    [command] = hints.list_commands(fix)
    subprocess.run(["sh", "-ec", command], check=True)
    assert findings(project, "--fix") == {}
    assert "yet another" in hook(project, "post-merge.vmrag-chained").read_text()


def test_hooks_are_repaired_for_the_worktrees_of_their_installation(project):
    project.vmrag("uninstall")
    project.git("worktree", "add", "-q", "../linked", "feature")
    linked = Project(project.top.parent / "linked")
    linked.vmrag("install", "--worktree")
    linked.vmrag("sync")
    assert findings(linked) == {}
    assert hints.list_commands(findings(project)["HOOKS_ELSEWHERE"]["fix"]) == ["vmrag install --worktree"]
    hook_edited(project)
    assert hints.list_commands(findings(linked)["HOOK_OUTDATED"]["fix"]) == ["vmrag install --worktree"]
    assert findings(linked, "--fix") == {}
    assert findings(project).keys() == {"HOOKS_ELSEWHERE"}
    project.vmrag("install", "--worktree")
    assert findings(project) == {}


def test_hooks_forced_into_an_outside_folder_are_repaired_there(project):
    project.vmrag("uninstall")
    hooks_path_outside(project)
    project.vmrag("install", "--force")
    for mend in (lambda fix: obeyed(project, fix), lambda _: project.vmrag("doctor", "--fix")):
        (project.top.parent / "global" / "post-merge").chmod(0o644)
        result = findings(project)
        assert result.keys() == {"HOOK_NOT_EXECUTABLE"}
        mend(result["HOOK_NOT_EXECUTABLE"]["fix"])
        assert findings(project) == {}


def test_hooks_that_were_not_chosen_are_not_missed(project):
    project.vmrag("uninstall")
    project.vmrag("install", "--hooks", "post-checkout,post-merge")
    assert findings(project) == {}
    hook(project).unlink()
    for mend in (lambda fix: obeyed(project, fix), lambda _: project.vmrag("doctor", "--fix")):
        hook(project).unlink(missing_ok=True)
        result = findings(project)
        assert result.keys() == {"HOOK_MISSING"}
        mend(result["HOOK_MISSING"]["fix"])
        assert findings(project) == {}
        assert not hook(project, "pre-push").exists()


def test_hooks_forced_into_tracked_files_are_repaired_there(project):
    hooks_path_tracked(project)
    project.vmrag("install", "--force")
    (project.top / ".githooks" / "post-merge").chmod(0o644)
    assert hints.list_commands(findings(project)["HOOK_NOT_EXECUTABLE"]["fix"]) == ["vmrag install --force"]
    project.vmrag("doctor", "--fix")
    assert findings(project) == {}


def test_doctor_names_path_of_chained_hook_without_execute_bit(project):
    project.vmrag("uninstall")
    script(hook(project), 'echo "${0##*/}"')
    project.vmrag("install")
    assert findings(project) == {}
    hook(project, ".vmrag/post-merge").chmod(0o644)
    finding = findings(project)["CHAINED_NOT_EXECUTABLE"]
    assert finding["subject"].endswith(".vmrag/post-merge")
    obeyed(project, finding["fix"])
    assert findings(project) == {}


def test_doctor_misses_no_hooks_that_pre_commit_runs(project):
    project.vmrag("uninstall")
    project.write(".pre-commit-config.yaml", "repos:\n- repo: x\n  hooks:\n  - id: vmrag-sync\n")
    assert "HOOKS_NOT_INSTALLED" not in findings(project)


def test_doctor_reports_pin_conflict_with_the_command_to_resolve_it(project):
    project.put("rest.md", "# Rest\n\nAlways rest.\n")
    project.vmrag("commit", "-m", "rest")
    project.git("commit", "-q", "-m", "rest")
    assert project.run("merge", "feature").returncode == 1
    result = findings(project)
    assert result["PIN_IN_CONFLICT"]["fix"] == "run 'vmrag resolve' to resolve the conflicts"
    project.vmrag("resolve", "--all-ours", code=None)


def test_missing_revision_is_named(project):
    rewritten(project.top / ".dolt-version", project.pinned, "0" * 40)
    project.git("add", ".dolt-version")
    result = findings(project)
    assert result["PIN_REVISION_MISSING"]["subject"] == "0" * 40
    assert result["PIN_REVISION_MISSING"]["level"] == "error"
    assert result["PIN_REVISION_MISSING"]["fix"] == "run 'vmrag fetch' to fetch the revision"


# -- half of it broken


def knowledge_base(project: Project) -> Path:
    return project.shared / "kb" / "kb.doltlite"


def test_settings_that_cannot_be_read_hide_nothing_else(project):
    project.write(".vmrag.yaml", "index:\n\tkeep_mb: 4\n")
    hook_missing(project)
    embeddings_foreign(project)
    pin_not_staged_by_hand = project.write(".dolt-version", "{")
    result = findings(project)
    assert result.keys() == {"CONFIG_INVALID", "HOOK_MISSING", "EMBEDDINGS_DAMAGED", "PIN_MALFORMED"}
    assert ".vmrag.yaml, line 2" in result["CONFIG_INVALID"]["message"]
    assert findings(project, "--fix").keys() == {"CONFIG_INVALID", "PIN_MALFORMED"}
    assert pin_not_staged_by_hand.read_text() == "{"


@pytest.mark.parametrize("content", [b"", b"no database", bytes(8192)], ids=["empty", "text", "zeros"])
def test_invalid_knowledge_base_is_kept_and_hides_no_other_finding(project, content):
    knowledge_base(project).write_bytes(content)
    hook_missing(project)
    result = findings(project)
    assert result["DATABASE_ERROR"]["level"] == "error"
    assert result["DATABASE_ERROR"]["fix"]
    assert "HOOK_MISSING" in result
    assert findings(project, "--fix").keys() == {"DATABASE_ERROR"}
    assert knowledge_base(project).read_bytes() == content


@pytest.mark.parametrize("compacted", [True, False])
def test_damage_is_found_before_the_damaged_part_is_read(project, compacted):
    project.record("a long text", long="many words " * 500)
    if compacted:
        project.vmrag("gc", "--apply")
    content = bytearray(knowledge_base(project).read_bytes())
    place = content.rindex(b"many words many words")
    content[place : place + 8] = bytes(8)
    knowledge_base(project).write_bytes(content)
    code = "KB_DAMAGED" if compacted else "DATABASE_ERROR"  # what is not compacted is checked when it is opened
    finding = findings(project)[code]
    assert (finding["level"], "is damaged" in finding["message"]) == ("error", True)
    assert code in findings(project, "--fix")
    assert knowledge_base(project).read_bytes() == content


def test_knowledge_base_of_a_newer_program_is_named(project):
    result = run_patched(
        project,
        "import vmrag_link.engines.doltlite.schema as m; m.SCHEMA_VERSION = 0",
        "doctor",
        "--json",
    )
    assert "SCHEMA_TOO_NEW" in result.out


def test_doctor_distinguishes_clone_from_uninitialized_repository(project, tmp_path):
    project.git("clone", "-q", str(project.top), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    assert findings(clone)["NOT_INITIALIZED"]["level"] == "error"
    assert clone.vmrag("doctor", code=1)
    (tmp_path / "new").mkdir()
    new = Project(tmp_path / "new")
    new.git("init", "-q")
    assert findings(new) == {}


def test_doctor_outside_a_repository_reports_no_repository(tmp_path, project):
    result = Project(tmp_path).vmrag("doctor", "--json", code=2)
    assert result.error["code"] == "GIT_REPO_NOT_FOUND"
    assert result.error["hint"]


# -- the machine


def test_vmrag_that_is_not_on_the_path_is_a_note(project, monkeypatch):
    monkeypatch.setenv("PATH", os.defpath)
    found_values = findings(project)
    assert found_values["PATH_WITHOUT_VMRAG"]["level"] == "note"
    [command] = hints.list_commands(found_values["PATH_WITHOUT_VMRAG"]["fix"])
    result = subprocess.run(
        ["sh", "-ec", f"{command}; vmrag doctor"],
        cwd=project.top,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 finding" in result.stdout


def test_doctor_notes_a_system_that_cannot_confine_conversion(project, monkeypatch):
    monkeypatch.setattr(serving, "list_missing_limits", lambda: ["Landlock"])
    finding = findings(project)["CONVERSION_LESS_CONFINED"]
    assert finding["level"] == "note"
    assert "without Landlock, which this system lacks" in finding["message"]


def test_different_vmrag_version_on_the_path_is_a_warning(project, tmp_path, monkeypatch):
    script(tmp_path / "bin" / "vmrag", "echo vmrag, version 0.0.1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    finding = findings(project)["PATH_OTHER_VERSION"]
    assert "0.0.1" in finding["message"]
    assert finding["level"] == "warning"


@pytest.mark.parametrize("setting", ["follow", "wait"])
def test_doctor_warns_once_if_a_wanted_store_needs_chromadb(project, monkeypatch, setting):
    monkeypatch.setitem(sys.modules, "chromadb", None)
    monkeypatch.setenv("VMRAG_INDEX_CHROMA", setting)
    result = findings(project)
    assert {name for name, finding in result.items() if "chromadb" in finding["message"]} == {"INDEX_EXTRA_MISSING"}
    assert result["INDEX_EXTRA_MISSING"]["level"] == "warning"
    assert result["INDEX_EXTRA_MISSING"]["fix"].endswith('-m pip install "vmrag-link[chroma]"\' to install it')


@pytest.mark.parametrize("setting", ["auto", "off"])
def test_doctor_does_not_name_chromadb_if_no_store_is_wanted(project, monkeypatch, setting):
    monkeypatch.setitem(sys.modules, "chromadb", None)
    monkeypatch.setenv("VMRAG_INDEX_CHROMA", setting)
    assert "INDEX_EXTRA_MISSING" not in findings(project)


def test_doctor_suggests_supported_chromadb_version(project, tmp_path, monkeypatch):
    (tmp_path / "chromadb-1.6.0.dist-info").mkdir()
    (tmp_path / "chromadb").mkdir()
    (tmp_path / "chromadb" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "chromadb", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("VMRAG_INDEX_CHROMA", "follow")
    finding = findings(project)["INDEX_EXTRA_MISSING"]
    assert finding["level"] == "warning"
    assert "chromadb 1.6.0 is installed" in finding["message"]
    [command] = hints.list_commands(finding["fix"])
    assert command.endswith(f'-m pip install "{bindings.SUPPORTED}"')


def test_outdated_git_is_an_error(project, tmp_path, monkeypatch):
    real = shutil.which("git")
    script_body = 'case "$*" in *" version") echo git version 2.30.1 ;; *) exec REAL "$@" ;; esac'
    script(tmp_path / "bin" / "git", script_body.replace("REAL", str(real)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    finding = findings(project)["GIT_TOO_OLD"]
    assert "2.30" in finding["message"]
    assert finding["level"] == "error"


def test_doctor_names_lock_holder_purpose_and_duration(project):
    process = holding(project.own / "workspace.lock")
    try:
        aged(project.own / "workspace.lock.holder")
        finding = findings(project)["LOCK_HELD"]
    finally:
        ended(process)
    assert finding["level"] == "warning"
    assert f"process {process.pid} has held workspace.lock for 10000 s, to try something." in finding["message"]
    assert hints.list_commands(finding["fix"]) == [f"ps -fp {process.pid}"]


def test_lock_that_is_held_is_not_taken_away(project):
    process = holding(project.own / "workspace.lock")
    try:
        time.sleep(1.1)
        assert findings(project, "--fix")["LOCK_HELD"]["level"] == "note"
        assert (project.own / "workspace.lock.holder").read_text() == f"{process.pid} try something"
    finally:
        ended(process)


def test_doctor_lists_read_only_paths(project):
    probe = subprocess.run([*WITHOUT_RIGHTS, "true"], capture_output=True, check=False)
    if probe.returncode or sys.platform != "linux":
        pytest.skip("rights cannot be dropped here")
    with read_only(project.shared):
        result = start(project, "doctor", "--json", program=(*WITHOUT_RIGHTS, *VMRAG)).done()
    findings = [finding for finding in findings_of(json.loads(result.out)) if finding["code"] == "READ_ONLY"]
    assert {Path(finding["subject"]).name for finding in findings} >= {
        "vmrag",
        "kb",
        "kb.doltlite",
        "views",
        "segments",
    }
    commands = [hints.list_commands(finding["fix"]) for finding in findings]
    assert all(len(listed) == 1 and listed[0].startswith("chmod u+w ") for listed in commands)
    assert result.code == 1


def test_disk_without_room_for_an_index_is_named(project):
    with small_disk(project.top / ".git" / "vmrag", kilobytes=40_000) as fill:
        fill(1_000_000)
        assert findings(project)["DISK_FULL"]["level"] == "error"
        (project.shared / "filler").unlink()
        assert "DISK_FULL" not in findings(project)

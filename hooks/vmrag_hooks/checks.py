"""The hooks `pre-commit`, `pre-merge-commit` and `pre-push`.

Their findings can stop git. If a check fails to run, the commit continues. A push stops if it
publishes a new pin, because others could not fetch the pinned revision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from vmrag_hooks import shims
from vmrag_hooks.boundary import ANSWER_SECONDS, HookNotes, print_line, run_guarded
from vmrag_link import hints
from vmrag_link.errors import LockError, RemoteUnreachable, ServerUnreachable
from vmrag_link.git import plumbing
from vmrag_link.ops.hook_checks import commit_check, push_check
from vmrag_link.ops.hook_checks.commit_check import CommitFinding
from vmrag_link.ops.hook_checks.push_check import Push, PushedRef
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace import Workspace


def main(hook: str, argv: Sequence[str]) -> int:
    """Run a check, and return the exit code of the hook."""
    if hook == "pre-push":
        return int(_is_push_stopped(_parse_push(sys.stdin.read(), *argv)))
    blocked = False

    def look() -> None:
        nonlocal blocked
        blocked = check_commit(find_index_file(*argv[:1]))

    run_guarded(look)
    return int(blocked)


def _is_push_stopped(push: Push) -> bool:
    blocked = False
    new: Collection[bytes] = (b"",)  # if the check fails, all pins count as new

    def look() -> None:
        nonlocal blocked
        blocked = check_push(push)

    def look_for_new_pins() -> None:
        nonlocal new
        new = push_check.list_new_pins(plumbing.locate_work_tree(Path.cwd()), push)

    if run_guarded(look):
        return blocked
    run_guarded(look_for_new_pins)
    if new:
        print_line(shims.UNCHECKED_PUSH)
    return bool(new)


def find_index_file(index_path: str = "") -> Path | None:
    """Return the index that git commits from, or None if git has set none.

    GIT_INDEX_FILE is relative to the top of the work tree.
    """
    return Path(index_path).resolve() if index_path else None


def _parse_push(lines: str, remote: str, url: str, mirror: str = "") -> Push:
    """Parse a push: the arguments of the hook, and `lines` of its standard input, one for each ref.

    The shim of vmrag adds `mirror` for `--mirror`.
    """
    refs = [
        line.rsplit(" ", 3) for line in lines.split("\n") if line
    ]  # a local ref such as `HEAD^{/a word}` has spaces
    moves = tuple(PushedRef(local, _parse_commit(tip), name, _parse_commit(old)) for local, tip, name, old in refs)
    return Push(moves, remote, url, mirror=bool(mirror))


def _parse_commit(name: str) -> str | None:
    """Return the name of a commit, or None for zeros, by which git means a missing one."""
    return name if name.strip("0") else None


def check_commit(index_file: Path | None) -> bool:
    """Commit and pin what agents wrote, if the settings allow it, and return whether the staged pin
    stops the commit.
    """
    notes = HookNotes()
    workspace = Workspace.open(Path.cwd(), notes, answer_seconds=ANSWER_SECONDS, index_file=index_file)
    try:
        return _is_blocked(workspace, lambda: _check_commit(workspace))
    finally:
        for note in notes.select_notes():
            print_line(note)


def _check_commit(workspace: Workspace) -> Sequence[CommitFinding]:
    report = commit_check.check_commit(workspace)
    if report.committed:
        sentence = f"committed the documents as {report.committed[:7]}"
        again = f"{sentence} and staged {PIN_NAME}; run 'git commit' again if git reports 'nothing to commit'"
        print_line(again if report.alone else f"{sentence}; this commit pins them")
    return report.findings


def check_push(push: Push) -> bool:
    """Push the revisions that the pushed commits pin, and return whether their pins stop the push:
    they are wrong, or their revisions could not be pushed.
    """
    workspace = Workspace.open(Path.cwd(), HookNotes(), answer_seconds=ANSWER_SECONDS)
    try:
        return _is_blocked(workspace, lambda: _check_push(workspace, push))
    except (LockError, RemoteUnreachable, ServerUnreachable) as error:
        if workspace.config.hooks.on_unreachable != "warn":
            raise
        print_line(error.sentence)
        return False


def _check_push(workspace: Workspace, push: Push) -> Sequence[CommitFinding]:
    report = push_check.check_push(workspace, push)
    for where, pushed in report.sent:
        if not pushed.empty:
            print_line(f"pushed the documents that these commits pin to {where}")
    return report.findings


def _is_blocked(workspace: Workspace, look: Callable[[], Sequence[CommitFinding]]) -> bool:
    try:
        findings = look()
    finally:
        workspace.close()
    blocking = [finding for finding in findings if finding.blocks]
    for finding in blocking or findings[:1]:
        print_line(hints.append_to(finding.message, finding.hint))
    return bool(blocking)

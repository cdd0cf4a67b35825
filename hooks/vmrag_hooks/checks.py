"""The hooks `pre-commit`, `pre-merge-commit` and `pre-push`.

Their findings can stop git. If a check fails to run, the commit continues. A push stops if it
publishes a new pin, because others could not fetch the pinned revision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from vmrag_hooks import shims
from vmrag_hooks.boundary import ANSWER_SECONDS, HookMessages, print_line, run_guarded
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
    results: list[bool] = []
    run_guarded(lambda: results.append(check_commit(find_index_file(*argv[:1]))))
    return int(any(results))  # empty if the check failed to run


def _is_push_stopped(push: Push) -> bool:
    results: list[bool] = []
    if run_guarded(lambda: results.append(check_push(push))):
        return results[0]
    new_pins: list[Collection[bytes]] = []
    run_guarded(lambda: new_pins.append(push_check.list_new_pins(plumbing.locate_work_tree(Path.cwd()), push)))
    if new_pins and not new_pins[0]:
        return False
    print_line(shims.UNCHECKED_PUSH)
    return True


def find_index_file(index_path: str = "") -> Path | None:
    """Return the index that git commits from, or None if git has set none.

    GIT_INDEX_FILE is relative to the top of the work tree.
    """
    return Path(index_path).resolve() if index_path else None


def _parse_push(lines: str, remote: str, url: str, mirror: str = "") -> Push:
    """Parse a push: the arguments of the hook, and `lines` of its standard input, one for each ref.

    The shim of vmrag adds `mirror` for `--mirror`.
    """
    # A local ref such as `HEAD^{/a word}` has spaces.
    refs = [line.rsplit(" ", 3) for line in lines.split("\n") if line]
    moves = tuple(PushedRef(local, _parse_commit(tip), name, _parse_commit(old)) for local, tip, name, old in refs)
    return Push(moves, remote, url, mirror=bool(mirror))


def _parse_commit(name: str) -> str | None:
    """Return the name of a commit, or None for zeros, by which git means a missing one."""
    return name if name.strip("0") else None


def check_commit(index_file: Path | None) -> bool:
    """Commit and pin what agents wrote, if the settings allow it, and return whether the staged pin
    stops the commit.
    """
    messages = HookMessages()
    workspace = Workspace.open(Path.cwd(), messages, answer_seconds=ANSWER_SECONDS, index_file=index_file)
    try:
        return _is_blocked(workspace, lambda: _check_commit(workspace))
    finally:
        for message in messages.select_messages():
            print_line(message)


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
    workspace = Workspace.open(Path.cwd(), HookMessages(), answer_seconds=ANSWER_SECONDS)
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


def _is_blocked(workspace: Workspace, check: Callable[[], Sequence[CommitFinding]]) -> bool:
    """Run a check, print its findings, and return whether one of them stops git."""
    try:
        findings = check()
    finally:
        workspace.close()
    blocking = [finding for finding in findings if finding.blocks]
    for finding in blocking or findings[:1]:
        print_line(hints.append_to(finding.message, finding.hint))
    return bool(blocking)

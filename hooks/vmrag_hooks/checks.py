"""`pre-commit`, `pre-merge-commit` and `pre-push`: what they find may stop git; that we cannot look never does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from vmrag_hooks.run import Notes, guarded, say
from vmrag_link.ops import commit_check, push_check
from vmrag_link.ops.commit_check import Finding
from vmrag_link.workspace import Workspace


def main(hook: str, argv: Sequence[str]) -> int:
    """The exit code of the hook."""
    blocked = False

    def look() -> None:
        nonlocal blocked
        blocked = before_push(sys.stdin.read()) if hook == "pre-push" else before_commit(index_of(argv))

    guarded(look)
    return int(blocked)


def index_of(argv: Sequence[str]) -> Path | None:
    """The index that git commits from, as its hooks are told by GIT_INDEX_FILE; relative to the top of the work tree."""
    return Path(argv[0]).resolve() if argv and argv[0] else None


def before_commit(index_file: Path | None) -> bool:
    """Whether the pin that is to be committed stops the commit."""
    notes = Notes()
    workspace = Workspace.open(Path.cwd(), notes, index_file=index_file)
    try:
        return _looked(workspace, lambda: _commit(workspace))
    finally:
        for note in notes.to_say():
            say(note)


def _commit(workspace: Workspace) -> Sequence[Finding]:
    report = commit_check.check(workspace)
    if report.committed and not workspace.config.hooks.quiet:
        say(f"committed the documents as {report.committed[:7]}; this commit pins them")
    return report.findings


def before_push(refs: str) -> bool:
    """Whether a pin among the commits that are to be pushed stops the push. `refs`: git's lines on standard input."""
    workspace = Workspace.open(Path.cwd(), Notes())
    tips = [line.rsplit(" ", 3)[1] for line in refs.splitlines()]  # a local ref such as `HEAD^{/a word}` has spaces
    new = [tip for tip in tips if tip.strip("0")]
    return _looked(workspace, lambda: push_check.check(workspace, new) if workspace.initialized else ())


def _looked(workspace: Workspace, look: Callable[[], Sequence[Finding]]) -> bool:
    try:
        findings = look()
    finally:
        workspace.close()
    blocking = [each for each in findings if each.blocks]
    for each in blocking or ([] if workspace.config.hooks.quiet else findings[:1]):
        say(f"{each.message} ({each.hint})")
    return bool(blocking)

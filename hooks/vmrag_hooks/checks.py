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
        blocked = before_push(_tips(sys.stdin.read())) if hook == "pre-push" else before_commit(index_of(*argv[:1]))

    guarded(look)
    return int(blocked)


def index_of(told: str = "") -> Path | None:
    """The index that git commits from, as its hooks are told by GIT_INDEX_FILE, if at all; relative to the top of the work tree."""
    return Path(told).resolve() if told else None


def _tips(refs: str) -> list[str]:
    """The commits of the refs that git lists on a pre-push hook's standard input, but for deleted ones."""
    tips = [line.rsplit(" ", 3)[1] for line in refs.splitlines()]  # a local ref such as `HEAD^{/a word}` has spaces
    return [tip for tip in tips if tip.strip("0")]


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


def before_push(tips: Sequence[str]) -> bool:
    """Whether a pin among the commits that are to be pushed stops the push."""
    workspace = Workspace.open(Path.cwd(), Notes())
    return _looked(workspace, lambda: push_check.check(workspace, tips) if workspace.initialized else ())


def _looked(workspace: Workspace, look: Callable[[], Sequence[Finding]]) -> bool:
    try:
        findings = look()
    finally:
        workspace.close()
    blocking = [each for each in findings if each.blocks]
    for each in blocking or ([] if workspace.config.hooks.quiet else findings[:1]):
        say(f"{each.message} ({each.hint})")
    return bool(blocking)

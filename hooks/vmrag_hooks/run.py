"""What a hook does when its shim saw that something moved. A post-* hook says at most one line and never fails."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from vmrag_link.errors import VmragError
from vmrag_link.models import Changes
from vmrag_link.ops.recover import reconciled
from vmrag_link.progress import QUIET, Progress
from vmrag_link.workspace import Workspace


def run(name: str, arguments: Sequence[str], directory: Path, progress: Progress = QUIET) -> int:  # noqa: ARG001
    """post-checkout, post-merge, post-rewrite: bring knowledge base and index to the pin. Always 0: git must go on."""
    try:
        workspace = Workspace.open(directory, progress)
        try:
            _synchronise(workspace)
        finally:
            workspace.close()
    except VmragError as error:
        hint = f" ({error.hint})" if error.hint else ""
        _say(f"{error.message}{hint}")
    return 0


def _synchronise(workspace: Workspace) -> None:
    if not workspace.initialized or workspace.config.hooks.sync == "off":
        return
    report = reconciled(workspace)
    if report is None:
        return
    if report.state in ("malformed", "missing"):
        raise workspace.unusable(workspace.target())
    if workspace.config.hooks.quiet or report.state == "no_pin":
        return
    if report.from_ != report.to:
        _say(f"knowledge is at {(report.to or '')[:7]} ({_counted(report.plan)})")
    for note in report.notes:
        _say(note)


def _counted(changes: Changes) -> str:
    return f"+{changes.added} ~{changes.modified} -{changes.removed} documents"


def _say(line: str) -> None:
    sys.stderr.write(f"vmrag: {line}\n")

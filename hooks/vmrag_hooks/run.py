"""What a hook does when its shim saw that something moved: `python -m vmrag_hooks.run HOOK [ARGUMENT…]`.

Apart from the command line, because a checkout should not wait for a command-line library to load. A post-* hook says at most
one line and always ends with 0: git must go on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vmrag_link.errors import VmragError
from vmrag_link.models import Changes
from vmrag_link.ops.recover import reconciled
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

PATIENCE = 0.0
"""Seconds that git waits for a lock that somebody else holds; the next command goes on where the hook gave up."""


def main() -> int:
    """The outermost boundary of the hooks."""
    try:
        run(Path())
    except VmragError as error:
        _say(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
    except KeyboardInterrupt:
        _say("interrupted; the next command goes on: vmrag sync")
    except Exception as error:  # noqa: BLE001  a bug of ours must not look like a failure of git
        from vmrag_link.ops.buglog import write

        _say(f"a bug: {type(error).__name__}; please report it with this file: {write(error, sys.argv)}")
    return 0


def run(directory: Path) -> None:
    """Bring knowledge base and index to the pin."""
    workspace = Workspace.open(directory.resolve(), QUIET, patience=PATIENCE)
    try:
        if workspace.initialized and workspace.config.hooks.sync != "off":
            _follow(workspace)
    finally:
        workspace.close()


def _follow(workspace: Workspace) -> None:
    report = reconciled(workspace)
    if report is None:
        return
    if report.state in ("malformed", "missing"):
        raise workspace.unusable(workspace.target())
    if workspace.config.hooks.quiet:
        return
    if report.notes:
        _say(report.notes[0])
    elif report.from_ != report.to:
        _say(f"knowledge is at {(report.to or '')[:7]} ({_counted(report.plan)})")


def _counted(changes: Changes) -> str:
    return f"+{changes.added} ~{changes.modified} -{changes.removed} documents"


def _say(line: str) -> None:
    sys.stderr.write(f"vmrag: {line}\n")


if __name__ == "__main__":
    sys.exit(main())

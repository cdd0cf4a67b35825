"""The editor of the person at the terminal, as git finds and starts it."""

from __future__ import annotations

from pathlib import Path

from vmrag_link import env, proc
from vmrag_link.errors import UsageInvalid
from vmrag_link.git.run import git
from vmrag_link.paths import Places

_HINT = "git config --global core.editor nano   (or another editor, or GIT_EDITOR)"


def open_file(places: Places, path: Path) -> None:
    """Open a file in the editor and wait for its end.

    Raises `UsageInvalid` if there is none, or if it fails.
    """
    found = git(places, "var", "GIT_EDITOR")
    command = found.text.strip()
    if found.returncode or not command:
        raise UsageInvalid(f"git knows no editor: {found.failure}", hint=_HINT)
    # As git does, a shell reads the command, which may have arguments. The path is not part of it.
    code = proc.attended(
        ["sh", "-c", f'{command} "$@"', command, str(path)], cwd=places.top, env=env.without(env.GIT_SCRUBBED)
    )
    if code:
        raise UsageInvalid(
            f"The editor ended with exit code {code}; what it left is not taken. ({command})", hint=_HINT
        )

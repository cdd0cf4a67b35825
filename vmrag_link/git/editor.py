"""The editor of the person at the terminal, as git finds and starts it."""

from __future__ import annotations

from pathlib import Path

from vmrag_link import env, proc
from vmrag_link.errors import UsageInvalid
from vmrag_link.git.run import git
from vmrag_link.paths import Places

_HINT = "git config --global core.editor nano   (or another editor, or GIT_EDITOR)"


_PLUS = frozenset(("emacs", "emacsclient", "joe", "kak", "mcedit", "micro", "nano", "nvim", "vi", "vim"))
_GOTO = frozenset(("code", "codium", "cursor"))
"""Editors that open a file at a line by `+LINE FILE`, and by `--goto FILE:LINE`."""


def open_file(places: Places, path: Path, *, line: int | None = None) -> None:
    """Open a file in the editor, at a line if the editor is known to take one, and wait for its
    end.

    Raises `UsageInvalid` if there is none, or if it fails.
    """
    found = git(places, "var", "GIT_EDITOR")
    command = found.text.strip()
    if found.returncode or not command:
        raise UsageInvalid(f"git knows no editor: {found.failure}", hint=_HINT)
    # As git does, a shell reads the command, which may have arguments. The path is not part of it.
    code = proc.attended(
        ["sh", "-c", f'{command} "$@"', command, *_arguments(command, path, line)],
        cwd=places.top,
        env=env.without(env.GIT_SCRUBBED),
    )
    if code:
        raise UsageInvalid(
            f"The editor ended with exit code {code}; what it left is not taken. ({command})", hint=_HINT
        )


def _arguments(command: str, path: Path, line: int | None) -> list[str]:
    program = Path(command.split(maxsplit=1)[0]).name
    if line is not None and program in _PLUS:
        return [f"+{line}", str(path)]
    if line is not None and program in _GOTO:
        return ["--goto", f"{path}:{line}"]
    return [str(path)]

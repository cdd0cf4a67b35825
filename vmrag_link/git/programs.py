"""The user's own programs, which git finds and starts: editor, pager and merge tool. Also `git
commit`, which runs the user's hooks and signs.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed, UsageInvalid
from vmrag_link.git.run import check_git, run_git
from vmrag_link.paths import Places

_EDITOR_HINT = "run 'git config --global core.editor nano' to set an editor, or set GIT_EDITOR"

_PLUS_EDITORS = frozenset(("emacs", "emacsclient", "joe", "kak", "mcedit", "micro", "nano", "nvim", "vi", "vim"))
"""Editors that open a file at a line by `+LINE FILE`."""
_GOTO_EDITORS = frozenset(("code", "codium", "cursor"))
"""Editors that open a file at a line by `--goto FILE:LINE`."""

_PAGER_DEFAULTS = {"LESS": "FRX", "LV": "-c"}
"""Variables that git sets if the user has not: colours are shown, and output that fits on the
screen needs no key.
"""
_PLAIN_PROGRAM = r"[\w./+-]+"
"""A program's name without characters that a shell interprets."""


def edit_file(places: Places, path: Path, *, line: int | None = None) -> None:
    """Open a file in the editor, at a line if the editor supports it, and wait until it ends.

    Raises `UsageInvalid` if no editor is configured, or if it fails.
    """
    finished = run_git(places, "var", "GIT_EDITOR")
    command = finished.text.strip()
    if finished.returncode or not command:
        raise UsageInvalid(f"git found no editor: {finished.failure}", hint=_EDITOR_HINT)
    # Like in git, a shell reads the command, which may have arguments. The path is not part of it.
    code = proc.run_interactive(
        ["sh", "-c", f'{command} "$@"', command, *_editor_arguments(command, path, line)],
        cwd=places.top,
        env=env.copy_without(env.GIT_SCRUBBED),
    )
    if code:
        raise UsageInvalid(
            f"the editor failed with exit code {code}, so nothing was changed: {command}", hint=_EDITOR_HINT
        )


def _editor_arguments(command: str, path: Path, line: int | None) -> list[str]:
    program = Path(command.split(maxsplit=1)[0]).name
    if line is not None and program in _PLUS_EDITORS:
        return [f"+{line}", str(path)]
    if line is not None and program in _GOTO_EDITORS:
        return ["--goto", f"{path}:{line}"]
    return [str(path)]


def strip_comments(places: Places, text: str) -> str:
    """Return a message without comment lines and outer blank lines, as `git commit` stores it."""
    return check_git(places, "stripspace", "--strip-comments", stdin=text.encode()).stdout.decode()


def format_comments(places: Places, text: str) -> str:
    """Return a text whose lines begin with git's comment character."""
    return check_git(places, "stripspace", "--comment-lines", stdin=text.encode()).stdout.decode(errors="replace")


def commit_index(places: Places, message: str, *, author: str | None = None, show: bool = True) -> None:
    """Run `git commit` for the staged files, with the user's hooks and settings.

    git keeps comment lines in the message. With `show`, the user sees the output of git and the
    hooks. Raises `GitFailed`.
    """
    repository = (f"--git-dir={places.git_dir}", f"--work-tree={places.top}")
    options = ["--quiet", "--cleanup=whitespace", "--file=-", *([f"--author={author}"] if author else [])]
    finished = proc.run(
        ["git", *repository, "commit", *options],
        cwd=places.top,
        env=env.copy_without(env.GIT_SCRUBBED),
        stdin=message.encode(errors="surrogateescape"),
        show_stderr=show,
    )
    if finished.returncode:
        raise GitFailed(finished.failure, exit_code=finished.returncode)


def start_pager(places: Places) -> proc.Started | None:
    """Start the pager, which shows what is written to its standard input. None if git uses no
    pager, or if it is not installed, because small containers have no `less`.

    The first of `GIT_PAGER`, `core.pager` and `PAGER` applies.
    """
    command = run_git(places, "var", "GIT_PAGER").text.strip()
    program = command.partition(" ")[0]
    if program in ("", "cat") or (re.fullmatch(_PLAIN_PROGRAM, program) and not proc.find_program(program, places.top)):
        return None
    # Like in git, a shell reads the command, which may have arguments.
    return proc.start_pager(
        ["sh", "-c", command], cwd=places.top, env=_PAGER_DEFAULTS | env.copy_without(env.GIT_SCRUBBED)
    )


def merge_by_tool(places: Places, name: str, versions: Sequence[str], *, tool: str = "") -> str | None:
    """Open three texts in a merge tool on this terminal, and return the merged text, or None if
    nothing was merged.

    `versions`: base, ours and theirs. `name`: the file name that the tool shows. The settings of
    the repository at `places` apply (`merge.tool`, `mergetool.*`). Raises `GitFailed` if the tool
    fails or does not exist.
    """
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / "merge"
        top.mkdir()
        temporary = Places(top, top / ".git", top / ".git")
        check_git(temporary, "init", "--quiet", "--template=", str(top))
        check_git(temporary, "config", "include.path", str(places.common / "config"))
        check_git(temporary, "config", "core.autocrlf", "false")
        check_git(temporary, "config", "core.bare", "false")
        blobs = [
            check_git(temporary, "hash-object", "-w", "--stdin", stdin=version.encode()).text.strip()
            for version in versions
        ]
        entries = "".join(f"100644 {blob} {stage}\t{name}\0" for stage, blob in enumerate(blobs, 1))
        check_git(temporary, "update-index", "-z", "--index-info", stdin=entries.encode())
        check_git(temporary, "checkout", "--merge", "--", name)
        chosen = [f"--tool={tool}"] if tool else []
        code = proc.run_interactive(
            ["git", "mergetool", "--no-prompt", *chosen, "--", name], cwd=top, env=env.copy_without(env.GIT_SCRUBBED)
        )
        if check_git(temporary, "ls-files", "--unmerged", "-z", "--", name).stdout:
            if code:
                raise GitFailed(
                    f"git mergetool ended with exit code {code}.",
                    hint="run 'git mergetool --tool-help' to show the tools",
                    exit_code=code,
                )
            return None
        return (top / name).read_bytes().decode()

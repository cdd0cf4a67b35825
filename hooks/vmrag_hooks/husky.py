"""husky: scripts in its folder start our shims, and the team commits them with the code.

husky 9 writes `.husky/_`, where git looks for hooks, again with every `npm install`, and our shims
there are gone. What lies in `.husky` it leaves alone. husky 5 to 8 have git look there directly.
The lines that we add do nothing in a clone without vmrag.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from vmrag_link.errors import HooksRefused
from vmrag_link.paths import require_files, write_atomically

_EXECUTABLE = 0o755
_BEGIN = b"# vmrag (begin): `vmrag install` wrote these lines. They do nothing in a clone without vmrag.\n"
_END = b"# vmrag (end)\n"
_OURS = re.compile(re.escape(_BEGIN[:16]) + rb"[^\n]*\n.*?" + re.escape(_END), re.DOTALL)

_SHELL = re.compile(rb"#!\s*\S*?(/env\s+(-S\s+)?)?\b(ba|da|z|k|a)?sh\b")
_HEADER = re.compile(rb"(#[^\n]*\n|[ \t]*\n|[^\n]*/husky\.sh[^\n]*\n)*")  # husky.sh starts the script anew

_LINES = """\
vmrag="$(git rev-parse --git-common-dir)/vmrag/shims/@HOOK@"
if [ -x "$vmrag" ]; then
    "$vmrag" "$@" || exit
fi
"""

# What git gives these on standard input is for the rest of the script, too.
_LINES_WITH_STDIN = """\
vmrag="$(git rev-parse --git-common-dir)/vmrag/shims/@HOOK@"
if [ -x "$vmrag" ]; then
    given=$(cat)
    printf '%s' "${given:+$given
}" | "$vmrag" "$@" || exit
    [ -z "$given" ] || exec <<END
$given
END
fi
"""
_WITH_STDIN = ("pre-push", "post-rewrite")


def find_scripts(folder: Path) -> Path | None:
    """The folder of husky's scripts, if the one in which git looks for hooks is husky's."""
    if folder.name == "_" and (folder / "h").is_file():
        return folder.parent
    return folder if (folder / "_" / "husky.sh").is_file() else None


def require_writable(scripts: Path, hooks: Sequence[str]) -> None:
    """Raise `HooksRefused` where a script is none of the shell's, `FileFailed` where it is no file.

    Through a link, another place would be written.
    """
    require_files(*(scripts / hook for hook in hooks))
    for hook in hooks:
        content = _content(scripts / hook)
        if content.startswith(b"#!") and not _SHELL.match(content):
            path = shlex.quote(str(scripts / hook))
            raise HooksRefused(
                f"{scripts / hook} is no shell script: vmrag's lines cannot be added to it.",
                hint=f'mv {path} {path}.program && printf \'#!/bin/sh\\n"$0.program" "$@"\\n\' >{path} && chmod +x {path}',
                hook=hook,
            )


def write_scripts(scripts: Path, hooks: Sequence[str]) -> tuple[str, ...]:
    """Have the scripts start our shims; returns the names of those that were changed."""
    changed = []
    for hook in hooks:
        path = scripts / hook
        before = _content(path)
        after = _with_lines(before, hook)
        if after != before:
            mode = path.stat().st_mode & 0o777 if before else _EXECUTABLE
            write_atomically(path, after)
            path.chmod(mode)
            changed.append(hook)
    return tuple(changed)


def clean_scripts(scripts: Path, hooks: Sequence[str]) -> tuple[str, ...]:
    """Take our lines out; returns the names of the scripts that had them. One that has nothing else
    is deleted.
    """
    changed = tuple(hook for hook in hooks if _OURS.search(_content(scripts / hook)))
    for hook in changed:
        path = scripts / hook
        rest = _OURS.sub(b"", _content(path))
        if rest.strip() in (b"", b"#!/bin/sh"):
            path.unlink()
        else:
            mode = path.stat().st_mode & 0o777
            write_atomically(path, rest)
            path.chmod(mode)
    return changed


def has_lines(content: bytes) -> bool:
    return _OURS.search(content) is not None


def _with_lines(before: bytes, hook: str) -> bytes:
    """Ours come first: what follows may end the script. husky 5 to 8 start it anew in `husky.sh`,
    which stays in front.
    """
    text = _LINES_WITH_STDIN if hook in _WITH_STDIN else _LINES
    block = _BEGIN + text.replace("@HOOK@", hook).encode() + _END
    if found := _OURS.search(before):
        return before[: found.start()] + block + before[found.end() :]
    if not before:
        return b"#!/bin/sh\n" + block
    whole = before if before.endswith(b"\n") else before + b"\n"
    end = _HEADER.match(whole).end()  # type: ignore[union-attr]  # it matches nothing, too
    return whole[:end] + block + whole[end:]


def _content(path: Path) -> bytes:
    """Empty for what is not there or no file: a stranger's link may lead to one without end."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else b""

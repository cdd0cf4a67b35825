"""Start vmrag's shims (`shims`) from husky's scripts, which the team commits with the code.

husky 9 makes git look for hooks in `.husky/_`. Each `npm install` rewrites that folder, and removes
shims there. It does not change other files in `.husky`. husky 5 to 8 let git look in `.husky`
itself. In a clone without vmrag, the added lines do nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from vmrag_link.errors import HooksRefused
from vmrag_link.file_access import require_files, write_atomically

_EXECUTABLE = 0o755
_BEGIN = b"# vmrag (begin): `vmrag install` wrote these lines. They do nothing in a clone without vmrag.\n"
_END = b"# vmrag (end)\n"
_OURS = re.compile(re.escape(_BEGIN[:16]) + rb"[^\n]*\n.*?" + re.escape(_END), re.DOTALL)

_SHELL = re.compile(rb"#!\s*\S*?(/env\s+(-S\s+)?)?\b(ba|da|z|k|a)?sh\b")
_HEADER = re.compile(rb"(#[^\n]*\n|[ \t]*\n|[^\n]*/husky\.sh[^\n]*\n)*")  # husky.sh restarts the script

_LINES = """\
vmrag="$(git rev-parse --git-common-dir)/vmrag/shims/@HOOK@"
if [ -x "$vmrag" ]; then
    "$vmrag" "$@" || exit
fi
"""

# The rest of the script also needs the standard input of git.
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
    """Return the folder of husky's scripts if git's hooks folder is husky's, else None."""
    if folder.name == "_" and (folder / "h").is_file():
        return folder.parent
    return folder if (folder / "_" / "husky.sh").is_file() else None


def require_writable(scripts: Path, hooks: Sequence[str]) -> None:
    """Raise `HooksRefused` if a script is not a shell script, and `FileFailed` if it is not a
    regular file.

    Through a link, another file would be written.
    """
    require_files(*(scripts / hook for hook in hooks))
    for hook in hooks:
        content = _read_script(scripts / hook)
        if content.startswith(b"#!") and not _SHELL.match(content):
            path = shlex.quote(str(scripts / hook))
            raise HooksRefused(
                f"{scripts / hook} is not a shell script, so vmrag cannot add its lines.",
                hint=f"run 'mv {path} {path}.program && printf '#!/bin/sh\\n\"$0.program\" \"$@\"\\n' >{path} && chmod +x {path}'",
                hook=hook,
            )


def write_scripts(scripts: Path, hooks: Sequence[str]) -> tuple[str, ...]:
    """Add lines that start vmrag's shims to the scripts, and return the names of the changed
    ones.
    """
    changed = []
    for hook in hooks:
        path = scripts / hook
        before = _read_script(path)
        after = _add_lines(before, hook)
        if after != before:
            mode = path.stat().st_mode & 0o777 if before else _EXECUTABLE
            write_atomically(path, after)
            path.chmod(mode)
            changed.append(hook)
    return tuple(changed)


def clean_scripts(scripts: Path, hooks: Sequence[str]) -> tuple[str, ...]:
    """Remove vmrag's lines, and return the names of the scripts that had them.

    A script without other lines is deleted.
    """
    changed = tuple(hook for hook in hooks if _OURS.search(_read_script(scripts / hook)))
    for hook in changed:
        path = scripts / hook
        rest = _OURS.sub(b"", _read_script(path))
        if rest.strip() in (b"", b"#!/bin/sh"):
            path.unlink()
        else:
            mode = path.stat().st_mode & 0o777
            write_atomically(path, rest)
            path.chmod(mode)
    return changed


def has_lines(content: bytes) -> bool:
    """Return whether a script has vmrag's lines."""
    return _OURS.search(content) is not None


def _add_lines(before: bytes, hook: str) -> bytes:
    """Return a script with vmrag's lines.

    They come first, because other lines can end the script. husky 5 to 8 restart it in `husky.sh`,
    so that line stays in front.
    """
    text = _LINES_WITH_STDIN if hook in _WITH_STDIN else _LINES
    block = _BEGIN + text.replace("@HOOK@", hook).encode() + _END
    if match := _OURS.search(before):
        return before[: match.start()] + block + before[match.end() :]
    if not before:
        return b"#!/bin/sh\n" + block
    whole = before if before.endswith(b"\n") else before + b"\n"
    end = _HEADER.match(whole).end()  # type: ignore[union-attr]  # it matches nothing, too
    return whole[:end] + block + whole[end:]


def _read_script(path: Path) -> bytes:
    """Return the content of a script; empty for a missing or irregular file.

    An untrusted link can lead to an endless file.
    """
    return path.read_bytes() if path.is_file() and not path.is_symlink() else b""

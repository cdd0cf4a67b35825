"""Start vmrag's shims (`shims`) from lefthook, by the user's own configuration.

`lefthook install` moves the hook of another tool aside, and fails if it already did so before. So
vmrag installs no shim for a hook that lefthook runs. vmrag's part of the configuration is in
`.git`. `lefthook-local.yml`, which is not committed, extends lefthook's configuration by it. Other
users do not see it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from vmrag_link.errors import HooksRefused, quoted
from vmrag_link.file_access import append_line, remove_lines, require_files, require_folders, write_atomically
from vmrag_link.git.hooks import (
    LEFTHOOK_ENDINGS,
    LEFTHOOK_LOCAL,
    format_lefthook_extension,
    is_lefthook,
    is_ours,
    read_beginning,
)
from vmrag_link.git.run import run_git
from vmrag_link.paths import Places

_TEAM_FILES = tuple(f"{start}lefthook{end}" for start in ("", ".", ".config/") for end in LEFTHOOK_ENDINGS)
_MAX_CONFIG_BYTES = 1_000_000
_ARGUMENT_COUNTS = {"post-checkout": 3, "pre-push": 2, "post-merge": 1, "post-rewrite": 1}
_WITH_STDIN = ("pre-push", "post-rewrite")

_SKIPPED = ("pre-commit", "pre-push")
"""Hooks whose commands lefthook skips if it finds no changed files.

It compares HEAD with what the branch of HEAD was pushed to, whatever is pushed. A command with its
own files always runs (tested with 1.6, 1.13 and 2.2).
"""

_ABOUT = "# Written by `vmrag install`, for this clone alone: git does not track it.\n"
_EXTENDS = re.compile(r"(?m)^extends[ \t]*:[ \t]*(?P<flow>\[)?(?P<rest>[^\n]*)\n?(?P<indent>[ \t]*)(?=-)?")


def list_handled_hooks(places: Places, folder: Path, hooks: Sequence[str]) -> tuple[str, ...]:
    """Return the hooks that lefthook runs, or will run as soon as it is installed."""
    team = b"\n".join(read_beginning(places.top / name, _MAX_CONFIG_BYTES) for name in _TEAM_FILES)
    return tuple(hook for hook in hooks if is_lefthook(folder / hook) or _has_hook(team, hook))


def _has_hook(config: bytes, hook: str) -> bool:
    """Return whether lefthook's configuration, in YAML, TOML or JSON, has this hook."""
    return re.search(rb"(?m)^[ \t]*[\[\"']*" + hook.encode() + rb"[\"']?[ \t]*[\].:]", config) is not None


def require_writable(places: Places) -> None:
    """Raise an error if the user's configuration cannot be extended.

    Raises `HooksRefused`, and `FileFailed` if it is not a regular file.
    """
    path = _find_local_configuration(places)
    require_folders(path.parent)
    require_files(path, places.lefthook)
    before = _read_text(path) if path.exists() else ""
    name = _name_path(places, path)
    if run_git(places, "ls-files", "--error-unmatch", "--", name).returncode == 0:
        raise HooksRefused(
            f"git tracks {name}, which is for one clone alone: colleagues would get a path of this machine.",
            hint=f"run 'git rm --cached {quoted(name)} && echo /{name} >> .gitignore' to ignore it",
            file=name,
        )
    if _add_extension(places, path, before) is None:
        raise HooksRefused(
            f"cannot add vmrag's hooks to {name} automatically.",
            hint=f"add {format_lefthook_extension(places)} to its list `extends`, then run 'vmrag install'",
            file=name,
        )


def write_configuration(places: Places, hooks: Sequence[str]) -> None:
    """Let lefthook start vmrag's shims for these hooks."""
    part = _format_part(places, hooks)
    if read_beginning(places.lefthook, _MAX_CONFIG_BYTES) != part:
        write_atomically(places.lefthook, part)
    path = _find_local_configuration(places)
    before = _read_text(path) if path.exists() else ""
    after = _add_extension(places, path, before)
    if after is not None and after != before:
        write_atomically(path, after.encode(errors="surrogateescape"))
    _add_ignore_lines(places, path)


def list_own_files(places: Places) -> tuple[str, ...]:
    """Return the names of the files that `clean_configuration` changes or deletes."""
    item = format_lefthook_extension(places).encode()
    names = tuple(name for name in LEFTHOOK_LOCAL if item in read_beginning(places.top / name, _MAX_CONFIG_BYTES))
    exclude = places.common / "info" / "exclude"
    return (*names, str(exclude)) if names and exclude.is_file() else names


def clean_configuration(places: Places) -> None:
    """Remove vmrag's part from lefthook's configuration."""
    was_installed = places.lefthook.exists()
    places.lefthook.unlink(missing_ok=True)
    for name in LEFTHOOK_LOCAL:
        path = places.top / name
        before = _read_text(path) if path.is_file() and not path.is_symlink() else ""
        if format_lefthook_extension(places) in before:
            was_installed = True
            after = _without_extension(places, before)
            if after.strip():
                write_atomically(path, after.encode(errors="surrogateescape"))
            else:
                path.unlink()
    if was_installed:
        _remove_ignore_lines(places)


def delete_leftover(folder: Path, hook: str) -> None:
    """Delete vmrag's shim that `lefthook install` moved aside, because it would make the next
    installation fail.
    """
    old = folder / f"{hook}.old"
    if is_ours(old):
        old.unlink()


def _format_part(places: Places, hooks: Sequence[str]) -> bytes:
    """Return vmrag's part of lefthook's configuration, with a command for each hook."""
    text = _ABOUT
    for hook in hooks:
        shim = shlex.quote(str(places.shims / hook))
        arguments = "".join(f" '{{{number}}}'" for number in range(1, _ARGUMENT_COUNTS.get(hook, 0) + 1))
        always = ": {files}; " if hook in _SKIPPED else ""
        run = json.dumps(f"{always}[ ! -x {shim} ] || {shim}{arguments}", ensure_ascii=False)
        text += f"{hook}:\n  commands:\n    vmrag:\n"
        text += f"      files: echo {_name_path(places, _find_local_configuration(places))}\n" if always else ""
        text += f"      run: {run}\n"
        text += "      use_stdin: true\n" if hook in _WITH_STDIN else ""
    return text.encode()


def _find_local_configuration(places: Places) -> Path:
    """Return the user's configuration: the existing one, or the one to create."""
    paths = [places.top / name for name in LEFTHOOK_LOCAL]
    return next((path for path in paths if path.exists() or path.is_symlink()), paths[0])


def _read_text(path: Path) -> str:
    """Return a text in any encoding. Writing it again restores each byte."""
    return path.read_bytes().decode(errors="surrogateescape")


def _name_path(places: Places, path: Path) -> str:
    return path.relative_to(places.top).as_posix()


def _add_extension(places: Places, path: Path, before: str) -> str | None:
    """Return the configuration with vmrag's part in its list `extends`; None if it cannot be
    added.
    """
    item = format_lefthook_extension(places)
    if item in before:
        return before
    if path.suffix not in (".yml", ".yaml"):
        return None
    match = _EXTENDS.search(before)
    return _add_to_new_list(before, item) if match is None else _add_to_list(before, match, item)


def _add_to_new_list(before: str, item: str) -> str | None:
    if re.search(r"(?m)^[{\[]|^\.\.\.|^---[ \t]*\S", before):
        return None  # no block of keys, to which one can be added
    between = "" if not before or before.endswith("\n") else "\n"
    return f"{before or _ABOUT}{between}extends:\n  - {item}\n"


def _add_to_list(before: str, match: re.Match[str], item: str) -> str | None:
    if match["flow"]:
        first, rest = before[: match.end("flow")], before[match.end("flow") :]
        return f"{first}{item}{'' if rest.lstrip().startswith(']') else ', '}{rest}"
    if match["rest"].partition("#")[0].strip() or not before[match.end() :].startswith("-"):
        return None
    return f"{before[: match.end()]}- {item}\n{match['indent']}{before[match.end() :]}"


def _without_extension(places: Places, before: str) -> str:
    item = re.escape(format_lefthook_extension(places))
    after = re.sub(rf"(?m)^[ \t]*- {item}\n|{item}, |(, )?{item}", "", before)
    after = re.sub(r"(?m)^extends:[ \t]*(\[\])?[ \t]*\n(?![ \t]*-)", "", after)
    return after.removeprefix(_ABOUT)


def _add_ignore_lines(places: Places, path: Path) -> None:
    """Exclude the file from commits, because it names a folder of this machine."""
    name = _name_path(places, path)
    if run_git(places, "check-ignore", "--quiet", "--", name).returncode:
        exclude = places.common / "info" / "exclude"
        before = exclude.read_bytes() if exclude.exists() else b""
        write_atomically(exclude, append_line(before, f"/{name}".encode()))


def _remove_ignore_lines(places: Places) -> None:
    """Remove the lines that `_add_ignore_lines` wrote, and the file if it has no others."""
    exclude = places.common / "info" / "exclude"
    ours = {f"/{name}".encode() for name in LEFTHOOK_LOCAL}
    before = exclude.read_bytes() if exclude.is_file() else b""
    after = remove_lines(before, lambda line: line.rstrip(b"\n") in ours)
    if before and not after:
        exclude.unlink()
    elif after != before:
        write_atomically(exclude, after)

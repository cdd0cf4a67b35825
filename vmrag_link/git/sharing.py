"""The users of a repository besides its owner: `core.sharedRepository`, by git's rules, for our
folders.
"""

from __future__ import annotations

import contextlib
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.git import configuration
from vmrag_link.paths import Places
from vmrag_link.permissions import PRIVATE

KEY = "core.sharedRepository"

_GROUP, _EVERYBODY = 0o660, 0o664
_NAMED = {
    "group": _GROUP,
    "all": _EVERYBODY,
    "world": _EVERYBODY,
    "everybody": _EVERYBODY,
    "1": _GROUP,
    "2": _EVERYBODY,
}
_UMASK = ("umask", "false", "no", "off", "0")
_OTHERS = 0o077


def setting(places: Places) -> str | None:
    """What the repository's own configuration says: git reads it nowhere else."""
    own = f"file:{places.common / 'config'}"
    found = [each.value for each in configuration.settings(places) if each[1:3] == (own, KEY.lower())]
    return found[-1].lower() or "true" if found else None


def folder_mode(setting: str | None) -> int | None:
    """The mode of our folders: 0700 by default, None where the configuration leaves it to the
    umask.

    `group` is the group alone. git leaves others to the umask, but a reader could hold our locks.
    """
    if setting is None:
        return PRIVATE
    if setting in _UMASK:
        return None
    octal = int(setting, 8) & 0o666 if re.fullmatch(r"0*[0-7]{3}", setting) else _GROUP
    file_mode = _NAMED.get(setting, octal) | 0o600
    mode = file_mode | (file_mode & 0o444) >> 2
    # As git: elsewhere than on Linux new files have the folder's group anyway.
    return mode | stat.S_ISGID if mode & 0o060 and sys.platform == "linux" else mode


def prepare(places: Places) -> None:
    """Before something is written: our folders are there, and no more open than they should be."""
    tops = _tops(places)
    missing, is_open = [each for each in tops if not each.exists()], [each for each in tops if _is_open(each)]
    if not missing and not is_open:
        return
    mode = folder_mode(setting(places))
    for top in missing:
        with contextlib.suppress(FileExistsError):
            top.mkdir(mode=PRIVATE if mode else 0o777)
            if mode:
                top.chmod(mode)
    _tighten(is_open, mode)


def too_open(places: Places) -> list[Path]:
    """Our folders that others may look into although nothing asks for that."""
    found = [each for each in _tops(places) if _is_open(each)]
    mode = folder_mode(setting(places)) if found else None
    return [] if mode is None else _more_open(found, mode)


def _more_open(folders: Iterable[Path], mode: int) -> list[Path]:
    """The paths that give group or others more than `mode` does."""
    return [each for each in folders if each.stat().st_mode & _OTHERS & ~mode]


def too_closed(places: Places) -> list[Path]:
    """Our folders that those cannot use for whom the repository is shared."""
    there = [each for each in _tops(places) if each.is_dir()]
    mode = folder_mode(setting(places)) if there else None
    return [] if mode is None else [each for each in there if mode & _OTHERS & ~each.stat().st_mode]


def tighten(places: Places) -> None:
    """Open nothing: closed folders were closed on purpose.

    Another user's folders stay as they are.
    """
    _tighten([each for each in _tops(places) if _is_open(each)], folder_mode(setting(places)))


def _tighten(folders: Iterable[Path], mode: int | None) -> None:
    if mode is not None:
        for each in _more_open(folders, mode):
            permissions.tighten(each, mode)


def _tops(places: Places) -> list[Path]:
    """Skip the missing folder of a removed work tree, and folders that are links elsewhere."""
    both = dict.fromkeys((places.shared, places.own))
    return [each for each in both if each.parent.is_dir() and not each.is_symlink()]


def _is_open(folder: Path) -> bool:
    return folder.is_dir() and bool(folder.stat().st_mode & _OTHERS)

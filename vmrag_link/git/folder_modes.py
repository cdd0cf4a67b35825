"""Modes of the folders that vmrag makes.

They follow the rules of git for `core.sharedRepository`, and files follow the folders around them
(`permissions`).
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

SHARED_KEY = "core.sharedRepository"

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


def read_shared_setting(places: Places) -> str | None:
    """Return the value in the repository's own configuration, the only one that git uses."""
    config_file = f"file:{places.common / 'config'}"
    values = [
        setting.value
        for setting in configuration.list_settings(places)
        if setting.origin == config_file and setting.key == SHARED_KEY.lower()
    ]
    return (values[-1].lower() or "true") if values else None


def folder_mode(setting: str | None) -> int | None:
    """Return the mode for folders of vmrag: 0700 by default, None if the configuration leaves it to
    the umask.

    `setting`: the value of `read_shared_setting`. `group` gives access to the group only. git
    leaves others to the umask, but a reader could hold our locks.
    """
    if setting is None:
        return PRIVATE
    if setting in _UMASK:
        return None
    octal = int(setting, 8) & 0o666 if re.fullmatch(r"0*[0-7]{3}", setting) else _GROUP
    file_mode = _NAMED.get(setting, octal) | 0o600
    mode = file_mode | (file_mode & 0o444) >> 2  # users who can read a folder can also enter it
    # Like git: on other systems than Linux, new files have the folder's group anyway.
    return mode | stat.S_ISGID if mode & 0o060 and sys.platform == "linux" else mode


def prepare_folders(places: Places) -> None:
    """Create vmrag's folders, and reduce their permissions if they are too open. Called before
    something is written.
    """
    tops = _list_tops(places)
    missing = [top for top in tops if not top.exists()]
    open_folders = [top for top in tops if _is_open(top)]
    if not missing and not open_folders:
        return
    mode = folder_mode(read_shared_setting(places))
    for top in missing:
        with contextlib.suppress(FileExistsError):
            top.mkdir(mode=PRIVATE if mode else 0o777)
            if mode:
                top.chmod(mode)
    _tighten_open(open_folders, mode)


def list_too_open(places: Places) -> list[Path]:
    """Return vmrag's folders that others can read although no setting allows it."""
    open_folders = [top for top in _list_tops(places) if _is_open(top)]
    mode = folder_mode(read_shared_setting(places)) if open_folders else None
    return [] if mode is None else _select_too_open(open_folders, mode)


def _select_too_open(folders: Iterable[Path], mode: int) -> list[Path]:
    """Return the paths that give group or others more permissions than `mode`."""
    return [folder for folder in folders if folder.stat().st_mode & _OTHERS & ~mode]


def list_too_closed(places: Places) -> list[Path]:
    """Return vmrag's folders that the users of a shared repository cannot use."""
    existing = [top for top in _list_tops(places) if top.is_dir()]
    mode = folder_mode(read_shared_setting(places)) if existing else None
    return [] if mode is None else [folder for folder in existing if mode & _OTHERS & ~folder.stat().st_mode]


def tighten_folders(places: Places) -> None:
    """Reduce permissions that are too open. Closed folders stay closed, because that was done on
    purpose.

    Another user's folders stay unchanged.
    """
    _tighten_open([top for top in _list_tops(places) if _is_open(top)], folder_mode(read_shared_setting(places)))


def _tighten_open(folders: Iterable[Path], mode: int | None) -> None:
    if mode is not None:
        for folder in _select_too_open(folders, mode):
            permissions.restrict_mode(folder, mode)


def _list_tops(places: Places) -> list[Path]:
    """Return vmrag's folders, without the missing folder of a removed work tree, and without
    links.
    """
    folders = dict.fromkeys((places.shared, places.work_tree_folder))
    return [folder for folder in folders if folder.parent.is_dir() and not folder.is_symlink()]


def _is_open(folder: Path) -> bool:
    return folder.is_dir() and bool(folder.stat().st_mode & _OTHERS)

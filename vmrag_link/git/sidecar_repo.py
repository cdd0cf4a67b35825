"""Repositories beside ours with our configuration, and so the same remotes; and whom besides their
owner our folders are for: `core.sharedRepository`, by git's rules.

Nothing of such a repository gets into ours. What our configuration says on a condition, such as the
credentials of a runner, they do not see: `git.credentials` hands it over.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from vmrag_link import locks, permissions
from vmrag_link.git import configuration
from vmrag_link.git.run import build_failure, check_git, run_git, run_git_in
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
    """What the repository's own configuration says: git reads it nowhere else."""
    own = f"file:{places.common / 'config'}"
    found = [each.value for each in configuration.list_settings(places) if each[1:3] == (own, SHARED_KEY.lower())]
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


def prepare_folders(places: Places) -> None:
    """Before something is written: our folders are there, and no more open than they should be."""
    tops = _tops(places)
    missing, is_open = [each for each in tops if not each.exists()], [each for each in tops if _is_open(each)]
    if not missing and not is_open:
        return
    mode = folder_mode(read_shared_setting(places))
    for top in missing:
        with contextlib.suppress(FileExistsError):
            top.mkdir(mode=PRIVATE if mode else 0o777)
            if mode:
                top.chmod(mode)
    _tighten(is_open, mode)


def list_too_open(places: Places) -> list[Path]:
    """Our folders that others may look into although nothing asks for that."""
    found = [top for top in _tops(places) if _is_open(top)]
    mode = folder_mode(read_shared_setting(places)) if found else None
    return [] if mode is None else _more_open(found, mode)


def _more_open(folders: Iterable[Path], mode: int) -> list[Path]:
    """The paths that give group or others more than `mode` does."""
    return [folder for folder in folders if folder.stat().st_mode & _OTHERS & ~mode]


def list_too_closed(places: Places) -> list[Path]:
    """Our folders that those cannot use for whom the repository is shared."""
    there = [top for top in _tops(places) if top.is_dir()]
    mode = folder_mode(read_shared_setting(places)) if there else None
    return [] if mode is None else [each for each in there if mode & _OTHERS & ~each.stat().st_mode]


def tighten_folders(places: Places) -> None:
    """Open nothing: closed folders were closed on purpose.

    Another user's folders stay as they are.
    """
    _tighten([top for top in _tops(places) if _is_open(top)], folder_mode(read_shared_setting(places)))


def _tighten(folders: Iterable[Path], mode: int | None) -> None:
    if mode is not None:
        for each in _more_open(folders, mode):
            permissions.restrict_mode(each, mode)


def _tops(places: Places) -> list[Path]:
    """Skip the missing folder of a removed work tree, and folders that are links elsewhere."""
    both = dict.fromkeys((places.shared, places.work_tree_folder))
    return [each for each in both if each.parent.is_dir() and not each.is_symlink()]


def _is_open(folder: Path) -> bool:
    return folder.is_dir() and bool(folder.stat().st_mode & _OTHERS)


_PATIENCE = 30.0
_LOOSE, _PACKS = 1000, 50
"""How many loose objects (counted in one of 256 folders) or packs git does not put together yet."""

_OWN_CONFIG = "config.own"
_INCLUDE = f"[include]\n\tpath = {_OWN_CONFIG}\n"

# What is set for our repository alone, remotes and proxies among it, counts here, too; what is read
# later counts more. Relative: a project may be moved to another place.
_SETTINGS = """[include]
	path = {code}
[core]
	bare = true
	hooksPath = /dev/null
[transfer]
	fsckObjects = true
[gc]
	auto = {loose}
	autoDetach = false
"""


def make_repository(places: Places, folder: Path) -> Places:
    """A bare repository in an empty directory.

    git runs in our work tree all the same, because remotes may have relative paths.
    """
    kind = configuration.read_object_format(places)
    apart = locate_repository(places, folder)
    arguments = ("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", *_shared(places), str(folder))
    done = run_git_in(folder, *arguments)
    if done.returncode != 0:
        raise build_failure(arguments, done)
    own = folder / _OWN_CONFIG
    permissions.make_file(own)
    own.write_text(_own_settings(places, folder))
    with (folder / "config").open("a") as config:
        config.write(_INCLUDE)
    return apart


def _own_settings(places: Places, folder: Path) -> str:
    return _SETTINGS.format(code=os.path.relpath(places.common / "config", folder), loose=_LOOSE)


def pack_objects(apart: Places) -> None:
    """Let git pack the objects, because nothing else ever does here; it is not asked where there
    are few.
    """
    there = apart.common / "objects"
    loose, packs = (sum(1 for _ in there.glob(each)) for each in ("17/*", "pack/*.pack"))
    if loose > _LOOSE // 256 or packs > _PACKS:
        check_git(apart, "gc", "--auto", "--quiet")


def _shared(places: Places) -> list[str]:
    """As open as our other folders; git itself sees to that from now on."""
    mode = folder_mode(read_shared_setting(places))
    return [f"--shared=0{mode & 0o666:o}"] if mode else []


@contextlib.contextmanager
def open_incoming(places: Places, store: Places, folder: Path) -> Iterator[Places]:
    """A repository for fetched objects that are not checked yet; it sees the objects of `store`.

    It is removed at the end with everything that `keep` has not moved. The caller ensures that
    nobody else uses the folder.
    """
    shutil.rmtree(folder, ignore_errors=True)  # somebody was killed over it
    permissions.make_folder(folder)
    try:
        made = make_repository(places, folder)
        share_objects(made, store)
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what is left is cleared by the next one


def keep_objects(source: Places, store: Places) -> None:
    """Move all objects of an `incoming` repository to the store.

    A pack's index goes last, because it makes the pack count.
    """
    objects = source.common / "objects"
    for file in sorted(objects.glob("*/*"), key=lambda path: path.suffix == ".idx"):
        if file.parent.name != "info" and file.is_file():
            to = store.common / file.relative_to(source.common)
            permissions.make_folder(to.parent)
            file.replace(to)


def locate_repository(places: Places, folder: Path) -> Places:
    """The repository that `make` made there."""
    return Places(places.top, folder, folder, code_places=places.code_places or places)


def add_alternates(places: Places, apart: Places) -> None:
    """Let it see our objects, so that it need not fetch them again."""
    if not (places.common / "shallow").exists():  # git takes what such a clone has for whole histories
        share_objects(apart, places)


def share_objects(apart: Places, other: Places) -> None:
    """Let a repository see the objects of another one, and of no others but its own."""
    alternates = apart.common / "objects" / "info" / "alternates"
    permissions.make_file(alternates)
    alternates.write_text(f"{other.common / 'objects'}\n")


def provide_repository(places: Places, folder: Path) -> Places:
    """The repository there, made if it is missing. A kill leaves none that is half made.

    If its configuration is damaged, write it again. Objects and refs stay: see `find_damage`.
    """
    if not _is_configured(places, folder):
        with _lock_exchange(places, folder):
            if not _is_configured(places, folder):
                unfinished = _unfinished_folder(folder)
                shutil.rmtree(unfinished, ignore_errors=True)  # somebody was killed over it
                permissions.make_folder(unfinished)
                make_repository(places, unfinished)
                if folder.exists():
                    _restore_configuration(unfinished, folder)
                    shutil.rmtree(unfinished)
                else:
                    unfinished.rename(folder)
    return locate_repository(places, folder)


def find_damage(apart: Places) -> str:
    """Return why git cannot use the repository that `make` made, or an empty text.

    git reads every object, which takes about a second for 100 MB.
    """
    if not apart.common.is_dir():
        return ""
    if not _is_configured(apart.code_places or apart, apart.common):
        return "its configuration cannot be used"
    checked = run_git(apart, "fsck", "--full", "--no-dangling", "--no-reflogs", "--no-progress")
    if checked.returncode == 0:
        return ""
    reasons = (line for line in (checked.text + checked.error_text).splitlines() if not line.startswith("notice:"))
    return next(reasons, "git fsck failed").removeprefix("error: ")


def discard_repository(places: Places, folder: Path) -> None:
    """Remove the repository there. Other processes that use it fail, and make it again."""
    with _lock_exchange(places, folder):
        unfinished = _unfinished_folder(folder)
        shutil.rmtree(unfinished, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(unfinished)
        shutil.rmtree(unfinished, ignore_errors=True)


def list_half_made(places: Places, folder: Path) -> dict[Path, Path]:
    """Return the folder that exists while the repository is made or removed, with its lock."""
    return {_unfinished_folder(folder): _exchange_lock(places, folder)}


def _lock_exchange(places: Places, folder: Path) -> contextlib.AbstractContextManager[None]:
    return locks.hold_exclusive(_exchange_lock(places, folder), purpose=f"make {folder.name}", timeout=_PATIENCE)


def _exchange_lock(places: Places, folder: Path) -> Path:
    return places.locks / f"{folder.name}.lock"


def _unfinished_folder(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.unfinished")


def _restore_configuration(made: Path, folder: Path) -> None:
    """Move the files of a new repository to one whose configuration is damaged.

    Our own part goes last: a killed process has not restored it.
    """
    for name in ("objects", "refs"):
        permissions.make_folder(folder / name)
    for name in ("HEAD", "config", _OWN_CONFIG):
        (made / name).replace(folder / name)


def _is_configured(places: Places, folder: Path) -> bool:
    try:
        head, config, settings = ((folder / name).read_bytes() for name in ("HEAD", "config", _OWN_CONFIG))
    except FileNotFoundError:
        return False
    parts = ((folder / name).is_dir() for name in ("objects", "refs"))
    whole = head.startswith(b"ref: refs/heads/") and config.endswith(_INCLUDE.encode()) and all(parts)
    return whole and settings == _own_settings(places, folder).encode()

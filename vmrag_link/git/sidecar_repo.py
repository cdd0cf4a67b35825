"""Sidecar repositories: vmrag's own bare repositories in `.git/vmrag`, for transfers.

A sidecar includes the configuration of the code's repository, so it has the same remotes. But its
objects do not get into the code's repository. Conditional includes, such as the credentials of a
runner, do not apply in a sidecar, so `git.credentials` passes them on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks, permissions
from vmrag_link.git import configuration
from vmrag_link.git.run import build_failure, check_git, run_git, run_git_in
from vmrag_link.paths import Places

_LOCK_SECONDS = 30.0
_MAX_LOOSE = 1000
"""Number of loose objects above which git packs them. It is estimated from one of 256 folders."""
_MAX_PACKS = 50
"""Number of packs above which git packs them into one."""

_OWN_CONFIG = "config.own"
_INCLUDE = f"[include]\n\tpath = {_OWN_CONFIG}\n"

# Settings of the code's repository, such as remotes and proxies, also apply here. Later ones take
# precedence. The path is relative, because a project may be moved.
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
    """Create a bare repository in an empty directory.

    git still runs in the code's work tree, because remotes may have relative paths. Raises
    `GitFailed`.
    """
    from vmrag_link.git import folder_modes  # each repository is made once

    object_format = configuration.read_object_format(places)
    mode = folder_modes.folder_mode(folder_modes.read_shared_setting(places))
    shared = [f"--shared=0{mode & 0o666:o}"] if mode else []  # git keeps this mode
    options = ("--quiet", "--bare", "--template=", f"--object-format={object_format}", *shared)
    arguments = ("init", *options, str(folder))
    finished = run_git_in(folder, *arguments)
    if finished.returncode != 0:
        raise build_failure(arguments, finished)
    own_config = folder / _OWN_CONFIG
    permissions.make_file(own_config)
    own_config.write_text(_own_settings(places, folder))
    with (folder / "config").open("a") as config:
        config.write(_INCLUDE)
    return locate_repository(places, folder)


def _own_settings(places: Places, folder: Path) -> str:
    return _SETTINGS.format(code=os.path.relpath(places.common / "config", folder), loose=_MAX_LOOSE)


def pack_objects(repository: Places) -> None:
    """Let git pack the objects, because no other command does it here. git is not started if there
    are few.
    """
    objects = repository.common / "objects"
    loose = len([*objects.glob("17/*")])
    packs = len([*objects.glob("pack/*.pack")])
    if loose > _MAX_LOOSE // 256 or packs > _MAX_PACKS:
        check_git(repository, "gc", "--auto", "--quiet")


@contextlib.contextmanager
def open_incoming(places: Places, store: Places, folder: Path) -> Iterator[Places]:
    """Yield a repository for fetched objects that are not checked yet. It also reads the objects of
    `store`.

    The block's end removes it with everything that `keep_objects` has not moved. The caller ensures
    that no other process uses the folder.
    """
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed process
    permissions.make_folder(folder)
    try:
        repository = make_repository(places, folder)
        share_objects(repository, store)
        yield repository
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the next call removes what is left


def keep_objects(source: Places, store: Places) -> None:
    """Move all objects of an `open_incoming` repository to the store.

    A pack's index is moved last, because git uses a pack as soon as its index exists.
    """
    objects = source.common / "objects"
    for file in sorted(objects.glob("*/*"), key=lambda path: path.suffix == ".idx"):
        if file.parent.name != "info" and file.is_file():
            target = store.common / file.relative_to(source.common)
            permissions.make_folder(target.parent)
            file.replace(target)


def locate_repository(places: Places, folder: Path) -> Places:
    """Return the places of the repository that `make_repository` created there."""
    return Places(places.top, folder, folder, code_places=places.code_places or places)


def add_alternates(places: Places, repository: Places) -> None:
    """Let a repository read the objects of the code's repository, so that it does not fetch them
    again.
    """
    if not (places.common / "shallow").exists():  # git would treat the history of a shallow clone as complete
        share_objects(repository, places)


def share_objects(repository: Places, other: Places) -> None:
    """Let a repository read the objects of exactly one other repository."""
    alternates = repository.common / "objects" / "info" / "alternates"
    permissions.make_file(alternates)
    alternates.write_text(f"{other.common / 'objects'}\n")


def provide_repository(places: Places, folder: Path) -> Places:
    """Return the repository there, and create it if it is missing. A killed process leaves no
    half-made repository.

    If its configuration is damaged, it is written again. Objects and refs stay unchanged: see
    `find_damage`.
    """
    if not _is_configured(places, folder):
        with _lock_exchange(places, folder):
            if not _is_configured(places, folder):
                unfinished = _unfinished_folder(folder)
                shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed process
                permissions.make_folder(unfinished)
                make_repository(places, unfinished)
                if folder.exists():
                    _restore_configuration(unfinished, folder)
                    shutil.rmtree(unfinished)
                else:
                    unfinished.rename(folder)
    return locate_repository(places, folder)


def find_damage(repository: Places) -> str:
    """Return why git cannot use a repository that `make_repository` created, or an empty text.

    git reads every object, which takes about a second for 100 MB.
    """
    if not repository.common.is_dir():
        return ""
    if not _is_configured(repository.code_places or repository, repository.common):
        return "its configuration cannot be used"
    finished = run_git(repository, "fsck", "--full", "--no-dangling", "--no-reflogs", "--no-progress")
    if finished.returncode == 0:
        return ""
    reasons = (line for line in (finished.text + finished.error_text).splitlines() if not line.startswith("notice:"))
    return next(reasons, "git fsck failed").removeprefix("error: ")


def discard_repository(places: Places, folder: Path) -> None:
    """Remove the repository there. Other processes that use it fail, and create it again."""
    with _lock_exchange(places, folder):
        unfinished = _unfinished_folder(folder)
        shutil.rmtree(unfinished, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(unfinished)
        shutil.rmtree(unfinished, ignore_errors=True)


def list_half_made(places: Places, folder: Path) -> dict[Path, Path]:
    """Return the folder that exists while the repository is created or removed, with its lock."""
    return {_unfinished_folder(folder): _exchange_lock(places, folder)}


def _lock_exchange(places: Places, folder: Path) -> contextlib.AbstractContextManager[None]:
    return locks.hold_exclusive(_exchange_lock(places, folder), purpose=f"make {folder.name}", timeout=_LOCK_SECONDS)


def _exchange_lock(places: Places, folder: Path) -> Path:
    return places.locks / f"{folder.name}.lock"


def _unfinished_folder(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.unfinished")


def _restore_configuration(source: Path, folder: Path) -> None:
    """Move the files of a new repository at `source` to one whose configuration is damaged.

    Our own part is moved last, so the configuration of a killed process still counts as damaged.
    """
    for name in ("objects", "refs"):
        permissions.make_folder(folder / name)
    for name in ("HEAD", "config", _OWN_CONFIG):
        (source / name).replace(folder / name)


def _is_configured(places: Places, folder: Path) -> bool:
    try:
        head, config, settings = ((folder / name).read_bytes() for name in ("HEAD", "config", _OWN_CONFIG))
    except FileNotFoundError:
        return False
    if not all((folder / name).is_dir() for name in ("objects", "refs")):
        return False
    is_complete = head.startswith(b"ref: refs/heads/") and config.endswith(_INCLUDE.encode())
    return is_complete and settings == _own_settings(places, folder).encode()

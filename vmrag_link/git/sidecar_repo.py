"""Repositories beside ours with our configuration, and so the same remotes.

Nothing of them gets into ours. What our configuration says on a condition, such as the credentials
of a runner, they do not see: `git.credentials` hands it over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks, permissions
from vmrag_link.git import configuration, sharing
from vmrag_link.git.run import demand, failure, git_in
from vmrag_link.paths import Places

_PATIENCE = 30.0
_LOOSE, _PACKS = 1000, 50
"""How many loose objects (counted in one of 256 folders) or packs git does not put together yet."""

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


def make(places: Places, folder: Path) -> Places:
    """A bare repository in an empty directory.

    git runs in our work tree all the same, because remotes may have relative paths.
    """
    kind = configuration.object_format(places)
    apart = at(places, folder)
    arguments = ("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", *_shared(places), str(folder))
    done = git_in(folder, *arguments)
    if done.returncode != 0:
        raise failure(arguments, done)
    own = folder / "config.own"
    permissions.make_file(own)
    own.write_text(_SETTINGS.format(code=os.path.relpath(places.common / "config", folder), loose=_LOOSE))
    with (folder / "config").open("a") as config:
        config.write(f"[include]\n\tpath = {own.name}\n")
    return apart


def tidy(apart: Places) -> None:
    """Let git pack the objects, because nothing else ever does here; it is not asked where there
    are few.
    """
    there = apart.common / "objects"
    loose, packs = (sum(1 for _ in there.glob(each)) for each in ("17/*", "pack/*.pack"))
    if loose > _LOOSE // 256 or packs > _PACKS:
        demand(apart, "gc", "--auto", "--quiet")


def _shared(places: Places) -> list[str]:
    """As open as our other folders; git itself sees to that from now on."""
    mode = sharing.folder_mode(sharing.setting(places))
    return [f"--shared=0{mode & 0o666:o}"] if mode else []


@contextlib.contextmanager
def incoming(places: Places, store: Places, folder: Path) -> Iterator[Places]:
    """A repository for fetched objects that are not checked yet; it sees the objects of `store`.

    It is removed at the end with everything that `keep` has not moved. The caller ensures that
    nobody else uses the folder.
    """
    shutil.rmtree(folder, ignore_errors=True)  # somebody was killed over it
    permissions.make_folder(folder)
    try:
        made = make(places, folder)
        see(made, store)
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what is left is cleared by the next one


def keep(source: Places, store: Places) -> None:
    """Move all objects of an `incoming` repository to the store.

    A pack's index goes last, because it makes the pack count.
    """
    objects = source.common / "objects"
    for file in sorted(objects.glob("*/*"), key=lambda each: each.suffix == ".idx"):
        if file.parent.name != "info" and file.is_file():
            to = store.common / file.relative_to(source.common)
            permissions.make_folder(to.parent)
            file.replace(to)


def at(places: Places, folder: Path) -> Places:
    """The repository that `make` made there."""
    return Places(places.top, folder, folder, code=places.code or places)


def add_alternates(places: Places, apart: Places) -> None:
    """Let it see our objects, so that it need not fetch them again."""
    if not (places.common / "shallow").exists():  # git takes what such a clone has for whole histories
        see(apart, places)


def see(apart: Places, *others: Places) -> None:
    """Let a repository see the objects of these, and of no others but its own."""
    alternates = apart.common / "objects" / "info" / "alternates"
    permissions.make_file(alternates)
    alternates.write_text("".join(f"{each.common / 'objects'}\n" for each in dict.fromkeys(others)))


def lasting(places: Places, folder: Path) -> Places:
    """The repository there, made if it is missing. A kill leaves none that is half made."""
    if not _is_made(folder):
        with locks.exclusive(places.locks / f"{folder.name}.lock", purpose=f"make {folder.name}", timeout=_PATIENCE):
            if not _is_made(folder):
                unfinished = folder.with_name(f"{folder.name}.unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)  # somebody was killed over it
                permissions.make_folder(unfinished)
                make(places, unfinished)
                unfinished.rename(folder)
    return at(places, folder)


def _is_made(folder: Path) -> bool:
    return (folder / "config.own").exists()

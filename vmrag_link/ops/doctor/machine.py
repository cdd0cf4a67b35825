"""What the machine gives: git, `vmrag` itself, the programs and the kernel that both rely on, room
on the disk, and the right to write where something has to be written; and what processes hold
there, or dead ones left: locks, leases, temporary files, git directories.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from vmrag_link import __version__, locks, proc
from vmrag_link.chroma import bindings
from vmrag_link.conversion.child import serving
from vmrag_link.engines import opening
from vmrag_link.engines.base import DOLT_FOLDER, DOLTLITE_FILE, detect_engine
from vmrag_link.errors import ConfigInvalid, DoltMissing, EngineFailed, FileFailed, quoted, shortened
from vmrag_link.git import refs, sidecar_repo
from vmrag_link.git.run import run_git, unlock_hint
from vmrag_link.index.directories import BUILDING_PREFIX
from vmrag_link.index.views import list_segments
from vmrag_link.ops.doctor.findings import DOCTOR, Finding, Level, Topic
from vmrag_link.ops.gc import garbage
from vmrag_link.ops.status.cautions import check_path_length
from vmrag_link.paths import Places, measure_size, read_recorded_path, require_folders
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace

GIT_NEEDED = (2, 34)
"""`git add --sparse` came with it, which stages a pin that a sparse work tree leaves out."""
MEGABYTE = 1_000_000


def _check_programs(ws: Workspace) -> Iterator[Finding]:
    yield from _check_git(ws)
    yield from _check_path()
    yield from _check_engine(ws)
    yield from _check_conversion()
    yield from _check_chroma(ws)


def _check_git(ws: Workspace) -> Iterator[Finding]:
    said = run_git(ws.places, "version").text
    found = re.search(r"(\d+)\.(\d+)", said)
    if found and (int(found[1]), int(found[2])) < GIT_NEEDED:
        needed = ".".join(map(str, GIT_NEEDED))
        message = f"git is of version {found[0]}; what vmrag asks of it needs {needed}."
        yield Finding("GIT_TOO_OLD", "error", message, f"Install git {needed} or newer: https://git-scm.com", "git")


def _check_engine(ws: Workspace) -> Iterator[Finding]:
    """Whether this machine can run the engine of the knowledge base, or of the one to come."""
    there = detect_engine(ws.places.kb)
    try:
        opening.require_runnable(there or ws.config.engine, ws.settings.dolt_access)
    except (ConfigInvalid, DoltMissing, EngineFailed) as error:
        yield Finding(error.code, "error" if there else "warning", error.message, error.hint, str(ws.places.kb))
    if there == "dolt" and find_spec("doltcli") is None:
        from vmrag_link.engines.dolt import program

        message = "doltcli is not installed: Dolt's program is run without it."
        install = program.how_to_install_doltcli(sys.version_info[:2])
        yield Finding("DOLTCLI_MISSING", "note", message, f"{shlex.quote(sys.executable)} -m {install}")


def _check_chroma(ws: Workspace) -> Iterator[Finding]:
    """A store that nobody asked for is off without chromadb, which takes nothing from answers."""
    if not ws.chroma.local.is_set or (error := bindings.find_unsupported()) is None:
        return
    fix = f"{shlex.quote(sys.executable)} -m {error.hint}" if error.hint.startswith("pip ") else error.hint
    message = f"{error.message} The setting index.chroma asks for this store."
    yield Finding(error.code, "warning", message, fix, "chroma")


def _check_path() -> Iterator[Finding]:
    """A `vmrag` beside the interpreter that runs this needs no look inside."""
    own = Path(sys.executable).with_name("vmrag")
    path = shutil.which("vmrag")
    if path is None:
        message = "There is no vmrag on PATH: the commands in vmrag's messages cannot be run as they stand."
        yield Finding("PATH_WITHOUT_VMRAG", "note", message, f'export PATH={shlex.quote(str(own.parent))}:"$PATH"')
    elif not (own.exists() and own.samefile(path)):
        said = proc.run([path, "--version"]).text.split() if path == proc.find_program("vmrag") else []
        if __version__ not in said:
            version = next(iter(said[2:]), "unknown")  # vmrag, version 0.2.0
            message = f"The vmrag on PATH, {path}, is of version {version}; this one is {__version__}."
            fix = f'export PATH={shlex.quote(str(own.parent))}:"$PATH"'
            yield Finding("PATH_OTHER_VERSION", "warning", message, fix, path)


def _check_conversion() -> Iterator[Finding]:
    if missing := serving.list_missing_limits():
        message = (
            f"Files are converted without {' and without '.join(missing)}, which this system does not have: "
            "a library in C that a file breaks is not kept from your files or from programs."
        )
        fix = "Import PDF and Office files of strangers on Linux 5.13 or newer, on x86_64 or aarch64."
        yield Finding("CONVERSION_LESS_CONFINED", "note", message, fix)


def _check_disk(ws: Workspace) -> Iterator[Finding]:
    yield from _check_folders(ws)
    yield from _check_rights(ws)
    yield from _check_writable(ws)
    yield from _check_room(ws)
    if error := check_path_length(ws):
        yield Finding("PATH_TOO_LONG", "warning", error.message, error.hint)


def _check_folders(ws: Workspace) -> Iterator[Finding]:
    for folder in ws.places.folders:
        try:
            require_folders(folder)
        except FileFailed as error:
            yield Finding("NO_FOLDER", "error", error.message, error.hint, str(folder))


def _check_rights(ws: Workspace) -> Iterator[Finding]:
    for folder in sidecar_repo.list_too_open(ws.places):
        message = (
            f"Other users of this machine can look into {folder}: they read it, and may stop every write by a lock."
        )
        yield Finding("OPEN_TO_OTHERS", "warning", message, DOCTOR, str(folder))
    for folder in sidecar_repo.list_too_closed(ws.places):
        message = (
            f"{sidecar_repo.SHARED_KEY} shares this repository, but other users cannot use {folder}: "
            "its permissions were changed, or it is older than the setting."
        )
        fix = f"chmod -R g+rwX {quoted(folder)} && find {quoted(folder)} -type d -exec chmod g+s {{}} +"
        yield Finding("NOT_SHARED", "note", message, fix, str(folder))


def _close(ws: Workspace, finding: Finding) -> str:
    sidecar_repo.tighten_folders(ws.places)
    return f"Took the rights of others away from {finding.subject}."


def _check_writable(ws: Workspace) -> Iterator[Finding]:
    places = ws.places
    folders = [places.git_dir, places.shared, places.kb, places.views, places.segments, places.working_copies]
    folders += [places.journal, places.locks, places.work_tree_folder, places.local_kb, places.chroma]
    files = [places.kb / DOLTLITE_FILE, places.kb / DOLT_FOLDER, places.local_kb / DOLTLITE_FILE, places.embeddings]
    paths = [*dict.fromkeys(folders), *files]
    if os.statvfs(places.git_dir).f_flag & os.ST_RDONLY:
        message = f"The file system of {places.git_dir} is read-only: vmrag answers queries, but cannot store anything."
        yield Finding("READ_ONLY", "error", message, f"df {quoted(places.git_dir)}", str(places.git_dir))
        return
    for path in paths:
        if path.exists() and not os.access(path, os.W_OK):
            message = f"{path} cannot be written: nothing that would be stored there is."
            yield Finding("READ_ONLY", "error", message, f"chmod u+w {quoted(path)}", str(path))


def _check_room(ws: Workspace) -> Iterator[Finding]:
    """An index is built beside the present one, and `vmrag gc` writes the knowledge base anew."""
    bound = ws.binding
    index = sum(list_segments(ws.places.views / bound.view).values()) if bound else 0
    needed = max(2 * index, measure_size(ws.places.kb))
    folder = ws.places.shared if ws.places.shared.exists() else ws.places.common
    free = shutil.disk_usage(folder).free
    enough = max(needed, garbage.CROWDED_BYTES)
    if free < enough:
        level: Level = "error" if free < garbage.CROWDED_BYTES else "warning"
        message = f"{free / MEGABYTE:.0f} MB are free; to build the index again may take {enough / MEGABYTE:.0f} MB."
        yield Finding("DISK_FULL", level, message, "vmrag gc --apply", str(folder))


PROGRAMS = Topic("programs", _check_programs)
DISK = Topic("disk", _check_disk, {"OPEN_TO_OTHERS": _close})


GIT_LOCK_SECONDS = 60
"""No git command holds its index that long, but for one that waits in an editor."""

BRIEF_SECONDS = 1
LONG_SECONDS = 600

_HOLDER = ".holder"


def check_locks(ws: Workspace) -> Iterator[Finding]:
    yield from _ours(ws.places)
    yield from _git(ws.places)


def _ours(places: Places) -> Iterator[Finding]:
    folders = dict.fromkeys((*places.folders, *(git_dir / "vmrag" for git_dir in refs.list_git_dirs(places)[1:])))
    names = (path for folder in folders for path in sorted(folder.glob(f"*{_HOLDER}")))
    for path in (path for path in names if not path.name.startswith(BUILDING_PREFIX)):  # those are leftovers
        with contextlib.suppress(FileNotFoundError):  # it is given back right now
            yield from _holder(path, time.time() - path.stat().st_mtime)


def _holder(path: Path, seconds: float) -> Iterator[Finding]:
    lock = path.with_name(path.name.removesuffix(_HOLDER))
    if not locks.is_held(lock):
        if path.exists():
            message = f"{path.name} names a process that holds nothing any more."
            yield Finding("HOLDER_STALE", "note", message, f"rm -f {quoted(path)}", str(lock))
    elif seconds >= BRIEF_SECONDS:
        pid, purpose = locks.read_holder(lock) or (None, "to an end that it did not name")
        who = f"Process {pid}" if pid else "A process"
        message = f"{who} has held {lock.name} for {seconds:.0f} s, to {purpose}."
        look = f"ps -fp {pid}" if pid else f"fuser -v {quoted(lock)}"
        yield Finding("LOCK_HELD", "note" if seconds < LONG_SECONDS else "warning", message, look, str(lock))


def _release(ws: Workspace, finding: Finding) -> str:  # noqa: ARG001  as all repairs
    with locks.hold_exclusive(Path(finding.subject), purpose="tidy up", timeout=0):
        pass  # giving a lock back removes its name
    return "Removed the name."


def _git(places: Places) -> Iterator[Finding]:
    """The locks of git itself are files, which a killed git leaves behind."""
    own = [places.git_dir / name for name in ("index.lock", "HEAD.lock")]
    for path in (*own, places.common / "config.lock", places.common / "packed-refs.lock"):
        with contextlib.suppress(FileNotFoundError):
            seconds = time.time() - path.stat().st_mtime
            if seconds > GIT_LOCK_SECONDS:
                message = (
                    f"git's {path.name} has been there for {seconds / 60:.0f} min: unless a git command runs, one died."
                )
                yield Finding("GIT_LOCK_STALE", "warning", message, unlock_hint(path), str(path))


def check_leftovers(ws: Workspace) -> Iterator[Finding]:
    """Leftover files."""
    yield from _work_trees(ws.places)
    yield from _leases(ws.places)
    if ws.is_initialized:
        files = garbage.list_stray_files(ws)
        if files:
            size = sum(map(measure_size, files))
            names = ", ".join(path.name for path in files[:3]) + " …" * (len(files) > 3)  # noqa: PLR2004
            message = f"Killed processes left {len(files)} files or folders ({size / 1_000_000:.1f} MB): {names}"
            yield Finding("LEFTOVERS", "note", message, "vmrag gc --apply", str(ws.places.shared))


def _sweep(ws: Workspace, _: Finding) -> str:
    return f"Removed {', '.join(garbage.remove_leftovers(ws).files.names)}."


def _work_trees(places: Places) -> Iterator[Finding]:
    """`git worktree lock` says that one may be away, on a disk that is not mounted say."""
    for git_dir in refs.list_git_dirs(places)[1:]:
        tree = lease.find_work_tree(git_dir)
        if not tree.is_dir() and not (git_dir / "locked").exists():
            message = f"The work tree {tree} is gone; what git knows of it keeps its index from being removed."
            yield Finding("WORK_TREE_GONE", "note", message, "git worktree prune", str(git_dir))


def _leases(places: Places) -> Iterator[Finding]:
    for path in sorted((places.shared / "leases").glob("[0-9a-f]" * lease.NAME_LENGTH)):
        git_dir = read_recorded_path(path)
        if git_dir is None:
            message = "A file that reserves a branch's documents for a work tree is damaged."
            yield Finding("LEASE_STALE", "note", message, "vmrag sync", str(path))
        elif not os.path.isdir(git_dir) or not lease.find_work_tree(git_dir).is_dir():  # noqa: PTH112  no error for any path
            message = f"A branch's documents are reserved for a work tree that is gone ({shortened(str(git_dir))})."
            yield Finding("LEASE_STALE", "note", message, "vmrag sync", str(path))


def _sweep_leases(ws: Workspace, _: Finding) -> str:
    lease.remove_stale_leases(ws.places)
    return "Removed the reservation."


LOCKS = Topic("locks", check_locks, {"HOLDER_STALE": _release})
LEFTOVERS = Topic("leftovers", check_leftovers, {"LEASE_STALE": _sweep_leases, "LEFTOVERS": _sweep})

"""Check the machine: git, `vmrag`, programs, the kernel, disk space and permissions.

It also checks what processes hold or dead ones left: locks, leases, temporary files, git
directories.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from vmrag_link import __version__, hints, locks, proc
from vmrag_link.chroma import bindings
from vmrag_link.conversion.child import serving
from vmrag_link.engines import opening
from vmrag_link.engines.base import DOLT_FOLDER, DOLTLITE_FILE, detect_engine
from vmrag_link.errors import ConfigInvalid, DoltMissing, EngineFailed, FileFailed, quoted, shortened
from vmrag_link.file_access import measure_size, read_recorded_path, require_folders
from vmrag_link.git import folder_modes, refs
from vmrag_link.git.run import run_git, unlock_hint
from vmrag_link.index.directories import BUILDING_PREFIX
from vmrag_link.index.views import list_segments
from vmrag_link.ops.doctor.findings import DOCTOR, Finding, Level, Topic
from vmrag_link.ops.gc import garbage
from vmrag_link.ops.status.cautions import check_path_length
from vmrag_link.paths import Places
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace

GIT_NEEDED = (2, 34)
"""The first version with `git add --sparse`, which stages a pin outside a sparse checkout."""
MEGABYTE = 1_000_000


def _check_programs(ws: Workspace) -> Iterator[Finding]:
    yield from _check_git(ws)
    yield from _check_path()
    yield from _check_engine(ws)
    yield from _check_conversion()
    yield from _check_chroma(ws)


def _check_git(ws: Workspace) -> Iterator[Finding]:
    output = run_git(ws.places, "version").text
    match = re.search(r"(\d+)\.(\d+)", output)
    if match and (int(match[1]), int(match[2])) < GIT_NEEDED:
        needed = ".".join(map(str, GIT_NEEDED))
        message = f"git has the version {match[0]}, but vmrag needs {needed}."
        yield Finding("GIT_TOO_OLD", "error", message, f"install git {needed} or newer (https://git-scm.com)", "git")


def _check_engine(ws: Workspace) -> Iterator[Finding]:
    """Check that this machine can run the engine of the knowledge base, or of the future one."""
    existing = detect_engine(ws.places.kb)
    try:
        opening.require_runnable(existing or ws.config.engine, ws.settings.dolt_access)
    except (ConfigInvalid, DoltMissing, EngineFailed) as error:
        yield Finding(error.code, "error" if existing else "warning", error.message, error.hint, str(ws.places.kb))
    if existing == "dolt" and find_spec("doltcli") is None:
        from vmrag_link.engines.dolt import program

        message = "doltcli is not installed, so vmrag runs Dolt's program without it."
        install = program.how_to_install_doltcli(sys.version_info[:2])
        yield Finding("DOLTCLI_MISSING", "note", message, f"run '{quoted(sys.executable)} -m {install}' to install it")


def _check_chroma(ws: Workspace) -> Iterator[Finding]:
    """Check for chromadb if the user enabled its store. Otherwise the store is off, which does not
    affect answers.
    """
    if not ws.chroma.local.is_set or (error := bindings.find_unsupported()) is None:
        return
    fix = error.hint.replace("run 'pip ", f"run '{quoted(sys.executable)} -m pip ")
    message = f"{error.message} The setting index.chroma enables this store."
    yield Finding(error.code, "warning", message, fix, "chroma")


def _check_path() -> Iterator[Finding]:
    """Check that `vmrag` on PATH is this version. One next to this interpreter is."""
    own_program = Path(sys.executable).with_name("vmrag")
    path = shutil.which("vmrag")
    if path is None:
        message = "vmrag is not on PATH, so you cannot run the commands in its messages unchanged."
        yield Finding(
            "PATH_WITHOUT_VMRAG", "note", message, f"run 'export PATH={quoted(str(own_program.parent))}:\"$PATH\"'"
        )
    elif not (own_program.exists() and own_program.samefile(path)):
        words = proc.run([path, "--version"]).text.split() if path == proc.find_program("vmrag") else []
        if __version__ not in words:
            version = next(iter(words[2:]), "unknown")  # vmrag, version 0.2.0
            message = f"the vmrag on PATH, {path}, has version {version}; this one has {__version__}."
            fix = f"run 'export PATH={quoted(str(own_program.parent))}:\"$PATH\"'"
            yield Finding("PATH_OTHER_VERSION", "warning", message, fix, path)


def _check_conversion() -> Iterator[Finding]:
    if missing := serving.list_missing_limits():
        message = (
            f"files are converted without {' and without '.join(missing)}, which this system lacks: "
            "a malicious file that exploits a C library could access your files and run programs."
        )
        fix = "import untrusted PDF and Office files on Linux 5.13 or newer, on x86_64 or aarch64"
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
    for folder in folder_modes.list_too_open(ws.places):
        message = f"other users of this machine can read {folder}, and can block every write with a lock."
        yield Finding("OPEN_TO_OTHERS", "warning", message, DOCTOR, str(folder))
    for folder in folder_modes.list_too_closed(ws.places):
        message = (
            f"{folder_modes.SHARED_KEY} shares this repository, but other users cannot use {folder}: "
            "its permissions were changed, or it is older than the setting."
        )
        fix = f"run 'chmod -R g+rwX {quoted(folder)} && find {quoted(folder)} -type d -exec chmod g+s {{}} +'"
        yield Finding("NOT_SHARED", "note", message, fix, str(folder))


def _close_folder(ws: Workspace, finding: Finding) -> str:
    folder_modes.tighten_folders(ws.places)
    return f"removed the permissions of others from {finding.subject}."


def _check_writable(ws: Workspace) -> Iterator[Finding]:
    places = ws.places
    folders = [places.git_dir, places.shared, places.kb, places.views, places.segments, places.working_copies]
    folders += [places.journal, places.locks, places.work_tree_folder, places.local_kb, places.chroma]
    files = [places.kb / DOLTLITE_FILE, places.kb / DOLT_FOLDER, places.local_kb / DOLTLITE_FILE, places.embeddings]
    paths = [*dict.fromkeys(folders), *files]
    if os.statvfs(places.git_dir).f_flag & os.ST_RDONLY:
        message = (
            f"the file system of {places.git_dir} is read-only, so vmrag can answer queries, but cannot store anything."
        )
        yield Finding(
            "READ_ONLY",
            "error",
            message,
            f"run 'df {quoted(places.git_dir)}' to see the file system",
            str(places.git_dir),
        )
        return
    for path in paths:
        if path.exists() and not os.access(path, os.W_OK):
            message = f"{path} cannot be written, so vmrag cannot store anything in it."
            yield Finding(
                "READ_ONLY", "error", message, f"run 'chmod u+w {quoted(path)}' to make it writable", str(path)
            )


def _check_room(ws: Workspace) -> Iterator[Finding]:
    """Check the free space. A new index is built next to the present one, and `vmrag gc` rewrites
    the knowledge base.
    """
    bound = ws.binding
    index = sum(list_segments(ws.places.views / bound.view).values()) if bound else 0
    needed = max(2 * index, measure_size(ws.places.kb))
    folder = ws.places.shared if ws.places.shared.exists() else ws.places.common
    free = shutil.disk_usage(folder).free
    enough = max(needed, garbage.CROWDED_BYTES)
    if free < enough:
        level: Level = "error" if free < garbage.CROWDED_BYTES else "warning"
        message = f"{free / MEGABYTE:.0f} MB are free, but a rebuild of the index may need {enough / MEGABYTE:.0f} MB."
        yield Finding("DISK_FULL", level, message, "run 'vmrag gc --apply' to remove them", str(folder))


PROGRAMS = Topic("programs", _check_programs)
DISK = Topic("disk", _check_disk, {"OPEN_TO_OTHERS": _close_folder})


GIT_LOCK_SECONDS = 60
"""No git command holds its index this long, except one that waits for an editor."""

BRIEF_SECONDS = 1
LONG_SECONDS = 600

_HOLDER = ".holder"


def check_locks(ws: Workspace) -> Iterator[Finding]:
    """Check locks that are held for a long time, and names of processes that hold nothing."""
    yield from _check_own_locks(ws.places)
    yield from _check_git_locks(ws.places)


def _check_own_locks(places: Places) -> Iterator[Finding]:
    folders = dict.fromkeys((*places.folders, *(git_dir / "vmrag" for git_dir in refs.list_git_dirs(places)[1:])))
    names = (path for folder in folders for path in sorted(folder.glob(f"*{_HOLDER}")))
    for path in (
        path for path in names if not path.name.startswith(BUILDING_PREFIX)
    ):  # those are reported as leftovers
        with contextlib.suppress(FileNotFoundError):  # it is being released
            yield from _check_holder(path, time.time() - path.stat().st_mtime)


def _check_holder(path: Path, seconds: float) -> Iterator[Finding]:
    lock = path.with_name(path.name.removesuffix(_HOLDER))
    if not locks.is_held(lock):
        if path.exists():
            message = f"{path.name} names a process that no longer holds a lock."
            yield Finding("HOLDER_STALE", "note", message, f"run 'rm -f {quoted(path)}' to remove it", str(lock))
    elif seconds >= BRIEF_SECONDS:
        pid, purpose = locks.read_holder(lock) or (None, "do something unnamed")
        label = f"process {pid}" if pid else "a process"
        message = f"{label} has held {lock.name} for {seconds:.0f} s, to {purpose}."
        look = hints.suggest_command(f"ps -fp {pid}" if pid else f"fuser -v {quoted(lock)}", "see the process")
        yield Finding("LOCK_HELD", "note" if seconds < LONG_SECONDS else "warning", message, look, str(lock))


def _release_lock(ws: Workspace, finding: Finding) -> str:  # noqa: ARG001  the signature of a repair
    with locks.hold_exclusive(Path(finding.subject), purpose="tidy up", timeout=0):
        pass  # releasing a lock removes its name
    return "removed the name of the process."


def _check_git_locks(places: Places) -> Iterator[Finding]:
    """Check git's lock files, which a killed git leaves behind."""
    own_locks = [places.git_dir / name for name in ("index.lock", "HEAD.lock")]
    for path in (*own_locks, places.common / "config.lock", places.common / "packed-refs.lock"):
        with contextlib.suppress(FileNotFoundError):
            seconds = time.time() - path.stat().st_mtime
            if seconds > GIT_LOCK_SECONDS:
                message = f"git's {path.name} has existed for {seconds / 60:.0f} min. If no git command is running, one was killed."
                yield Finding("GIT_LOCK_STALE", "warning", message, unlock_hint(path), str(path))


def check_leftovers(ws: Workspace) -> Iterator[Finding]:
    """Check for leftover files, work trees and leases."""
    yield from _check_work_trees(ws.places)
    yield from _check_leases(ws.places)
    if ws.is_initialized:
        files = garbage.list_stray_files(ws)
        if files:
            size = sum(map(measure_size, files))
            names = ", ".join(path.name for path in files[:3]) + " …" * (len(files) > 3)  # noqa: PLR2004
            message = f"killed processes left {len(files)} files or folders ({size / 1_000_000:.1f} MB): {names}"
            yield Finding("LEFTOVERS", "note", message, "run 'vmrag gc --apply' to remove them", str(ws.places.shared))


def _remove_leftovers(ws: Workspace, _: Finding) -> str:
    return f"removed {', '.join(garbage.remove_leftovers(ws).files.names)}."


def _check_work_trees(places: Places) -> Iterator[Finding]:
    """Find deleted work trees. One with `git worktree lock` may be on a disk that is
    not mounted.
    """
    for git_dir in refs.list_git_dirs(places)[1:]:
        tree = lease.find_work_tree(git_dir)
        if not tree.is_dir() and not (git_dir / "locked").exists():
            message = f"the worktree {tree} was deleted, but git still lists it, so its index is kept."
            yield Finding("WORK_TREE_GONE", "note", message, "run 'git worktree prune' to remove it", str(git_dir))


def _check_leases(places: Places) -> Iterator[Finding]:
    for path in sorted((places.shared / "leases").glob("[0-9a-f]" * lease.NAME_LENGTH)):
        git_dir = read_recorded_path(path)
        if git_dir is None:
            message = "a file that reserves a branch's documents for a worktree is damaged."
            yield Finding("LEASE_STALE", "note", message, "run 'vmrag sync' to sync to the pin", str(path))
        elif not os.path.isdir(git_dir) or not lease.find_work_tree(git_dir).is_dir():  # noqa: PTH112  no error for any path
            message = f"a branch's documents are reserved for a deleted worktree ({shortened(str(git_dir))})."
            yield Finding("LEASE_STALE", "note", message, "run 'vmrag sync' to sync to the pin", str(path))


def _remove_leases(ws: Workspace, _: Finding) -> str:
    lease.remove_stale_leases(ws.places)
    return "removed the reservation."


LOCKS = Topic("locks", check_locks, {"HOLDER_STALE": _release_lock})
LEFTOVERS = Topic("leftovers", check_leftovers, {"LEASE_STALE": _remove_leases, "LEFTOVERS": _remove_leftovers})

"""Check the machine for `vmrag doctor`: git, `vmrag`, programs, the kernel, disk space and
permissions.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from vmrag_link import __version__, proc
from vmrag_link.chroma import bindings
from vmrag_link.conversion.child import serving
from vmrag_link.engines import opening
from vmrag_link.engines.folder import DOLT_FOLDER, DOLTLITE_FILE, detect_engine
from vmrag_link.errors import ConfigInvalid, DoltMissing, EngineFailed, FileFailed, quoted
from vmrag_link.file_access import measure_size, require_folders
from vmrag_link.git import folder_modes
from vmrag_link.git.run import run_git
from vmrag_link.index.views import list_segments
from vmrag_link.ops.doctor.findings import DOCTOR_HINT, Finding, Level, Topic
from vmrag_link.ops.gc import garbage
from vmrag_link.ops.status.cautions import check_path_length
from vmrag_link.workspace import Workspace

MIN_GIT_VERSION = (2, 34)
"""The first version with `git add --sparse`, which stages a pin outside a sparse checkout."""
MEGABYTE_BYTES = 1_000_000


def _check_programs(ws: Workspace) -> Iterator[Finding]:
    yield from _check_git(ws)
    yield from _check_path()
    yield from _check_engine(ws)
    yield from _check_conversion()
    yield from _check_chroma(ws)


def _check_git(ws: Workspace) -> Iterator[Finding]:
    output = run_git(ws.places, "version").text
    match = re.search(r"(\d+)\.(\d+)", output)
    if match and (int(match[1]), int(match[2])) < MIN_GIT_VERSION:
        needed = ".".join(map(str, MIN_GIT_VERSION))
        message = f"git has the version {match[0]}, but vmrag needs {needed}."
        yield Finding("GIT_TOO_OLD", "error", message, f"install git {needed} or newer (https://git-scm.com)", "git")


def _check_path() -> Iterator[Finding]:
    """Check that `vmrag` on PATH is this version, as the one next to this interpreter is."""
    own_program = Path(sys.executable).with_name("vmrag")
    fix = f"run 'export PATH={quoted(str(own_program.parent))}:\"$PATH\"'"
    path = shutil.which("vmrag")
    if path is None:
        message = "vmrag is not on PATH, so you cannot run the commands in its messages unchanged."
        yield Finding("PATH_WITHOUT_VMRAG", "note", message, fix)
    elif not (own_program.exists() and own_program.samefile(path)):
        is_runnable = path == proc.find_program("vmrag")  # not a program of a working tree
        words = proc.run([path, "--version"]).text.split() if is_runnable else []
        if __version__ not in words:
            version = next(iter(words[2:]), "unknown")  # vmrag, version 0.2.0
            message = f"the vmrag on PATH, {path}, has version {version}; this one has {__version__}."
            yield Finding("PATH_OTHER_VERSION", "warning", message, fix, path)


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


def _check_conversion() -> Iterator[Finding]:
    missing_limits = serving.list_missing_limits()
    if missing_limits:
        message = (
            f"files are converted without {' and without '.join(missing_limits)}, which this system lacks: "
            "a malicious file that exploits a C library could access your files and run programs."
        )
        fix = "import untrusted PDF and Office files on Linux 5.13 or newer, on x86_64 or aarch64"
        yield Finding("CONVERSION_LESS_CONFINED", "note", message, fix)


def _check_chroma(ws: Workspace) -> Iterator[Finding]:
    """Check for chromadb, if the user enabled stores for Chroma's clients."""
    error = bindings.find_unsupported() if ws.chroma.local.is_set else None
    if error is None:
        return
    fix = error.hint.replace("run 'pip ", f"run '{quoted(sys.executable)} -m pip ")
    message = f"{error.message} The setting index.chroma enables this store."
    yield Finding(error.code, "warning", message, fix, "chroma")


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
        yield Finding("OPEN_TO_OTHERS", "warning", message, DOCTOR_HINT, str(folder))
    for folder in folder_modes.list_too_closed(ws.places):
        message = (
            f"{folder_modes.SHARED_KEY} shares this repository, but other users cannot use {folder}: "
            "its permissions were changed, or it is older than the setting."
        )
        fix = f"run 'chmod -R g+rwX {quoted(folder)} && find {quoted(folder)} -type d -exec chmod g+s {{}} +'"
        yield Finding("NOT_SHARED", "note", message, fix, str(folder))


def _check_writable(ws: Workspace) -> Iterator[Finding]:
    places = ws.places
    if os.statvfs(places.git_dir).f_flag & os.ST_RDONLY:
        message = (
            f"the file system of {places.git_dir} is read-only, so vmrag can answer queries, but cannot store anything."
        )
        fix = f"run 'df {quoted(places.git_dir)}' to see the file system"
        yield Finding("READ_ONLY", "error", message, fix, str(places.git_dir))
        return
    folders = [places.git_dir, places.shared, places.kb, places.views, places.segments, places.working_copies]
    folders += [places.journal, places.locks, places.work_tree_folder, places.local_kb, places.chroma]
    files = [places.kb / DOLTLITE_FILE, places.kb / DOLT_FOLDER, places.local_kb / DOLTLITE_FILE, places.embeddings]
    for path in dict.fromkeys((*folders, *files)):
        if path.exists() and not os.access(path, os.W_OK):
            message = f"{path} cannot be written, so vmrag cannot store anything in it."
            fix = f"run 'chmod u+w {quoted(path)}' to make it writable"
            yield Finding("READ_ONLY", "error", message, fix, str(path))


def _check_room(ws: Workspace) -> Iterator[Finding]:
    """Check the free space. A new index is built next to the present one, and `vmrag gc` rewrites
    the knowledge base.
    """
    binding = ws.binding
    index_bytes = sum(list_segments(ws.places.views / binding.view).values()) if binding else 0
    folder = ws.places.shared if ws.places.shared.exists() else ws.places.common
    free = shutil.disk_usage(folder).free
    enough = max(2 * index_bytes, measure_size(ws.places.kb), garbage.MIN_FREE_BYTES)
    if free < enough:
        level: Level = "error" if free < garbage.MIN_FREE_BYTES else "warning"
        message = f"{free / MEGABYTE_BYTES:.0f} MB are free, but a rebuild of the index may need {enough / MEGABYTE_BYTES:.0f} MB."
        yield Finding("DISK_FULL", level, message, "run 'vmrag gc --apply' to remove them", str(folder))


def _close_folder(ws: Workspace, finding: Finding) -> str:
    folder_modes.tighten_folders(ws.places)
    return f"removed the permissions of others from {finding.subject}."


PROGRAMS = Topic("programs", _check_programs)
DISK = Topic("disk", _check_disk, {"OPEN_TO_OTHERS": _close_folder})

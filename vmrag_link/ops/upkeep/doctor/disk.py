"""Whether there is room to build an index, and whether what has to be written can be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from vmrag_link.engines.base import DOLT_FOLDER, DOLTLITE_FILE
from vmrag_link.errors import FileFailed, quoted
from vmrag_link.git import sharing
from vmrag_link.index.views import segments_of
from vmrag_link.ops.upkeep import garbage
from vmrag_link.ops.upkeep.doctor.findings import DOCTOR, Finding, Level, Topic
from vmrag_link.paths import require_folders, size_of
from vmrag_link.workspace import Workspace

MEGABYTE = 1_000_000


def check(ws: Workspace) -> Iterator[Finding]:
    yield from _folders(ws)
    yield from _openness(ws)
    yield from _writable(ws)
    yield from _room(ws)


def _folders(ws: Workspace) -> Iterator[Finding]:
    for folder in ws.places.folders:
        try:
            require_folders(folder)
        except FileFailed as error:
            yield Finding("NO_FOLDER", "error", error.message, error.hint, str(folder))


def _openness(ws: Workspace) -> Iterator[Finding]:
    for folder in sharing.too_open(ws.places):
        message = (
            f"Other users of this machine can look into {folder}: they read it, and may stop every write by a lock."
        )
        yield Finding("OPEN_TO_OTHERS", "warning", message, DOCTOR, str(folder))
    for folder in sharing.too_closed(ws.places):
        message = f"{sharing.KEY} shares this repository, and others cannot use {folder}: somebody closed it, or it was made before."
        fix = f"chmod -R g+rwX {quoted(folder)} && find {quoted(folder)} -type d -exec chmod g+s {{}} +"
        yield Finding("NOT_SHARED", "note", message, fix, str(folder))


def _close(ws: Workspace, finding: Finding) -> str:
    sharing.tighten(ws.places)
    return f"Took the rights of others away from {finding.subject}."


def _writable(ws: Workspace) -> Iterator[Finding]:
    places = ws.places
    folders = [places.git_dir, places.shared, places.kb, places.views, places.segments, places.working_copies]
    folders += [places.journal, places.locks, places.own, places.local_kb]
    files = [places.kb / DOLTLITE_FILE, places.kb / DOLT_FOLDER, places.local_kb / DOLTLITE_FILE, places.embeddings]
    paths = [*dict.fromkeys(folders), *files]
    for path in paths:
        if path.exists() and not os.access(path, os.W_OK):
            message = f"{path} cannot be written: nothing that would be stored there is."
            yield Finding("READ_ONLY", "error", message, f"chmod u+w {quoted(path)}", str(path))


def _room(ws: Workspace) -> Iterator[Finding]:
    """An index is built beside the present one, and `vmrag gc` writes the knowledge base anew."""
    bound = ws.binding
    index = sum(segments_of(ws.places.views / bound.view).values()) if bound else 0
    needed = max(2 * index, size_of(ws.places.kb))
    folder = ws.places.shared if ws.places.shared.exists() else ws.places.common
    free = shutil.disk_usage(folder).free
    enough = max(needed, garbage.CROWDED)
    if free < enough:
        level: Level = "error" if free < garbage.CROWDED else "warning"
        message = f"{free / MEGABYTE:.0f} MB are free; to build the index again may take {enough / MEGABYTE:.0f} MB."
        yield Finding("DISK_FULL", level, message, "vmrag gc --apply", str(folder))


TOPIC = Topic("disk", check, {"OPEN_TO_OTHERS": _close})

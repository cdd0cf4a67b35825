"""git and `vmrag` themselves, what commands in messages and hooks rely on, and the kernel."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from vmrag_link import __version__, proc
from vmrag_link.chroma import bindings
from vmrag_link.conversion.child import confinement
from vmrag_link.engines import opening
from vmrag_link.engines.base import engine_of
from vmrag_link.errors import ConfigInvalid, DoltMissing, EngineFailed
from vmrag_link.git.run import git
from vmrag_link.ops.upkeep.doctor.findings import Finding, Topic
from vmrag_link.workspace import Workspace

GIT_NEEDED = (2, 34)
"""`git add --sparse` came with it, which stages a pin that a sparse work tree leaves out."""


def check(ws: Workspace) -> Iterator[Finding]:
    yield from _git(ws)
    yield from _vmrag()
    yield from _engine(ws)
    yield from _conversion()
    yield from _chroma(ws)


def _git(ws: Workspace) -> Iterator[Finding]:
    said = git(ws.places, "version").text
    found = re.search(r"(\d+)\.(\d+)", said)
    if found and (int(found[1]), int(found[2])) < GIT_NEEDED:
        needed = ".".join(map(str, GIT_NEEDED))
        message = f"git is of version {found[0]}; what vmrag asks of it needs {needed}."
        yield Finding("GIT_TOO_OLD", "error", message, f"Install git {needed} or newer: https://git-scm.com", "git")


def _engine(ws: Workspace) -> Iterator[Finding]:
    """Whether this machine can run the engine of the knowledge base, or of the one to come."""
    there = engine_of(ws.places.kb)
    try:
        opening.require(there or ws.config.engine, ws.settings.dolt_access)
    except (ConfigInvalid, DoltMissing, EngineFailed) as error:
        yield Finding(error.code, "error" if there else "warning", error.message, error.hint, str(ws.places.kb))
    if there == "dolt" and find_spec("doltcli") is None:
        from vmrag_link.engines.dolt import program

        message = "doltcli is not installed: Dolt's program is run without it."
        install = program.how_to_install_doltcli(sys.version_info[:2])
        yield Finding("DOLTCLI_MISSING", "note", message, f"{shlex.quote(sys.executable)} -m {install}")


def _chroma(ws: Workspace) -> Iterator[Finding]:
    """A store that nobody asked for is off without chromadb, which takes nothing from answers."""
    if (error := bindings.unsupported()) is None or ws.config.index.chroma == "off":
        return
    fix = f"{shlex.quote(sys.executable)} -m {error.hint}" if error.hint.startswith("pip ") else error.hint
    if ws.config.index.chroma == "auto":
        message = f"{error.message} So there is none for other Chroma clients (index.chroma: auto); answers need none."
        yield Finding(error.code, "note", message, fix, "chroma")
    else:
        message = f"{error.message} None is made, though index.chroma wants one."
        yield Finding(error.code, "warning", message, fix, "chroma")


def _vmrag() -> Iterator[Finding]:
    """A `vmrag` beside the interpreter that runs this needs no look inside."""
    own = Path(sys.executable).with_name("vmrag")
    path = shutil.which("vmrag")
    if path is None:
        message = "There is no vmrag on PATH: the commands in vmrag's messages cannot be run as they stand."
        yield Finding("PATH_WITHOUT_VMRAG", "note", message, f'export PATH={shlex.quote(str(own.parent))}:"$PATH"')
    elif not (own.exists() and own.samefile(path)):
        said = proc.run([path, "--version"]).text.split() if path == proc.find("vmrag") else []
        if __version__ not in said:
            version = next(iter(said[2:]), "unknown")  # vmrag, version 0.1.0
            message = f"The vmrag on PATH, {path}, is of version {version}; this one is {__version__}."
            fix = f'export PATH={shlex.quote(str(own.parent))}:"$PATH"'
            yield Finding("PATH_OTHER_VERSION", "warning", message, fix, path)


def _conversion() -> Iterator[Finding]:
    if missing := confinement.missing():
        message = (
            f"Files are converted without {' and without '.join(missing)}, which this system does not have: "
            "a library in C that a file breaks is not kept from your files or from programs."
        )
        fix = "Import PDF and Office files of strangers on Linux 5.13 or newer, on x86_64 or aarch64."
        yield Finding("CONVERSION_LESS_CONFINED", "note", message, fix)


TOPIC = Topic("programs", check)

"""Events that `strace` recorded of a command: which files it synced before it renamed them, and
before it removed others; which processes a hook started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cli import ROOT, VMRAG
from tests.support.repos import ON
from tests.support.terminal import Done, Project

_CALLS = "rename,renameat,renameat2,unlink,unlinkat,fsync,fdatasync,write,pwrite64,writev,ftruncate,execve"
_LINE = re.compile(r"(\d+) +(\w+)\((.*)")
_OPEN = re.compile(r"\d+<([^>]*)>")
_NAMES = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"')


class Event(NamedTuple):
    """`what`: `write`, `sync`, `rename` (to `target`) or `remove`."""

    what: str
    path: str
    target: str = ""
    by_git: bool = False


def require() -> None:
    """Skip without strace, or without the permission to trace."""
    works = shutil.which("strace") and subprocess.run(["strace", "-o", os.devnull, "true"], check=False).returncode == 0
    if not works:
        pytest.skip("strace is not installed, or may trace nothing here")


def trace(project: Project, *arguments: str, program: tuple[str, ...] = VMRAG) -> tuple[Done, list[Event]]:
    """Run it in the work tree, with its children."""
    log = project.top.parent / "trace"
    strace = ["strace", "-f", "-y", "-qq", "-s", "0", "-e", f"trace={_CALLS}", "-e", "signal=none", "-o", str(log)]
    result = subprocess.run(
        [*strace, *program, *arguments],
        cwd=project.top,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(result.returncode, result.stdout, result.stderr), _events(log.read_text(errors="replace"), project.top)


def trace_tool(project: Project, tool: str, arguments: str, config: Path) -> tuple[Done, list[Event]]:
    """A call of a tool, with a project that is active."""
    body = (
        "import json, sys\nfrom pathlib import Path\nfrom tests.support.mcp import Tools\n"
        "from vmrag_link.toolsets.compounding.mirror import ActiveProject\n"
        "tools = Tools(Path.cwd())\n"
        "tools.session.state.toolset_values['vmrag_link.toolsets.compounding'] = ActiveProject(sys.argv[3])\n"
        "tools(sys.argv[1], **json.loads(sys.argv[2]))\n"
    )
    return trace(project, "-c", body, tool, arguments, str(config), program=(sys.executable,))


def _events(log: str, top: Path) -> list[Event]:
    """Return the events of successful calls, in order; paths are those of the kernel."""
    result = []
    git: set[str] = set()
    for pid, rest in _calls(log):
        call = _LINE.match(f"{pid} {rest}")
        if not call or re.search(r"= -1 ", rest):
            continue
        name, given = call[2], call[3]
        if name == "execve":
            git.add(pid) if "/git" in rest.partition(",")[0] else git.discard(pid)
        elif name in ("fsync", "fdatasync", "write", "pwrite64", "writev", "ftruncate"):
            if at := _OPEN.match(given):
                result.append(Event("sync" if "sync" in name else "write", at[1], by_git=pid in git))
        else:
            names = [os.path.normpath(Path(base or top, path)) for base, path in _NAMES.findall(given)]
            what = "rename" if name.startswith("rename") else "remove"
            result.append(Event(what, names[0], names[1] if what == "rename" else "", pid in git))
    return result


_STARTS = "execve,clone,clone3,fork,vfork"
_STARTED = re.compile(r"(?:clone3?|v?fork)\((.*)\) += (\d+)$")
_RUNS = re.compile(r'execve\("[^"]*", \["?(.*?)"?\](?:, .*)? = 0$')


def hook_processes(project: Project, hook: str, *arguments: str) -> list[str]:
    """List the programs of each process that git's hook started, directly or indirectly, while git
    ran with these arguments; empty for a shell that ran on for itself.
    """
    log = project.top.parent / "trace"
    strace = ["strace", "-f", "-qq", "-s", "200", "-e", f"trace={_STARTS}", "-e", "signal=none", "-o", str(log)]
    subprocess.run([*strace, "git", *arguments], cwd=project.top, env=os.environ | ON, check=True, capture_output=True)
    parents, ran = dict[str, str](), dict[str, str]()
    for pid, call in _calls(log.read_text(errors="replace")):
        if (started := _STARTED.match(call)) and "CLONE_THREAD" not in started[1]:
            parents[started[2]] = pid
        elif run := _RUNS.match(call):
            ran[pid] = run[1].replace('", "', " ")
    hooks = {pid for pid, run in ran.items() if f"hooks/{hook}" in run.partition(" ")[0]}
    result = set(hooks)
    while more := {pid for pid, parent in parents.items() if parent in result} - result:
        result |= more
    return [ran.get(pid, "") for pid in sorted(result, key=int)]


def _calls(log: str) -> Iterator[tuple[str, str]]:
    """Each call with its process, whole where `strace` had to interrupt it."""
    begun: dict[str, str] = {}
    for line in log.splitlines():
        pid, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[pid] = call.removesuffix("<unfinished ...>")
        elif resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", call):
            yield pid, begun.pop(pid, "") + resumed[1]
        else:
            yield pid, call


def list_unsynced(events: list[Event]) -> list[str]:
    """The names onto which a file was renamed that was not written through before, or whose folder
    was not afterwards; without git's own.
    """
    missing = []
    for at, event in enumerate(events):
        if event.what != "rename" or event.by_git or _is_folder(event.target):
            continue
        path = event.path
        before = [event.what for event in events[:at] if event.path == path and event.what in ("write", "sync")]
        if before and before[-1] != "sync":
            missing.append(event.target)
        elif ("sync", str(Path(event.target).parent)) not in {event[:2] for event in events[at:]}:
            missing.append(f"{event.target} (its folder)")
    return missing


def _is_folder(name: str) -> bool:
    return Path(name).is_dir()

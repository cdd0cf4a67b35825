"""One flipped bit in a file below `.git/vmrag`, and what a person sees of it afterwards."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.bits import flip
from tests.support.repos import make_repo
from tests.support.terminal import Project, build_template
from vmrag_link.ops.pins import pinning

BUG = 4

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("query", "rest and sleep", "-k", "20"),
    ("query", "install the program", "-k", "20", "--mode", "vector"),
    ("query", "certificates", "-k", "20", "--mode", "keyword", "--where", '{"source_id": {"$ne": "faq.md"}}'),
    ("list",),
    ("show", "handbook/draft.md"),
    ("show", "handbook/rest.md"),
    ("fingerprint", "--verify"),
    ("doctor",),
    ("sync",),
    ("fetch",),
    ("sync", "--rebuild"),
    ("query", "rest and sleep", "-k", "20"),
    ("commit", "-m", "after"),
    ("list",),
    ("git", "-c", "core.hooksPath=/dev/null", "switch", "-q", "-f", "feature"),
    ("list",),
    ("query", "never rest", "-k", "20"),
    ("status",),
)
FEW = COMMANDS[:9]
ANSWERS = {"query": "results", "list": "documents", "show": "content", "fingerprint": "fingerprint"}
"""What of the JSON of a command has to be the same, byte by byte."""


@dataclass(frozen=True)
class Step:
    """What a command gave: its exit code, its answer, and what it said beside that (an error in
    JSON, notes).
    """

    command: tuple[str, ...]
    code: int
    answer: Any
    said: str


@dataclass(frozen=True)
class Verdict:
    """`kind`: harmless, rebuilt, detected; or wrong, for the reason `why`."""

    kind: str
    why: str = ""


def build(top: Path) -> Project:
    """A repository with everything that can lie below `.git/vmrag`.

    Two branches, views of both and a spare one, uncommitted documents, a commit that was killed
    on the other branch (a journal
    entry), and a remote that was pushed to.
    """
    project = build_template(top)
    hub = make_repo(top.with_name("hub"))
    hub.git("checkout", "-q", "-b", "nobody")
    project.git("remote", "add", "origin", str(hub.top))
    project.git("push", "-q", "-u", "origin", "main", "feature")
    project.git("switch", "-q", "feature")
    project.put("late.md", "Late news about rest.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pinning, "write_pin", _killed)
        project.vmrag("commit", "-m", "late", code=130)
    project.git("switch", "-q", "main")
    project.put("draft.md", "A draft about sleep and rest.")
    project.vmrag("query", "rest")
    assert list(project.shared.glob("journal/*"))
    assert [path for path in project.shared.glob("uncommitted/*") if path.is_dir()]
    return project


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def files(project: Project) -> list[str]:
    """What holds at least one bit."""
    there = (path for path in project.shared.rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(path.relative_to(project.shared).as_posix() for path in there)


def flips(project: Project, number: int, seed: int) -> Iterator[tuple[str, int, int]]:
    """File, byte and bit; every file in its turn."""
    dice, names = random.Random(seed), files(project)
    dice.shuffle(names)
    for turn in range(number):
        name = names[turn % len(names)]
        yield name, dice.randrange((project.shared / name).stat().st_size), dice.randrange(8)


def observe(top: Path, commands: Sequence[tuple[str, ...]] = COMMANDS) -> list[Step]:
    project = Project(top)
    return [_git(project, each) if each[0] == "git" else _vmrag(project, each) for each in commands]


def unharmed(template: Project, scratch: Path, commands: Sequence[tuple[str, ...]]) -> list[Step]:
    """What they say where nothing was flipped."""
    _copied(template, scratch)
    return observe(scratch, commands)


def _copied(template: Project, scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    subprocess.run(["cp", "-a", template.top, scratch], check=True)


def _vmrag(project: Project, command: tuple[str, ...]) -> Step:
    top = project.top
    done = project.vmrag(*command, "--json", code=None)
    answer = json.loads(done.out) if done.out.startswith(("{", "[")) else None
    found = ""
    if isinstance(answer, dict):
        topics = answer.get("topics", ())
        found = " ".join(
            [each["message"] for topic in topics for each in topic["findings"]] + answer.get("problems", [])
        )
        answer = answer.get(ANSWERS.get(command[0], ""))
    return Step(command, done.code, answer, done.err + found.replace(str(top), ""))


def _git(project: Project, command: tuple[str, ...]) -> Step:
    done = project.run(*command[1:])
    return Step(command, done.returncode, None, done.stdout + done.stderr)


def tried(
    template: Project,
    scratch: Path,
    place: tuple[str, int, int],
    sound: list[Step],
) -> Verdict:
    """Copy the repository, flip the bit, and judge what the commands say."""
    name, byte, bit = place
    _copied(template, scratch)
    flip(Project(scratch).shared / name, byte, bit)
    return judged(observe(scratch, [step.command for step in sound]), sound)


def judged(steps: list[Step], sound: list[Step]) -> Verdict:
    """A different answer, or an error, of which nothing was said since the last checkout is wrong;
    so is a stack trace.
    """
    kinds = {"harmless"}
    told = said_here = ""
    for step, right in zip(steps, sound, strict=True):
        command = " ".join(step.command)
        news = step.said if step.said != right.said else ""
        told += news
        said_here = "" if step.command[0] == "git" else said_here
        if step.command[0] != "doctor":
            said_here += news
        if step.code == BUG or "Traceback" in step.said:
            return Verdict("wrong", f"{command}: {step.code} {step.said}")
        if not said_here and step.command[0] != "doctor" and (step.code, step.answer) != (right.code, right.answer):
            return Verdict("wrong", f"{command}: {step.code} {json.dumps(step.answer)}, not {json.dumps(right.answer)}")
        if (step.code, step.answer) != (right.code, right.answer) or (news and step.command[0] == "doctor"):
            kinds.add("detected")
        if "built again" in news:
            kinds.add("rebuilt")
    return Verdict(next(kind for kind in ("detected", "rebuilt", "harmless") if kind in kinds), told)

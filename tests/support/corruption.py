"""One flipped bit in a file below `.git/vmrag`, and what a person sees of it afterwards.

`python -m tests.support.corruption TOP COMMANDS` runs commands (JSON) in a repository and prints what they said: a process of its own, because
nothing but a test can tell whether a library survives any file.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.bits import flip
from tests.support.repos import make_repo
from tests.support.terminal import Project, build_template
from vmrag_link.ops import pinning

SECONDS = 180
BUG = 4

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("query", "rest and sleep", "-k", "20"),
    ("query", "install the program", "-k", "20", "--mode", "vector"),
    ("query", "certificates", "-k", "20", "--mode", "keyword", "--where", '{"source_id": {"$ne": "faq.md"}}'),
    ("list",),
    ("show", "handbook/draft.md"),
    ("show", "handbook/rest.md"),
    ("status",),
    ("fingerprint", "--verify"),
    ("doctor",),
    ("sync",),
    ("fetch",),
    ("sync", "--rebuild"),
    ("query", "rest and sleep", "-k", "20"),
    ("commit", "-m", "after"),
    ("list",),
    ("git", "switch", "-q", "-f", "feature"),
    ("list",),
    ("query", "never rest", "-k", "20"),
    ("status",),
)
FEW = COMMANDS[:10]
ANSWERS = {"query": "results", "list": "documents", "show": "content", "fingerprint": "fingerprint"}
"""What of the JSON of a command has to be the same, byte by byte."""


@dataclass(frozen=True)
class Step:
    """What a command gave: its exit code, its answer, and what it said beside that (an error in JSON, notes)."""

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

    Two branches, snapshots of both and a spare one, uncommitted documents, a commit that was killed on the other branch (a journal
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
    assert [path for path in project.shared.glob("working/*") if path.is_dir()]
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


def observed_apart(top: Path, commands: Sequence[tuple[str, ...]] = COMMANDS) -> list[Step]:
    """By a process of its own, which may die."""
    argv = [sys.executable, "-m", "tests.support.corruption", str(top), json.dumps(commands)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=SECONDS, cwd=Path(__file__).parents[2]
    )
    if done.returncode:
        return [Step(("python",), BUG, None, f"ended with {done.returncode}: {done.stderr[-2000:]}")]
    return [Step(tuple(each.pop("command")), **each) for each in json.loads(done.stdout.splitlines()[-1])]


def tried(
    template: Project,
    scratch: Path,
    place: tuple[str, int, int],
    sound: list[Step],
    look: Callable[[Path, Sequence[tuple[str, ...]]], list[Step]],
) -> Verdict:
    """Copy the repository, flip the bit, and judge what the commands say."""
    name, byte, bit = place
    _copied(template, scratch)
    flip(Project(scratch).shared / name, byte, bit)
    return judged(look(scratch, [step.command for step in sound]), sound)


def judged(steps: list[Step], sound: list[Step]) -> Verdict:
    """A different answer without a word, a stack trace or a crash is wrong; so is what vanished without a word."""
    kind = "harmless"
    told = ""
    for step, right in zip(steps, sound, strict=False):
        command = " ".join(step.command)
        if step.code == BUG or step.code < 0 or "Traceback" in step.said:
            return Verdict("wrong", f"{command}: {step.code} {step.said}")
        news = step.said if step.said != right.said else ""
        told += news
        if step.code != right.code and step.code in (2, 3) and not news:
            return Verdict("wrong", f"{command}: {step.code} without a word")
        if step.code == 0 and step.answer != right.answer and not told:
            return Verdict("wrong", f"{command}: {json.dumps(step.answer)} instead of {json.dumps(right.answer)}")
        if step.code != right.code:
            kind = "detected"
        elif "built again" in news and kind == "harmless":
            kind = "rebuilt"
        elif news and step.answer != right.answer:
            kind = "detected"
    return Verdict(kind, told[-1500:])


def main() -> None:
    print(json.dumps([asdict(step) for step in observe(Path(sys.argv[1]), json.loads(sys.argv[2]))]))


if __name__ == "__main__":
    main()

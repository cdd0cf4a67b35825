"""A damaged file below `.git/vmrag`, and what a person sees of it afterwards."""

from __future__ import annotations

import json
import operator
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.bits import flip
from tests.support.repos import make_repo
from tests.support.terminal import Project, build_template, opened
from vmrag_link.toolsets.thinking.think import NewThought, store_thought
from vmrag_link.toolsets.thinking.tools import similar_thoughts
from vmrag_link.workspace import local_store
from vmrag_link.workspace.pins import pinning

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
"""Keys of a command's JSON that must be equal, byte by byte."""


@dataclass(frozen=True)
class Step:
    """Result of a command: its exit code, its answer, and further output (an error in JSON,
    notes).
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
    """List files with at least one bit."""
    paths = (path for path in project.shared.rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(path.relative_to(project.shared).as_posix() for path in paths)


def choose_flips(project: Project, number: int, seed: int) -> Iterator[tuple[str, int, int]]:
    """File, byte and bit; every file in its turn."""
    dice, names = random.Random(seed), files(project)
    dice.shuffle(names)
    for turn in range(number):
        name = names[turn % len(names)]
        yield name, dice.randrange((project.shared / name).stat().st_size), dice.randrange(8)


def observe(top: Path, commands: Sequence[tuple[str, ...]] = COMMANDS) -> list[Step]:
    project = Project(top)
    return [_git(project, command) if command[0] == "git" else _vmrag(project, command) for command in commands]


def run_unharmed(template: Project, scratch: Path, commands: Sequence[tuple[str, ...]]) -> list[Step]:
    """Return the output of the commands without a flip."""
    _copied(template, scratch)
    return observe(scratch, commands)


def _copied(template: Project, scratch: Path) -> None:
    copy_folder(template.top, scratch)


def copy_folder(source: Path, scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    subprocess.run(["cp", "-a", source, scratch], check=True)


def _vmrag(project: Project, command: tuple[str, ...]) -> Step:
    top = project.top
    result = project.vmrag(*command, "--json", code=None)
    answer = json.loads(result.out) if result.out.startswith(("{", "[")) else None
    found_values = ""
    if isinstance(answer, dict):
        topics = answer.get("topics", ())
        found_values = " ".join(
            [finding["message"] for topic in topics for finding in topic["findings"]] + answer.get("problems", [])
        )
        answer = answer.get(ANSWERS.get(command[0], ""))
    return Step(command, result.code, answer, result.err + found_values.replace(str(top), ""))


def _git(project: Project, command: tuple[str, ...]) -> Step:
    result = project.run(*command[1:])
    return Step(command, result.returncode, None, result.stdout + result.stderr)


def try_flip(
    template: Project,
    scratch: Path,
    place: tuple[str, int, int],
    sound: list[Step],
) -> Verdict:
    """Copy the repository, flip the bit, and judge the output of the commands."""
    name, byte, bit = place
    _copied(template, scratch)
    flip(Project(scratch).shared / name, byte, bit)
    return judge_steps(observe(scratch, [step.command for step in sound]), sound)


def judge_steps(steps: list[Step], sound: list[Step]) -> Verdict:
    """Reject a different answer, or an error, without a report since the last checkout, and any
    stack trace.
    """
    kinds = {"harmless"}
    message = said_here = ""
    for step, right in zip(steps, sound, strict=True):
        command = " ".join(step.command)
        news = step.said if step.said != right.said else ""
        message += news
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
    return Verdict(next(kind for kind in ("detected", "rebuilt", "harmless") if kind in kinds), message)


# -- whole files


class DamagedFile(NamedTuple):
    """`name` is below `.git/vmrag`."""

    name: str
    damage: str

    @property
    def is_derived(self) -> bool:
        """True for a file that vmrag can build again."""
        return not self.name.startswith(("kb/", "local/kb/"))

    def apply(self, project: Project, dice: random.Random) -> None:
        path = project.shared / self.name
        path.chmod(0o600)
        if self.damage == "flipped":
            flip(path, dice.randrange(path.stat().st_size), dice.randrange(8))
        elif self.damage == "emptied":
            path.write_bytes(b"")
        else:
            path.unlink()


def build_pushed(folder: Path) -> Project:
    """Build `project` with sources, documents of this machine and a remote, of which `vmrag doctor`
    has no finding. The remote is next to it, so that a copy of the folder pushes to its own.
    """
    project = build_template(folder / "project")
    with (project.top / ".vmrag.yaml").open("a") as settings:
        settings.write("sources:\n  - collection: code\n    paths: [docs]\n")
    project.git("commit", "-q", "-a", "-m", "sources")
    hub = make_repo(folder / "hub")
    hub.git("checkout", "-q", "-b", "nobody")
    project.git("remote", "add", "origin", "../hub")
    project.git("push", "-q", "-u", "origin", "main", "feature")
    project.vmrag("push", "--all")
    project.git("config", "vmrag.system.versioned", "false")
    with opened(project) as ws:
        store_thought(ws, NewThought("A thought of rest.", 1, 2, session_id="plan"))
        similar_thoughts(ws, "rest", k=3)
    project.put("draft.md", "A draft about sleep and rest.")
    project.vmrag("query", "rest")
    return project


def list_damages(project: Project, seed: int) -> list[DamagedFile]:
    """Return every file with every damage, in an order in which the first ones differ in kind."""
    dice = random.Random(seed)
    paths = sorted(path for path in project.shared.rglob("*") if path.is_file())
    names = {path.relative_to(project.shared).as_posix(): path.stat().st_size for path in paths}
    damaged = [DamagedFile(name, "deleted") for name in names]
    damaged += [DamagedFile(name, how) for name, size in names.items() if size for how in ("flipped", "emptied")]
    dice.shuffle(damaged)
    rounds: Counter[str] = Counter()
    order = []
    for case in damaged:
        kind = case.name.partition("/")[0]
        order.append((rounds[kind], case))
        rounds[kind] += 1
    return [case for _, case in sorted(order, key=operator.itemgetter(0))]


def read_findings(project: Project, *arguments: str) -> list[str]:
    """Return what `vmrag doctor` finds, without the note about stored copies."""
    topics = json.loads(project.vmrag("doctor", "--json", *arguments, code=None).out)["topics"]
    findings = [finding for topic in topics for finding in topic["findings"] if finding["code"] != "STORED_COPIES"]
    return [f"{finding['code']}: {finding['message']}" for finding in findings]


def work(project: Project) -> list[tuple[str, int, Any]]:
    """Ask, write, commit and push; return the exit code and the answer of each command."""
    steps: list[tuple[str, int, Any]] = []

    def call(*arguments: str, answer: str = "", stdin: str = "") -> None:
        finished = project.vmrag(*arguments, "--json", code=None, stdin=stdin)
        content = finished.json.get(answer) if finished.code == 0 and answer else None
        steps.append((" ".join(arguments), finished.code, content))
        print(f"{arguments}: {finished.code} {finished.err[:300]}")

    call("query", "rest and sleep", "-k", "20", answer="results")
    call("show", "handbook/draft.md", answer="content")
    call("fetch")
    call("add", "-", "--collection", "handbook", "--id", "late.md", stdin="Late news about rest.")
    call("commit", "-m", "late")
    project.run("commit", "-q", "-a", "-m", "late")
    call("push")
    call("list", answer="documents")
    call("query", "late news", "-k", "20", answer="results")
    with opened(project) as ws:
        steps.append(("thoughts", 0, ws.local.engine.count_documents(local_store.AT)))
    return steps


def first_difference(steps: list[tuple[str, int, Any]], expected: list[tuple[str, int, Any]]) -> str:
    """Return the first command that failed, or answered something else."""
    pairs = zip(steps, expected, strict=True)
    return next((f"{step[0]}: {step[1]} {step[2]}"[:500] for step, right in pairs if step != right), "")

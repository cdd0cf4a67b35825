"""Twelve jobs of an agent, with the toolset `essential` and with the default ones: calls, and
tokens of the list of tools and of all answers (four bytes each).

`python -m bench.agent_tasks` prints the table. The repository holds documentation and code of this
project, with a release, changes since, and a few decisions that are stored.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from bench import knowledge
from bench.knowledge import VMRAG

ROOT = Path(__file__).parents[1]
TAKEN = ("docs", "vmrag_link/git", "vmrag_link/retrieval")
SETTINGS = """\
sources:
- collection: docs
  paths: [docs/]
- collection: code
  kind: code
  paths: [vmrag_link/]
"""
RETRIES = "A request is retried three times, because the gateway drops one in a hundred."
ERROR = "is no regular expression"
PLUMBING = "vmrag_link/git/plumbing.py"

Arguments = Mapping[str, Any]
Call = tuple[str, Arguments]
Calling = Callable[[str, Arguments], Awaitable[str]]
"""Calls a tool; returns the text of its answer. Raises `ValueError` for a failure."""


class Task(NamedTuple):
    """A job, and the calls that a sensible agent makes for it. `usual` None: the default tools
    cannot do it. `found`: what the answers have to say.
    """

    job: str
    found: str
    calls: Sequence[Call]
    usual: Sequence[Call] | None


def _asked(text: str, **more: Any) -> Call:
    return "chroma_query_documents", {"query_texts": [text], "max_tokens": 2000, **more}


_POLICY = {"collection_name": "decisions", "ids": ["retry-policy"]}
_NEW = "# Cache size\n\nA gigabyte, because two did not fit beside the model."

TASKS = (
    Task(
        "where is `path_matcher` defined",
        "vmrag_link/retrieval/narrowing.py",
        [("search", {"symbol": "path_matcher"})],
        [_asked("path_matcher", symbol=["path_matcher"], max_tokens=600)],
    ),
    Task(
        "a question about the project",
        "core.hooksPath",
        [("search", {"query": "do our hooks get along with husky and core.hooksPath"})],
        [_asked("do our hooks get along with husky and core.hooksPath")],
    ),
    Task(
        "read a page",
        "# A larger team",
        [("read", {"name": "docs/team.md"})],
        [("chroma_get_documents", {"collection_name": "docs", "ids": ["docs/team.md"]})],
    ),
    Task(
        "where does an error message come from",
        "vmrag_link/retrieval/filters.py",
        [("grep", {"pattern": ERROR, "fixed": True, "path": "*.py"})],
        [_asked(ERROR, mode="keyword", kind=["code"], max_tokens=1000)],
    ),
    Task(
        "read a symbol as it was at the release",
        "def resolve(",
        [("read", {"symbol": "resolve", "name": PLUMBING, "ref": "v1.0"})],
        None,
    ),
    Task(
        "what did a page say at the release",
        "In WSL it is Linux",
        [("search", {"query": "which platforms it runs on", "ref": "v1.0", "path": "docs/installing.md"})],
        None,
    ),
    Task(
        "what changed in the decisions since the release",
        "retry-policy",
        [("history", {"since": "v1.0", "name": "decisions"})],
        [("get_diff", {"from_ref": "v1.0"})],
    ),
    Task(
        "when and why did a file change",
        "Teams are asked to agree",
        [("history", {"name": "docs/team.md"})],
        None,
    ),
    Task(
        "what is not committed, and what is pinned",
        "draft",
        [("status", {})],
        [("dolt_status", {"verbose": True})],
    ),
    Task(
        "remember a decision, and say whether the commit has it",
        "cache-size",
        [("remember", {"name": "decisions/cache-size", "text": _NEW})],
        [
            ("chroma_add_documents", {"collection_name": "decisions", "ids": ["cache-size"], "documents": [_NEW]}),
            ("dolt_status", {"verbose": True}),
        ],
    ),
    Task(
        "find a decision and correct it",
        "retry-policy",
        [
            ("search", {"query": "why are requests retried", "kind": "document", "max_tokens": 500}),
            (
                "remember",
                {"name": "decisions/retry-policy", "text": RETRIES.replace("three", "five"), "mode": "replace"},
            ),
        ],
        [
            _asked("why are requests retried", kind=["document"], max_tokens=500),
            ("chroma_update_documents", {**_POLICY, "documents": [RETRIES.replace("three", "five")]}),
        ],
    ),
    Task(
        "forget a decision",
        "cache-size",
        [("forget", {"name": "decisions/cache-size"})],
        [("chroma_delete_documents", {"collection_name": "decisions", "ids": ["cache-size"]})],
    ),
)


class Cost(NamedTuple):
    """Of one job: its calls, and the bytes of their answers."""

    calls: int
    answered: int


def make(top: Path, env: Mapping[str, str]) -> Path:
    """The repository that the tasks are about."""

    def run(*argv: str, stdin: str = "") -> None:
        subprocess.run(argv, cwd=top, env=env, check=True, input=stdin, text=True, capture_output=True)

    def commit(message: str) -> None:
        run("git", "add", "-A")
        run("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", message)

    def store(name: str, text: str) -> None:
        run(*VMRAG, "add", "-", "--collection", "decisions", "--id", name, stdin=text)

    top.mkdir(parents=True)
    run("git", "init", "-q", "-b", "main")
    run("git", "config", "user.name", "A")
    run("git", "config", "user.email", "a@example.org")
    for each in TAKEN:
        shutil.copytree(ROOT / each, top / each, ignore=shutil.ignore_patterns("__pycache__"))
    (top / ".vmrag.yaml").write_text(SETTINGS)
    commit("Begin")
    run(*VMRAG, "init", "--knowledge-base", "--no-sources")
    store("page-size", "A page has 80,000 characters, which every client takes.")
    run(*VMRAG, "commit", "-m", "Pages")
    commit("Pin it")
    run("git", "tag", "v1.0")
    store("retry-policy", RETRIES)
    run(*VMRAG, "commit", "-m", "Why requests are retried")
    with (top / "docs" / "team.md").open("a") as page:
        page.write("\nEverybody in a team agrees to its settings once.\n")
    plumbing = top / PLUMBING
    plumbing.write_text(plumbing.read_text().replace("def resolve(", "def resolved(", 1))
    commit("Teams are asked to agree")
    store("draft", "Nobody has decided this yet.")
    return top


async def measure(call: Calling, *, usual: bool) -> list[Cost | None]:
    """Do the jobs one after the other, with the default tools if `usual`. Raises `ValueError` where
    an answer is not found.
    """
    costs: list[Cost | None] = []
    for task in TASKS:
        calls = task.usual if usual else task.calls
        if calls is None:
            costs.append(None)
            continue
        answers = [await call(*each) for each in calls]
        if not any(task.found in each for each in answers):
            raise ValueError(f"{task.job}: {task.found!r} is in none of {answers}")
        costs.append(Cost(len(calls), sum(len(each.encode()) for each in answers)))
    return costs


async def serve_and_measure(top: Path, toolsets: str, env: Mapping[str, str]) -> tuple[int, list[Cost | None]]:
    """The bytes of `tools/list`, and the costs of the jobs, by a real client over stdio."""
    argv = [*VMRAG[1:], "mcp", "--toolsets", toolsets]
    async with Client(StdioServerParameters(command=VMRAG[0], args=argv, cwd=top, env=dict(env))) as client:
        listed = (await client.list_tools()).model_dump(by_alias=True, exclude_none=True, mode="json")["tools"]

        async def call(tool: str, arguments: Arguments) -> str:
            answer = await client.call_tool(tool, dict(arguments))
            text: str = answer.content[0].text
            if answer.is_error:
                raise ValueError(f"{tool}: {text}")
            return text

        size = len(json.dumps({"tools": listed}, separators=(",", ":"), ensure_ascii=False).encode())
        return size, await measure(call, usual=toolsets == "default")


def tokens(count: int) -> str:
    return f"{count // 4:,}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = knowledge.environment(Path(folder) / "home")
        tops = {name: make(Path(folder) / name, env) for name in ("essential", "default")}
        found = {name: anyio.run(serve_and_measure, top, name, env) for name, top in tops.items()}
    print("| | essential: calls | tokens | default: calls | tokens |\n|---|---|---|---|---|")
    lists = {name: size for name, (size, _) in found.items()}
    print(f"| list of tools | | {tokens(lists['essential'])} | | {tokens(lists['default'])} |")
    for task, *costs in zip(TASKS, *(each for _, each in found.values()), strict=True):
        shown = [f"{each.calls} | {tokens(each.answered)}" if each else "- | -" for each in costs]
        print(f"| {task.job} | {' | '.join(shown)} |")
    both = [number for number, task in enumerate(TASKS) if task.usual is not None]
    sums = []
    for size, costs in found.values():
        done = [each for number in both if (each := costs[number])]
        total = size + sum(each.answered for each in done)
        sums.append(f"{statistics.median(each.calls for each in done):g} | {tokens(total)}")
    print(f"| of the {len(both)} that both can do: median of calls, sum of tokens with the list | {' | '.join(sums)} |")


if __name__ == "__main__":
    main()

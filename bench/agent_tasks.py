"""Fifteen jobs of an agent in two repositories of other projects: calls, tokens, right or wrong.

Each job is done with the toolset `essential`, with `git grep` and reading, and with mcp-server-git.
`python -m bench.agent_tasks CLICK PACKAGING` prints the table. Both folders are clones, which stay
as they are:

    git clone https://github.com/pallets/click
    git clone https://github.com/pypa/packaging.python.org
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from bench import knowledge
from bench.knowledge import VMRAG
from vmrag_link.toolsets.essential.pages import estimate_tokens

COMMITS = {"click": "8.4.2", "packaging.python.org": "ab4994857826246587d993862fd4097e36568080"}
URLS = {
    "click": "https://github.com/pallets/click",
    "packaging.python.org": "https://github.com/pypa/packaging.python.org",
}
PEER = "mcp-server-git"
MOST = {"lookup": 1.2, "question": 1.0}
"""The most tokens, as a share of those of `git grep` and reading."""

Call = tuple[str, Mapping[str, Any]]
Counter = Callable[[Sequence[str]], list[int]]


class Job(NamedTuple):
    """A job, the calls that a sensible agent makes for it, and the facts of a right answer.

    `shell` has the commands of an agent without vmrag; `peer` the revisions that mcp-server-git
    shows. None: impossible there.
    """

    title: str
    kind: Literal["lookup", "question", "memory"]
    repository: str
    facts: Sequence[str]
    calls: Sequence[Call]
    shell: Sequence[str] | None = None
    peer: Sequence[str] | None = None


class Cost(NamedTuple):
    """The calls of one job, the tokens of their answers, and whether these have all facts."""

    calls: int
    tokens: int
    missing: tuple[str, ...]


_GUIDE = "source/guides/publishing-package-distribution-releases-using-github-actions-ci-cd-workflows.rst"
_NOTE = "Prompts write to stderr in our scripts, because their stdout is parsed."

JOBS = (
    Job(
        "where a prompt's input is read",
        "question",
        "click",
        ["src/click/termui.py", "return _readline_prompt(f, text, err)"],
        [("search", {"query": "where is a prompt's input read", "kind": "code", "max_tokens": 1000})],
        ["git grep -nE 'def .*prompt|input\\(' -- src", "sed -n 78,246p src/click/termui.py"],
        ["HEAD:src/click", "HEAD:src/click/termui.py"],
    ),
    Job(
        "the code of one method",
        "lookup",
        "click",
        ["src/click/core.py", "return self.invoke(cmd, *args, **kwargs)"],
        [("read", {"symbol": "Context.forward"})],
        ["git grep -n 'def forward' -- src", "sed -n 909,940p src/click/core.py"],
        ["HEAD:src/click/core.py"],
    ),
    Job(
        "an exact error message",
        "lookup",
        "click",
        ["src/click/core.py", "1329", "Got unexpected extra argument ({args})"],
        [("grep", {"pattern": "Got unexpected extra argument", "fixed": True})],
        ["git grep -nF 'Got unexpected extra argument'"],
    ),
    Job(
        "what changed about a dependency since a tag",
        "lookup",
        "click",
        ["importlib-metadata; python_version < '3.8'", "flit_core>=3.11,<4"],
        [("history", {"name": "pyproject.toml", "since": "8.1.8"})],
        ["git diff 8.1.8 -- pyproject.toml"],
        ["8.1.8:pyproject.toml", "HEAD:pyproject.toml"],
    ),
    Job(
        "what the docs stated at an old tag",
        "question",
        "click",
        ["docs/bashcomplete.rst", "_FOO_BAR_COMPLETE=source"],
        [
            (
                "search",
                {
                    "query": "how to activate shell completion in bash",
                    "ref": "7.1.2",
                    "path": "docs/",
                    "max_tokens": 1000,
                },
            )
        ],
        ["git grep -il completion 7.1.2 -- docs", "git show 7.1.2:docs/bashcomplete.rst"],
        ["7.1.2:docs", "7.1.2:docs/bashcomplete.rst"],
    ),
    Job(
        "remember, find and forget a decision",
        "memory",
        "click",
        ["notes/prompts-on-stderr", "their stdout is parsed", "deleted notes/prompts-on-stderr"],
        [
            ("remember", {"name": "notes/prompts-on-stderr", "text": _NOTE}),
            ("search", {"query": "why do prompts write to stderr", "collection": "notes", "max_tokens": 500}),
            ("forget", {"name": "notes/prompts-on-stderr"}),
        ],
    ),
    Job(
        "list the docs",
        "lookup",
        "click",
        ["advanced.md", "click-concepts.md", "exceptions.md", "setuptools.md", "wincmd.md", "why.md"],
        [("read", {"name": "docs/"})],
        ["git ls-files docs"],
        ["HEAD:docs"],
    ),
    Job(
        "the last change of a file and its reason",
        "lookup",
        "click",
        ["399919f", "2026-05-29", "Kevin Deldycke", "Support incremental output in the pager"],
        [("history", {"name": "src/click/termui.py", "limit": 1})],
        ["git log -1 --date=short --stat -- src/click/termui.py"],
    ),
    Job(
        "the minimum Python version",
        "lookup",
        "click",
        ["pyproject.toml", 'requires-python = ">=3.10"'],
        [("grep", {"pattern": "requires-python", "fixed": True})],
        ["git grep -nF requires-python"],
        ["HEAD:pyproject.toml"],
    ),
    Job(
        "how similar commands are suggested",
        "question",
        "click",
        ["src/click/exceptions.py", "get_close_matches(command_name, possibilities)"],
        [
            (
                "search",
                {"query": "suggest close matches for an unknown command name", "kind": "code", "max_tokens": 1000},
            )
        ],
        ["git grep -niE 'similar|did you mean' -- src", "cat src/click/exceptions.py"],
        ["HEAD:src/click", "HEAD:src/click/exceptions.py"],
    ),
    Job(
        "how to publish without a token",
        "question",
        "packaging.python.org",
        [_GUIDE, "Trusted Publishing"],
        [("search", {"query": "publish to PyPI from GitHub Actions without an API token", "max_tokens": 1000})],
        ["git grep -niE 'api token|trusted publish' -- source", f"cat {_GUIDE}"],
        ["HEAD:source/guides", f"HEAD:{_GUIDE}"],
    ),
    Job(
        "whether setup.py is deprecated",
        "question",
        "packaging.python.org",
        ["source/discussions/setup-py-deprecated.rst", "are not deprecated", "as a command line tool are deprecated"],
        [("search", {"query": "is setup.py deprecated", "max_tokens": 1000})],
        ["git grep -ilE 'setup.py.*deprecated'", "cat source/discussions/setup-py-deprecated.rst"],
        ["HEAD:source/discussions", "HEAD:source/discussions/setup-py-deprecated.rst"],
    ),
    Job(
        "where a command is described",
        "lookup",
        "packaging.python.org",
        ["source/guides/making-a-pypi-friendly-readme.rst", "source/guides/distributing-packages-using-setuptools.rst"],
        [("grep", {"pattern": "twine check", "fixed": True})],
        ["git grep -nF 'twine check'"],
    ),
    Job(
        "what changed in a page since a tag",
        "lookup",
        "click",
        [
            "## Capture modes",
            "Additional keyword arguments passed to {meth}`CliRunner.invoke` will be used to construct",
        ],
        [("history", {"name": "docs/testing.md", "since": "8.3.0"})],
        ["git diff 8.3.0 -- docs/testing.md"],
        ["8.3.0:docs/testing.md", "HEAD:docs/testing.md"],
    ),
    Job(
        "a page that no longer exists",
        "lookup",
        "click",
        ["remove Python 2/3 from docs", "Click suffers from a few problems with Python 3"],
        [("history", {"name": "docs/python3.rst", "limit": 1}), ("read", {"name": "docs/python3.rst", "ref": "7.1.2"})],
        ["git log -1 --stat -- docs/python3.rst", "git show 7.1.2:docs/python3.rst"],
        ["7.1.2:docs/python3.rst"],
    ),
)


def make(source: Path, commit: str, top: Path, env: Mapping[str, str]) -> Path:
    """Clone a repository at a commit, and set it up as a person does."""
    knowledge.git(top.parent, "clone", "-q", "--no-checkout", str(source), str(top), env=dict(env))
    knowledge.git(top, "checkout", "-q", "-B", "main", commit, env=dict(env))
    subprocess.run([*VMRAG, "init", "-q"], cwd=top, env=env, check=True)
    knowledge.git(top, "commit", "-qm", "Set up vmrag", env=dict(env))
    return top


async def call_tools(
    argv: Sequence[str], top: Path, env: Mapping[str, str], jobs: Sequence[Sequence[Call]]
) -> tuple[str, list[list[str]]]:
    """Return the list of tools as JSON, and the answers of each job, over stdio."""
    async with Client(StdioServerParameters(command=argv[0], args=argv[1:], cwd=top, env=dict(env))) as client:
        tools = (await client.list_tools()).model_dump(by_alias=True, exclude_none=True, mode="json")["tools"]
        answers = []
        for calls in jobs:
            results = [await client.call_tool(tool, dict(arguments)) for tool, arguments in calls]
            answers.append([result.content[0].text for result in results])
        return json.dumps({"tools": tools}, separators=(",", ":"), ensure_ascii=False), answers


def run_commands(commands: Sequence[str], top: Path, env: Mapping[str, str]) -> list[str]:
    """Return what the commands print."""
    argv = [["bash", "-c", command] for command in commands]
    outputs = [
        subprocess.run(arguments, cwd=top, env=env, capture_output=True, text=True, check=False) for arguments in argv
    ]
    return [output.stdout + output.stderr for output in outputs]


def rate(job: Job, answers: Sequence[str], count: Counter, known_texts: Sequence[str] = ()) -> Cost:
    """Rate answers. `known_texts`: what the agent already has, such as the path it asked for."""
    text = "\n".join([*known_texts, *answers])
    return Cost(len(answers), sum(count(answers)), tuple(fact for fact in job.facts if fact not in text))


def use_essential(jobs: Sequence[Job], top: Path, env: Mapping[str, str], count: Counter) -> tuple[int, list[Cost]]:
    """Return the tokens of the list of tools, and the costs of the jobs."""
    argv = [*VMRAG, "mcp", "--toolsets", "essential"]
    listed, answers = anyio.run(call_tools, argv, top, env, [job.calls for job in jobs])
    return sum(count([listed])), [rate(job, texts, count) for job, texts in zip(jobs, answers, strict=True)]


def use_shell(job: Job, top: Path, env: Mapping[str, str], count: Counter) -> Cost | None:
    return rate(job, run_commands(job.shell, top, env), count, job.shell) if job.shell else None


def use_peer(
    program: str, jobs: Sequence[Job], top: Path, env: Mapping[str, str], count: Counter
) -> tuple[int, list[Cost | None]]:
    """Return the tokens of the list of tools, and the costs of the jobs; None: impossible."""
    calls = [[("git_show", {"repo_path": str(top), "revision": name}) for name in job.peer or ()] for job in jobs]
    listed, answers = anyio.run(call_tools, [program, "--repository", str(top)], top, env, calls)
    rated = [(job, rate(job, texts, count, job.peer or ())) for job, texts in zip(jobs, answers, strict=True)]
    return sum(count([listed])), [cost if job.peer else None for job, cost in rated]


def choose_counter(command: str) -> tuple[str, Counter]:
    """Return the unit, and a function that counts the tokens of texts.

    `command` reads a JSON list of texts and prints a JSON list of counts. Otherwise tiktoken counts
    if it is installed and can load its data.
    """
    if command:
        return "o200k tokens", lambda texts: _count_by(shlex.split(command), texts)
    try:
        import tiktoken

        encoding = tiktoken.get_encoding("o200k_base")
    except (ImportError, OSError):
        return "estimated tokens", lambda texts: [estimate_tokens(text) for text in texts]
    return "o200k tokens", lambda texts: [len(encoding.encode(text, disallowed_special=())) for text in texts]


def _count_by(argv: Sequence[str], texts: Sequence[str]) -> list[int]:
    counts: list[int] = json.loads(
        subprocess.run(argv, input=json.dumps(texts), text=True, capture_output=True, check=True).stdout
    )
    return counts


def judge(job: Job, ours: Cost, shell: Cost | None) -> str:
    """Return what is wrong with our answer; empty if nothing is."""
    if ours.missing:
        return f"wrong: no {ours.missing[0]!r}"
    if shell and shell.tokens and ours.tokens > MOST[job.kind] * shell.tokens:
        return f"{ours.tokens / shell.tokens:.2f} times the tokens of git grep + reading"
    return ""


def show(cost: Cost | None) -> str:
    return f"{cost.calls} | {cost.tokens:,} | {'wrong' if cost.missing else 'right'}" if cost else "- | - | -"


def measure(
    top: Path, jobs: Sequence[Job], env: Mapping[str, str], count: Counter, peer: str | None
) -> tuple[list[str], list[str]]:
    """Return the rows of the table, and what is wrong."""
    size, ours = use_essential(jobs, top, env, count)
    shell = [use_shell(job, top, env, count) for job in jobs]
    peer_size, theirs = use_peer(peer, jobs, top, env, count) if peer else (0, [None] * len(jobs))
    rows = [
        f"| {job.title} ({job.kind}) | {' | '.join(map(show, costs))} |"
        for job, *costs in zip(jobs, ours, shell, theirs, strict=True)
    ]
    rows.append(f"| list of tools, {top.name} | | {size:,} | | | | | | {peer_size:,} | |")
    faults = [(job.title, judge(job, *costs)) for job, *costs in zip(jobs, ours, shell, strict=True)]
    return rows, [f"{title}: {fault}" for title, fault in faults if fault]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agent_tasks")
    for name, url in URLS.items():
        parser.add_argument(name, type=Path, help=f"a clone of {url}")
    parser.add_argument(
        "--count", default="", metavar="COMMAND", help="reads a JSON list of texts, prints their o200k tokens"
    )
    parser.add_argument("--peer", default=shutil.which(PEER), metavar="PROGRAM", help=f"where {PEER} is")
    arguments = vars(parser.parse_args())
    unit, count = choose_counter(arguments["count"])
    missing = [f"git clone {URLS[name]} {arguments[name]}" for name in URLS if not (arguments[name] / ".git").exists()]
    if missing:
        raise SystemExit("\n".join(["error: a repository is missing", *(f"hint: {command}" for command in missing)]))
    if not arguments["peer"]:
        print(
            f"{PEER} is not installed, so its columns are empty. hint: python -m venv V && V/bin/pip install {PEER}\n"
        )
    print(f"Columns: calls, {unit} of the answers, right or wrong.\n")
    print(f"| | essential | | | git grep + reading | | | {PEER} | | |\n|---|---|---|---|---|---|---|---|---|---|")
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        env = knowledge.environment(Path(folder) / "home")
        for name, commit in COMMITS.items():
            top = make(arguments[name], commit, Path(folder) / name, env)
            jobs = [job for job in JOBS if job.repository == name]
            rows, wrong = measure(top, jobs, env, count, arguments["peer"])
            print("\n".join(rows), flush=True)
            faults += wrong
    if faults:
        raise SystemExit("\n".join(["", *faults]))


if __name__ == "__main__":
    main()

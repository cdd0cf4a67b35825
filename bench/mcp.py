"""The MCP server over stdio: its start, a query, the first query, the size of its schemas.

`python -m bench.mcp library REPO`, `modules REPO` and `imports NAMES` are the processes that it is
compared with.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import knowledge, mcp_beside
from bench.mcp_process import OURS, Server, serving
from bench.timing import Figure, Run, in_turn, once

BARE = [sys.executable, "-m", "bench.bare_server"]
DOCUMENTS = {"collection_name": "documents"}
QUERY = "word12 word99 word4000 word7"
VERSION = [*OURS[:-1], "--version"]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALLS = 40
STARTS = 11
"""Rounds of the figures whose CPU is measured."""
SIZE = 10_000
SCHEMA_BYTES = 32_000


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = knowledge.make(folder, SIZE, env)
    knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "switch", "-q", "main", env=env)
    subprocess.run([*knowledge.VMRAG, "sync", "-q"], cwd=repo, env=env, check=True)
    root = {**env, "PYTHONPATH": str(Path(__file__).parents[1])}
    return [
        *_cpu_of_start(repo, root),
        _start(repo, rounds, root),
        _start_of_all(repo, rounds, root),
        _schemas(repo, root),
        _query(repo, rounds, root),
        _first_query(repo, rounds, root),
        *mcp_beside.run(folder, root),
    ]


def _answered(argv: list[str], cwd: Path, env: dict[str, str]) -> Run:
    """From the start of the process to its answer to `tools/list`."""
    with serving(argv, cwd, env) as server:
        server.ask("tools/list")
        return Run(time.perf_counter() - server.started, 0, 0)


def _cpu_of_start(repo: Path, env: dict[str, str]) -> list[Figure]:
    """Compare the CPU of a server that only lists its tools with `vmrag --version`."""
    things = {
        "version": lambda: once(VERSION, cwd=repo, env=env),
        "handshake": lambda: _listed(repo, env, modern=False),
        "modern": lambda: _listed(repo, env, modern=True),
    }
    seconds = {name: sample.cpu for name, sample in in_turn(things, STARTS).items()}
    return [
        Figure(f"MCP: CPU to tools/list ({era}), in `vmrag --version`", seconds[era] / seconds["version"], 3, seconds)
        for era in ("handshake", "modern")
    ]


def _listed(cwd: Path, env: dict[str, str], *, modern: bool) -> Run:
    """Run a server until it has answered `tools/list`. Its CPU includes its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with contextlib.closing(Server(OURS, cwd, env)) as server:
        if modern:
            server.ask("server/discover", _meta=ENVELOPE)
            server.ask("tools/list", _meta=ENVELOPE)
        else:
            server.greet()
            server.ask("tools/list")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(0, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 0)


def _start(repo: Path, rounds: int, env: dict[str, str]) -> Figure:
    things = {"ours": lambda: _answered(OURS, repo, env), "bare": lambda: _answered(BARE, repo, env)}
    samples = in_turn(things, 2 * rounds)
    seconds = {name: sample.wall for name, sample in samples.items()}
    return Figure("MCP: start to tools/list, against the bare SDK", seconds["ours"] / seconds["bare"], 1.1, seconds)


def _start_of_all(repo: Path, rounds: int, env: dict[str, str]) -> Figure:
    """A server with every tool imports none of them sooner, and only writes a longer list."""
    sets = {"all": [*OURS, "--toolsets", "all"], "default": OURS}
    samples = in_turn({name: lambda argv=argv: _answered(argv, repo, env) for name, argv in sets.items()}, 2 * rounds)
    seconds = {name: sample.wall for name, sample in samples.items()}
    return Figure(
        "MCP: start to tools/list with every tool, against the default set",
        seconds["all"] / seconds["default"],
        1.1,
        seconds,
    )


def _schemas(repo: Path, env: dict[str, str]) -> Figure:
    with serving(OURS, repo, env) as server:
        size = len(json.dumps(server.ask("tools/list")["tools"], separators=(",", ":"), ensure_ascii=False).encode())
    return Figure(
        f"MCP: schemas of the default set, of {SCHEMA_BYTES:,} bytes", size / SCHEMA_BYTES, 1, {"bytes": size}
    )


def _query(repo: Path, rounds: int, env: dict[str, str]) -> Figure:
    argv = [sys.executable, "-m", "bench.mcp", "library", str(repo)]
    arguments = DOCUMENTS | {"query_texts": [QUERY]}
    with serving(OURS, repo, env) as server:
        query = lambda: server.call("chroma_query_documents", **arguments)  # noqa: E731
        query()
        things = {
            "stdio": lambda: Run(_median(query), 0, 0),
            "library": lambda: Run(float(subprocess.run(argv, env=env, check=True, capture_output=True).stdout), 0, 0),
            "ping": lambda: Run(_median(lambda: server.ask("ping")), 0, 0),
        }
        seconds = {name: sample.wall for name, sample in in_turn(things, 2 * rounds).items()}
    ratio = seconds["stdio"] / (seconds["library"] + seconds["ping"])
    return Figure("MCP: query over stdio, against the library + ping", ratio, 1.2, seconds)


def _first_query(repo: Path, rounds: int, env: dict[str, str]) -> Figure:
    """The first query of a server, against importing its modules into a process with the server's
    others.
    """

    def python(*arguments: str) -> str:
        argv = [sys.executable, "-m", "bench.mcp", *arguments]
        return subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout

    names = python("modules", str(repo)).strip()

    def first(pause: float) -> Run:
        with serving(OURS, repo, env) as server:
            server.call("list_toolsets")  # loads the SDK
            server.ask("tools/list")
            time.sleep(pause)
            since = time.perf_counter()
            server.call("chroma_query_documents", **DOCUMENTS, query_texts=[QUERY])
            return Run(time.perf_counter() - since, 0, 0)

    things = {
        "first query": lambda: first(0),
        "a second later": lambda: first(1),
        "imports": lambda: Run(float(python("imports", names)), 0, 0),
    }
    seconds = {name: sample.wall for name, sample in in_turn(things, rounds).items()}
    ratio = seconds["first query"] / seconds["imports"]
    return Figure(f"MCP: first query at {SIZE:,} documents, against its imports", ratio, 2, seconds)


def _median(action: Any) -> float:
    seconds = []
    for _ in range(CALLS):
        since = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - since)
    return statistics.median(seconds)


def library(repo: Path) -> float:
    """The same query inside a process that keeps its workspace."""
    from vmrag_link.progress import QUIET
    from vmrag_link.retrieval.query import Mode, Query
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.answers.query import answer_query

    ws = Workspace.open(repo, QUIET)
    query = Query(QUERY, collections=("documents",), k=5, mode=Mode.VECTOR)
    answer_query(ws, query)
    return _median(lambda: answer_query(ws, query))


def modules(repo: Path) -> str:
    """Return the modules that the first query of a server imports."""
    from vmrag_mcp.call import Behaviour
    from vmrag_mcp.call_progress import CallProgress
    from vmrag_mcp.options import ToolChoice, select_tools
    from vmrag_mcp.session import Session

    session, chosen = Session(repo, Behaviour()), select_tools(ToolChoice())
    before = set(sys.modules)
    arguments = DOCUMENTS | {"query_texts": [QUERY]}
    result, failed = session.run_tool(chosen.require_tool("chroma_query_documents"), arguments, CallProgress())
    if failed:
        raise SystemExit(str(result))
    return ",".join(name for name in sys.modules if name not in before and "cython" not in name)


def imports(names: str) -> float:
    """Modules, and the embedding model, which is a package as well."""
    import vmrag_mcp.server  # noqa: F401
    from vmrag_link.embedding import registry

    since = time.perf_counter()
    for name in names.split(","):
        with contextlib.suppress(ImportError):  # a name that a compiled module gave itself
            importlib.import_module(name)
    registry.load_model("default").embed_queries([QUERY])
    return time.perf_counter() - since


if __name__ == "__main__":
    what, argument = sys.argv[1:]
    print(
        {
            "library": lambda: library(Path(argument)),
            "modules": lambda: modules(Path(argument)),
            "imports": lambda: imports(argument),
        }[what]()
    )

"""From a command line to a running server. Imports only what a client waits for at the start."""

from __future__ import annotations

import functools
import gc
import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from vmrag_link import env, extras, toolset
from vmrag_link.errors import GitRepositoryMissing, McpExtraMissing, UsageInvalid
from vmrag_link.models import Record
from vmrag_link.settings import EmbeddingModel
from vmrag_mcp import options
from vmrag_mcp.options import Flags
from vmrag_mcp.process import Wire, exit_now, exit_on_signals, exit_with_parent, log
from vmrag_mcp.repository import find_repository, load_settings
from vmrag_mcp.transport.address import ListenAddress, parse_address, parse_origin, require_safe
from vmrag_mcp.transport.early import EarlyStream, StaticAnswers

if TYPE_CHECKING:
    from vmrag_mcp.server import KnowledgeServer

_FAILED = 3
_LAST_SECONDS = 1.0
"""Threads that still wait for something keep a process that has failed no longer."""


class ServeRequest(Record, frozen=True):
    """The command line.

    `http`: where to listen, if not to standard input; `origins`: allowed pages.
    """

    repository: Path | None = None
    flags: Flags = Flags()
    http: str | None = None
    allow_remote: bool = False
    token_env: str | None = None
    origins: tuple[str, ...] = ()


def serve(asked: ServeRequest) -> None:
    """Serve until the client is gone or a signal comes; then the process ends.

    Raises `UsageInvalid`, `McpExtraMissing`, `Busy`.
    """
    require_extra()
    _forget_git()
    _prefer_model(asked.flags.default_ef)
    place = find_repository(asked.repository)
    found = load_settings(place)
    selection = options.select_tools(options.resolve_choice(asked.flags, found.config.mcp, stated=found.stated))
    listening, token = _listen_address(asked)
    origins = tuple(map(parse_origin, asked.origins))
    exit_on_signals()
    for problem in toolset.installed().problems:
        log(problem)
    roots = listening is None and not place.named
    if found.problem and not (roots and isinstance(found.problem, GitRepositoryMissing)):  # the roots may name one
        log(f"{found.problem.message} Hint: {found.problem.hint}")
    settled = found.problem is None and not roots
    answers = StaticAnswers(selection, settled=settled)
    gc.disable()  # nothing of what is imported is garbage
    run = _over_http(listening, token, origins) if listening else _over_standard_streams(answers)
    from vmrag_mcp.deferred_setup import FirstCall, PlacedSession
    from vmrag_mcp.server import KnowledgeServer

    gc.freeze()
    gc.enable()
    session = PlacedSession(place)
    server = KnowledgeServer(session, selection)
    first = FirstCall(server, session, asked.flags, settled=settled, roots=roots, listed=answers.listed)
    server.sdk.middleware.append(first)
    try:
        run(server)
    except Exception:
        bug = threading.Timer(_LAST_SECONDS, exit_now, (_FAILED,))  # a thread may read from a client that does not know
        bug.daemon = True
        bug.start()
        raise
    exit_now()


def _over_standard_streams(answers: StaticAnswers) -> Callable[[KnowledgeServer], None]:
    """Take the streams, and return when a message needs the SDK."""
    exit_with_parent()
    wire = Wire()
    if wire.is_terminal:
        log("A program talks to this server, over standard input: see `vmrag mcp install`. Ctrl-C ends it.")
    stream = EarlyStream(wire, answers)
    stream.wait_for_need()
    from vmrag_mcp.transport import stdio

    return functools.partial(stdio.serve_stdio, stream=stream)


def _over_http(
    listening: ListenAddress, token: str | None, origins: tuple[str, ...]
) -> Callable[[KnowledgeServer], None]:
    from vmrag_mcp.transport import http

    return functools.partial(http.serve_http, asked=listening, token=token, origins=origins)


def require_extra() -> None:
    """Raises `McpExtraMissing`."""
    for package in ("mcp", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise McpExtraMissing(
                f"The MCP server needs the package {package}, which is not installed.",
                hint=extras.format_install_command("mcp"),
                package=package,
                extra="mcp",
            )


def _listen_address(asked: ServeRequest) -> tuple[ListenAddress | None, str | None]:
    """Where to listen, if not to standard input, and the token that clients need, if any."""
    if asked.http is None:
        if asked.allow_remote or asked.token_env or asked.origins:
            raise UsageInvalid("Only over HTTP does anybody reach this server.", hint="--http [HOST:]PORT")
        return None, None
    token = env.read_variable(asked.token_env or env.TOKEN)
    if asked.token_env and not token:
        raise UsageInvalid(f"The environment variable {asked.token_env} is empty.", hint=f"export {asked.token_env}=…")
    found = parse_address(asked.http)
    require_safe(found, allow_remote=asked.allow_remote, token=token)
    return found, token


def _prefer_model(name: str | None) -> None:
    if not (wanted := env.choose_model(name)):
        return
    known = get_args(EmbeddingModel)
    if wanted not in known:
        said = "--default-ef" if name else env.DEFAULT_EF
        raise UsageInvalid(
            f"{said} names the embedding model {wanted[:80]!r}, which is none here.", hint=f"One of: {', '.join(known)}"
        )
    env.prefer_model(wanted)


def _forget_git() -> None:
    """Drop what git told a hook that started the client: it names another repository or index."""
    env.remove_variables(name for name in env.GIT_LOCAL if name != env.GIT_OPTIONS)
    env.remove_variables([env.HOOK, *(f"{env.MERGE_HEADS}{head}" for head in env.list_merge_heads())])

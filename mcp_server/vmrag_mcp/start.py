"""Start a server from a command line.

A client waits for the list of tools, and the SDK takes most of the time of a start. So over the
standard streams, a server first answers without the SDK (`transport.early`), and this module
imports the SDK only when a message needs it.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import threading
from pathlib import Path
from typing import get_args

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

_CRASH_EXIT_CODE = 3
_MAX_CRASH_SECONDS = 1.0
"""After a crash, waiting threads delay the end of the process by at most this time."""


class ServeRequest(Record, frozen=True):
    """The command line."""

    repository: Path | None = None
    flags: Flags = Flags()
    http: str | None = None
    """Address to listen on, in place of standard input."""
    allow_remote: bool = False
    token_env: str | None = None
    origins: tuple[str, ...] = ()
    """Origins of pages that can use the server."""


def serve(request: ServeRequest) -> None:
    """Serve until the client disconnects or a signal arrives. Then the process ends.

    Raises `UsageInvalid`, `McpExtraMissing` and `Busy`.
    """
    require_extra()
    _remove_git_variables()
    _prefer_model(request.flags.default_ef)
    repository = find_repository(request.repository)
    loaded = load_settings(repository)
    selection = options.select_tools(options.resolve_choice(request.flags, loaded.config.mcp, stated=loaded.stated))
    listen_address, token = _parse_listen_address(request)
    origins = tuple(map(parse_origin, request.origins))
    exit_on_signals()
    for problem in toolset.installed().problems:
        log(problem)
    wait_for_roots = listen_address is None and not repository.named_by
    may_be_named = wait_for_roots and isinstance(loaded.problem, GitRepositoryMissing)  # by the client's roots
    if loaded.problem and not may_be_named:
        log(f"{loaded.problem.message} Hint: {loaded.problem.hint}")
    settled = loaded.problem is None and not wait_for_roots
    answers = StaticAnswers(selection, settled=settled)
    gc.disable()  # imports create no garbage
    if listen_address:
        from vmrag_mcp.transport import http

        run = functools.partial(http.serve_http, address=listen_address, token=token, origins=origins)
    else:
        run = _prepare_standard_streams(answers)
    from vmrag_mcp.deferred_setup import FirstCall, RepositorySession
    from vmrag_mcp.server import KnowledgeServer

    gc.freeze()
    gc.enable()
    session = RepositorySession(repository)
    server = KnowledgeServer(session, selection)
    first_call = FirstCall(server, session, request.flags, settled=settled, roots=wait_for_roots, listed=answers.listed)
    server.sdk.middleware.append(first_call)
    try:
        run(server)
    except Exception:
        # A thread may still read from the client.
        deadline = threading.Timer(_MAX_CRASH_SECONDS, exit_now, (_CRASH_EXIT_CODE,))
        deadline.daemon = True
        deadline.start()
        raise
    exit_now()


def _prepare_standard_streams(answers: StaticAnswers) -> functools.partial[None]:
    """Take the streams, answer without the SDK until a message needs it, and return the function
    that serves from then on.
    """
    exit_with_parent()
    wire = Wire()
    if wire.is_terminal:
        log("waiting for an MCP client on standard input (see 'vmrag mcp install'; Ctrl-C ends the server)")
    stream = EarlyStream(wire, answers)
    stream.wait_for_need()
    from vmrag_mcp.transport import stdio

    return functools.partial(stdio.serve_stdio, stream=stream)


def require_extra() -> None:
    """Raise `McpExtraMissing` unless the packages of the extra `mcp` are installed."""
    for package in ("mcp", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise McpExtraMissing(
                f"the MCP server needs the package {package}, which is not installed.",
                hint=extras.suggest_install("mcp"),
                package=package,
                extra="mcp",
            )


def _parse_listen_address(request: ServeRequest) -> tuple[ListenAddress | None, str | None]:
    """Return the address to listen on, and the token that clients need. None: not needed."""
    if request.http is None:
        if request.allow_remote or request.token_env or request.origins:
            raise UsageInvalid("options for HTTP need '--http'.", hint="add '--http [HOST:]PORT'")
        return None, None
    token = env.read_variable(request.token_env or env.TOKEN)
    if request.token_env and not token:
        raise UsageInvalid(
            f"the environment variable {request.token_env} is empty.", hint=f"run 'export {request.token_env}=…'"
        )
    address = parse_address(request.http)
    require_safe(address, allow_remote=request.allow_remote, token=token)
    return address, token


def _prefer_model(name: str | None) -> None:
    """Use this embedding model, or the one that a variable names, for new collections."""
    if not (model := env.choose_model(name)):
        return
    valid_names = get_args(EmbeddingModel)
    if model not in valid_names:
        option = "--default-ef" if name else env.DEFAULT_EF
        raise UsageInvalid(
            f"unknown embedding model in {option}: {model[:80]!r}.", hint=f"use one of {', '.join(valid_names)}"
        )
    env.prefer_model(model)


def _remove_git_variables() -> None:
    """Remove the variables that git sets for a hook: they can name another repository or index."""
    env.remove_variables(name for name in env.GIT_LOCAL if name != env.GIT_OPTIONS)
    env.remove_variables([env.HOOK, *(f"{env.MERGE_HEADS}{head}" for head in env.list_merge_heads())])

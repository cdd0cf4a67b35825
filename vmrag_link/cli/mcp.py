"""`vmrag mcp`, and `vmrag-mcp`, which clients start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmrag_link import terminal_text
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command

if TYPE_CHECKING:
    from vmrag_mcp.clients import ClientInstallReport
    from vmrag_mcp.options import Flags

CLIENTS = ("claude-code", "cursor", "vscode")


@vmrag_command("mcp")
@click.argument("action", required=False, type=click.Choice(["install"]), metavar="[install]")
@click.option(
    "--repo",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The repository whose knowledge is served. Otherwise VMRAG_REPO, the client's project, or the current directory.",
)
@click.option(
    "--toolsets",
    metavar="NAME,…",
    help="The toolsets to have; `default` stands for the default set, `all` for every one. VMRAG_TOOLSETS.",
)
@click.option("--tools", metavar="NAME,…", help="Single tools to have, too. VMRAG_TOOLS.")
@click.option(
    "--exclude-tools", metavar="NAME,…", help="Tools not to have, whatever else is said. VMRAG_EXCLUDE_TOOLS."
)
@click.option("--read-only", is_flag=True, help="Have only tools that change nothing. VMRAG_READ_ONLY=1.")
@click.option(
    "--http",
    metavar="[HOST:]PORT",
    help="Serve over HTTP, at /mcp, instead of standard input and output; 0: a free port.",
)
@click.option("--allow-remote", is_flag=True, help="Let HOST be one that other computers reach; takes a token.")
@click.option(
    "--token-env",
    metavar="NAME",
    help="The environment variable with the bearer token that clients must send over HTTP. VMRAG_MCP_TOKEN, if that is set.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this origin in a browser use it over HTTP, such as http://localhost:6274. Otherwise no page may.",
)
@click.option(
    "--default-ef",
    metavar="NAME",
    help="The embedding model of new collections, instead of the setting embedding.model. CHROMA_DEFAULT_EF.",
)
@click.option(
    "--cpu-execution-provider",
    type=click.Choice(["auto", "true", "false"]),
    hidden=True,
    help="As other servers have it. There is nothing to choose: models compute on the CPU.",
)
@click.option(
    "--client",
    type=click.Choice(CLIENTS),
    help="With `install`: the client whose project configuration gets the server, with the options given here.",
)
@click.option(
    "--print", "print_only", is_flag=True, help="With `install`: print what belongs into a client's configuration."
)
def command(
    invocation: Invocation,
    *,
    action: str | None,
    repo: Path | None,
    toolsets: str | None,
    tools: str | None,
    exclude_tools: str | None,
    read_only: bool,
    http: str | None,
    allow_remote: bool,
    token_env: str | None,
    origins: tuple[str, ...],
    default_ef: str | None,
    cpu_execution_provider: str | None,
    client: str | None,
    print_only: bool,
) -> None:
    """Serve the knowledge of the checked-out code to agents (MCP), or tell a client of this server:
    `vmrag mcp install`.

    A client starts `vmrag-mcp`, which is the same command. See docs/mcp.md.
    """
    from vmrag_mcp.options import Flags

    flags = Flags(
        toolsets=toolsets, tools=tools, exclude_tools=exclude_tools, read_only=read_only, default_ef=default_ef
    )
    if cpu_execution_provider:
        from vmrag_mcp.log import log

        log("--cpu-execution-provider chooses nothing: models compute on the CPU.")
    if action == "install":
        if http or allow_remote or token_env or origins:
            raise click.UsageError("A client that starts the server talks to it over standard input and output.")
        _install(invocation, flags, client=client, repository=repo, print_only=print_only)
        return
    if client or print_only:
        raise click.UsageError("--client and --print belong to `vmrag mcp install`.")

    from vmrag_mcp import start

    given = _from(invocation, repo)
    start.serve(
        start.ServeRequest(given, flags, http=http, allow_remote=allow_remote, token_env=token_env, origins=origins)
    )


def _from(invocation: Invocation, repo: Path | None) -> Path | None:
    """`-C` says it as well."""
    if repo is not None:
        return invocation.directory / repo.expanduser()
    return None if invocation.directory == Path.cwd() else invocation.directory


def _install(
    invocation: Invocation, flags: Flags, *, client: str | None, repository: Path | None, print_only: bool
) -> None:
    from vmrag_link.settings import McpSettings
    from vmrag_mcp import clients, options, start

    start.demand_extra()
    options.selection(options.chosen(flags, McpSettings()))
    directory = _from(invocation, repository) or invocation.directory
    if print_only:
        printed = clients.configuration(directory, client, flags)
        invocation.emit(printed, terminal_text.lines(printed.text))
        return
    if client is None:
        raise click.UsageError(f"--client {'|'.join(CLIENTS)}, or --print for any other client.")
    report = clients.install(directory, client, flags)
    invocation.emit(report, _lines(report))


def _lines(report: ClientInstallReport) -> Iterator[str]:
    if report.kept:
        yield f"{report.file} has a server of that name already, which is not this one; it stays. See: vmrag mcp install --print"
    elif report.changed:
        yield f"Wrote {report.file}. Restart the client, and commit the file: colleagues get the server with it."
    else:
        yield f"{report.file} has it already."
    if not report.portable:
        yield (
            f"It names {report.server['command']}, which only this computer has. "
            "Install with pipx or `uv tool`, or into an environment in the project, to share the file."
        )


def main() -> None:
    """`vmrag-mcp` is `vmrag mcp`."""
    from vmrag_link.cli.main import run

    sys.exit(run(["mcp", *sys.argv[1:]]))


if __name__ == "__main__":
    main()

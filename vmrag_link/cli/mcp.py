"""`vmrag mcp`, and `vmrag-mcp`, which clients start: the server, and its entry in the configuration
of clients.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from vmrag_link import terminal_text
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, VmragGroup
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, GitRepositoryMissing, VmragError, quoted

if TYPE_CHECKING:  # the server starts without it
    from vmrag_mcp.clients.install import ClientInstallReport, ClientRefusal
    from vmrag_mcp.clients.rules import RulesFile
    from vmrag_mcp.clients.table import Scope
    from vmrag_mcp.clients.uninstall import ClientUninstallReport
    from vmrag_mcp.options import Flags


CLIENTS = (
    *("claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "zed"),
    *("jetbrains", "codex", "gemini", "opencode", "goose", "kiro"),
)

ALIASES = {
    **dict.fromkeys(("claude", "claudecode"), "claude-code"),
    **dict.fromkeys(("claudedesktop", "claude-app"), "claude-desktop"),
    "cursor-agent": "cursor",
    **dict.fromkeys(("code", "vs-code", "visual-studio-code"), "vscode"),
    "zeditor": "zed",
    **dict.fromkeys(("junie", "intellij", "idea", "pycharm"), "jetbrains"),
    **dict.fromkeys(("codex-cli", "openai-codex"), "codex"),
    "gemini-cli": "gemini",
    "open-code": "opencode",
    "kiro-cli": "kiro",
}
"""Other names of a client that users type, such as that of its program."""


class _Client(click.Choice[str]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = "-".join(str(value).lower().replace("_", " ").split())
        return super().convert(ALIASES.get(name, name), param, ctx)


_SECTIONS = {
    "Tools": ("--toolsets", "--default-toolsets", "--tools", "--exclude-tools", "--read-only"),
    "HTTP": ("--http", "--allow-remote", "--token-env", "--allow-origin"),
}


_SELECTION = (
    click.option("--toolsets", metavar="NAME,…", help="Toolsets, such as essential, default or all (VMRAG_TOOLSETS)."),
    click.option(
        "--default-toolsets",
        metavar="NAME,…",
        help="Toolsets if --toolsets, VMRAG_TOOLSETS and the settings name none.",
    ),
    click.option("--tools", metavar="NAME,…", help="More tools, by name (VMRAG_TOOLS)."),
    click.option(
        "--exclude-tools", metavar="NAME,…", help="Tools to leave out, even if named elsewhere (VMRAG_EXCLUDE_TOOLS)."
    ),
    click.option("--read-only", is_flag=True, help="Leave out tools that change something (VMRAG_READ_ONLY=1)."),
    click.option(
        "--default-ef",
        metavar="NAME",
        help="Embedding model of new collections (CHROMA_DEFAULT_EF; default: embedding.model).",
    ),
)


def _selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the tools of the server, which are `flags` of the function."""

    @functools.wraps(function)
    def wrapped(
        *rest: Any,
        toolsets: str | None,
        default_toolsets: str | None,
        tools: str | None,
        exclude_tools: str | None,
        read_only: bool,
        default_ef: str | None,
        **arguments: Any,
    ) -> Any:
        from vmrag_mcp.options import Flags

        flags = Flags(
            toolsets=toolsets,
            tools=tools,
            exclude_tools=exclude_tools,
            read_only=read_only,
            default_ef=default_ef,
            default_toolsets=default_toolsets,
        )
        return function(*rest, flags=flags, **arguments)

    for option in reversed(_SELECTION):
        wrapped = option(wrapped)
    return wrapped


_repository_option = click.option(
    "--repo",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Repository to serve (default: VMRAG_REPO, the client's project or the current directory).",
)
_client_option = click.option(
    "--client", type=_Client(CLIENTS), metavar="CLIENT", help=f"Client to configure: {', '.join(CLIENTS)}."
)
_user_option = click.option(
    "--user", "personal", is_flag=True, help="Use your own configuration of the client, not the project's."
)


@vmrag_command("install", sections={"Tools": _SECTIONS["Tools"]})
@_client_option
@click.option("--all", "every_client", is_flag=True, help="Configure all clients found on this computer.")
@_user_option
@click.option("--replace", is_flag=True, help="Replace a server of the same name that vmrag did not write.")
@click.option("--rules", is_flag=True, help="Write a section on the tools into AGENTS.md, or the file of the client.")
@click.option("--print", "print_only", is_flag=True, help="Print the configuration instead of writing it.")
@_repository_option
@_selection_options
def install(
    invocation: Invocation,
    *,
    client: str | None,
    every_client: bool,
    personal: bool,
    replace: bool,
    rules: bool,
    print_only: bool,
    repo: Path | None,
    flags: Flags,
) -> int:
    """Add the server to the configuration of MCP clients.

    The options for tools and the repository become a part of the entry. Without any, it has
    '--default-toolsets essential'.
    """
    from vmrag_mcp.options import Flags

    directory = _find_repository(invocation, repo) or invocation.directory
    if rules and not (client or every_client):
        if personal or replace or flags != Flags():
            raise click.UsageError("--rules without --client or --all accepts only --repo and --print.")
        return _install_rules(invocation, directory, print_only=print_only)
    name = _choose_client(client, every_client=every_client, print_only=print_only)
    scope: Literal["person"] | None = "person" if personal else None
    _require_selection(flags)
    if print_only:
        _print_configuration(invocation, directory, name, flags, scope)
        return OK
    return _install_clients(invocation, directory, name, flags, scope, replace=replace, rules=rules)


@vmrag_command("uninstall")
@_client_option
@click.option("--all", "every_client", is_flag=True, help="Remove the server from all clients that have it.")
@_user_option
@click.option("--rules", is_flag=True, help="Remove the section on the tools from AGENTS.md and similar files.")
@_repository_option
def uninstall(
    invocation: Invocation, *, client: str | None, every_client: bool, personal: bool, rules: bool, repo: Path | None
) -> int:
    """Remove the server from the configuration of MCP clients."""
    directory = _find_repository(invocation, repo) or invocation.directory
    if rules and not (client or every_client):
        if personal:
            raise click.UsageError("--rules without --client or --all accepts only --repo.")
        return _uninstall_rules(invocation, directory)
    name = _choose_client(client, every_client=every_client, print_only=False)
    return _uninstall_clients(invocation, directory, name, "person" if personal else None, rules=rules)


@vmrag_command("turn-ended")
def turn_ended(invocation: Invocation) -> None:
    """Commit or list what an agent left uncommitted.

    It is for a hook of the client. With `mcp.auto_commit: write`, it commits the documents.
    Otherwise it lists them.
    """
    _end_turn(invocation)


@vmrag_command(
    "mcp",
    sections=_SECTIONS,
    cls=VmragGroup,
    invoke_without_command=True,
    commands=(install, uninstall, turn_ended),
)
@_repository_option
@_selection_options
@click.option("--http", metavar="[HOST:]PORT", help="Serve over HTTP at /mcp. Port 0: any free port.")
@click.option("--allow-remote", is_flag=True, help="Accept connections from other computers. Requires a token.")
@click.option("--token-env", metavar="NAME", help="Variable with the bearer token (default: VMRAG_MCP_TOKEN).")
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Allow web pages of this origin, such as http://localhost:6274 (default: none).",
)
@click.option(
    "--cpu-execution-provider",
    type=click.Choice(["auto", "true", "false"]),
    hidden=True,
    help="Ignored, for compatibility with other servers. Models always run on the CPU.",
)
def command(
    invocation: Invocation,
    *,
    repo: Path | None,
    flags: Flags,
    http: str | None,
    allow_remote: bool,
    token_env: str | None,
    origins: tuple[str, ...],
    cpu_execution_provider: str | None,
) -> int:
    """Serve documents and code to agents (MCP).

    It uses standard input and output. Clients start `vmrag-mcp`, which is the same command.
    """
    context = click.get_current_context()
    if name := context.invoked_subcommand:
        if any(context.get_parameter_source(param) == ParameterSource.COMMANDLINE for param in _SERVER_PARAMS):
            raise click.UsageError(
                f"options of the server cannot precede '{name}'; run 'vmrag mcp {name} --help' to see its options"
            )
        return OK
    if cpu_execution_provider:
        from vmrag_mcp.process import log

        log("ignoring --cpu-execution-provider: models always run on the CPU.")
    from vmrag_mcp import start

    directory = _find_repository(invocation, repo)
    start.serve(
        start.ServeRequest(directory, flags, http=http, allow_remote=allow_remote, token_env=token_env, origins=origins)
    )
    return OK


_SERVER_PARAMS = (
    *("repo", "toolsets", "default_toolsets", "tools", "exclude_tools", "read_only", "default_ef"),
    *("http", "allow_remote", "token_env", "origins", "cpu_execution_provider"),
)


def _end_turn(invocation: Invocation) -> None:
    """Commit or list documents at the end of an agent's turn.

    It never fails, because a client would show the failure after each turn.
    """
    import json

    from vmrag_mcp.auto_commit import end_turn

    try:
        with invocation.workspace(warn=False) as ws:
            message = end_turn(ws)
    except VmragError as error:
        message = "" if isinstance(error, GitRepositoryMissing) else error.sentence
    if message:
        output.print_json(json.dumps({"systemMessage": message}))


def _find_repository(invocation: Invocation, repo: Path | None) -> Path | None:
    """Return the repository of `--repo` or `-C`; None to let the server choose."""
    if repo is not None:
        return invocation.directory / repo.expanduser()
    return None if invocation.directory == Path.cwd() else invocation.directory


def _choose_client(client: str | None, *, every_client: bool, print_only: bool) -> str | None:
    """Return the name of the client, or None for all clients."""
    if client and every_client:
        raise click.UsageError("--client and --all cannot be combined.")
    if every_client and print_only:
        raise click.UsageError("--print accepts at most one client.")
    if not client and not every_client and not print_only:
        raise click.UsageError(f"--client {'|'.join(CLIENTS)}, --all, or --print for any other client.")
    return client


def _require_selection(flags: Flags) -> None:
    import msgspec

    from vmrag_link.settings import McpSettings
    from vmrag_mcp import options, start

    start.require_extra()
    for variant in (flags, msgspec.structs.replace(flags, toolsets=None)):  # without toolsets, the default ones apply
        options.select_tools(options.resolve_choice(variant, McpSettings()))


def _print_configuration(
    invocation: Invocation, directory: Path, name: str | None, flags: Flags, scope: Literal["person"] | None
) -> None:
    from vmrag_mcp.clients.install import build_configuration

    printed = build_configuration(directory, name, flags, scope)
    invocation.emit_report(printed, terminal_text.split_lines(printed.text))


def _install_rules(invocation: Invocation, directory: Path, *, print_only: bool) -> int:
    """Write or print the section for agents, without a client, and return the exit code."""
    from vmrag_mcp.clients import rules

    if print_only:
        invocation.emit_report({"text": rules.TEXT}, rules.TEXT.splitlines())
    else:
        report = rules.install_rules(directory)
        invocation.emit_report(report, _rules_lines(report.rules))
    return OK


def _uninstall_rules(invocation: Invocation, directory: Path) -> int:
    """Remove the section for agents, without a client, and return the exit code."""
    from vmrag_mcp.clients import rules

    report = rules.uninstall_rules(directory)
    invocation.emit_report(report, describe_removed_rules(report.rules) or ["No file has the section for agents."])
    return OK


def _rules_lines(rules: Iterable[RulesFile]) -> list[str]:
    return [
        f"Wrote the section for agents into {file.file}. Commit the file to share it."
        if file.changed
        else f"{file.file} already has the section for agents."
        for file in rules
    ]


def describe_removed_rules(rules: Iterable[RulesFile]) -> list[str]:
    return [f"Removed the section for agents from {file.file}." for file in rules]


def _install_clients(
    invocation: Invocation,
    directory: Path,
    name: str | None,
    flags: Flags,
    scope: Scope | None,
    *,
    replace: bool,
    rules: bool,
) -> int:
    """Add the server to a client, or to all installed ones, and return the exit code."""
    from vmrag_mcp.clients import install as operation

    if name:
        report = operation.install_server(directory, name, flags, scope, replace=replace, rules=rules)
        invocation.emit_report(
            report, [*_describe_installed(report, flags), *_not_shared(report), *_rules_lines(report.rules)]
        )
        return FAILED_CHECK if report.differs else OK
    reports = operation.install_all(directory, flags, scope, replace=replace, rules=rules)
    lines = [line for report in reports.clients for line in _describe_installed(report, flags)]
    alone = [line for client in reports.clients for line in _not_shared(client)]
    written = [file for report in reports.clients for file in report.rules]
    files = {file.file: file for file in sorted(written, key=lambda file: file.changed)}
    invocation.emit_report(
        reports, [*lines, *alone[:1], *_rules_lines(files.values()), *describe_refusals(reports.refused)]
    )
    return FAILED_CHECK if reports.refused or any(report.differs for report in reports.clients) else OK


def _uninstall_clients(
    invocation: Invocation, directory: Path, name: str | None, scope: Scope | None, *, rules: bool
) -> int:
    """Remove the server from a client, or from all that have it, and return the exit code."""
    from vmrag_mcp.clients import uninstall as operation

    if name:
        report = operation.uninstall_server(directory, name, scope, rules=rules)
        invocation.emit_report(report, describe_uninstall(report))
        return OK
    reports = operation.uninstall_all(directory, scope, rules=rules)
    lines = [line for client in reports.clients for line in describe_uninstall(client)]
    lines += describe_removed_rules(reports.rules)
    nothing = [] if lines or reports.refused else ["No client's file has the server."]
    invocation.emit_report(reports, [*lines, *nothing, *describe_refusals(reports.refused)])
    return FAILED_CHECK if reports.refused else OK


def _describe_installed(report: ClientInstallReport, flags: Flags) -> Iterator[str]:
    if report.kept:
        differs = f": {'; '.join(report.differs)}" if report.differs else ""
        yield f"{report.file} has a server {report.name!r} that differs from this one{differs}. It was not changed."
        yield f"hint: run '{_replacement_command(report, flags)}' to replace it"
    elif not report.changed:
        yield f"{report.file} already has the server."
    elif report.shared:
        yield f"Wrote {report.file}.{_how_to_share(report)} {report.next_step}."
    else:
        yield f"Wrote {report.file}: the server {report.name!r}. {report.next_step}."


def _how_to_share(report: ClientInstallReport) -> str:
    if report.ignored:
        return " Only this computer has it, because git ignores the file."
    return " Commit the file to give your colleagues the server." if report.portable else ""


def _replacement_command(report: ClientInstallReport, flags: Flags) -> str:
    """Return the command that replaces a client's entry."""
    from vmrag_mcp.clients.server_command import format_options
    from vmrag_mcp.options import Flags

    option_words = map(quoted, format_options(flags) if flags != Flags() else ())
    personal = [] if report.shared else ["--user"]
    return " ".join(["vmrag mcp install --client", report.client, *personal, *option_words, "--replace"])


def _not_shared(report: ClientInstallReport) -> Iterator[str]:
    if not report.portable and not report.ignored:
        program = report.server.get("command") or report.server.get("cmd")
        yield (
            f"It names {program[0] if isinstance(program, list) else program}, which only this computer has. "
            "Install with pipx or `uv tool`, or into an environment in the project, to share the file."
        )


def describe_uninstall(report: ClientUninstallReport) -> Iterator[str]:
    if report.removed:
        yield f"Removed the server from {report.file}."
    elif report.kept == "changed":
        yield f"{report.file} has the server with your own changes, so it stays. Delete it by hand."
    elif report.kept:
        yield f"{report.file} has another server of that name, which stays."
    else:
        yield f"{report.file} does not have the server."
    yield from describe_removed_rules(report.rules)


def describe_refusals(refused: Iterable[ClientRefusal]) -> Iterator[str]:
    for refusal in refused:
        yield f"{refusal.message} {refusal.hint}"


def main() -> None:
    """Run `vmrag mcp` as `vmrag-mcp`."""
    from vmrag_link import startup
    from vmrag_link.cli.main import run

    startup.prepare_start()
    sys.exit(run(["mcp", *sys.argv[1:]]))


if __name__ == "__main__":
    main()

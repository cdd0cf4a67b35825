"""The program `vmrag`: find the command, and map errors to exit codes.

The module of a command is imported when the command runs. `vmrag --version` imports only click and
small modules.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from vmrag_link import __version__, env, startup
from vmrag_link.cli import commands, output
from vmrag_link.cli.common import common_options
from vmrag_link.errors import BUG, INTERRUPTED, OK, USAGE, VmragError, nearest, system_failure

DOCUMENTATION = "https://github.com/vmrag/vmrag-link/tree/main/docs"


class LazyGroup(click.Group):
    """The group of all commands, which imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return commands.list_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        command = commands.find_command(cmd_name)
        startup.enable_collection()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write_commands(formatter, commands.list_everyday())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        formatter.write_paragraph()
        formatter.write_text("'vmrag help --all' lists all commands. 'vmrag COMMAND --help' explains one.")
        formatter.write_text(f"Documentation: {DOCUMENTATION}")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in commands.COMMANDS and not name.startswith("-") and name not in commands.list_names():
            similar = _OTHER_NAMES.get(name) or nearest(name, commands.list_names())
            ctx.fail(f"no such command: '{name}'." + (f" Did you mean '{similar}'?" if similar else ""))
        return super().resolve_command(ctx, args)


_OTHER_NAMES = {
    "checkout": "git checkout",
    "delete": "rm",
    "find": "query",
    "forget": "rm",
    "history": "log",
    "ls": "list",
    "read": "show",
    "remember": "add",
    "remove": "rm",
    "search": "query",
    "switch": "git switch",
}
"""Commands by the names that git, other programs and the tools of agents use."""


def write_commands(formatter: click.HelpFormatter, topics: Mapping[str, Mapping[str, str]]) -> None:
    """Write commands and their descriptions, by topic."""
    width = max(len(name) for lines in topics.values() for name in lines)
    for topic, lines in topics.items():
        with formatter.section(topic):
            formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])


def _print_version(ctx: click.Context) -> None:
    from vmrag_link import extras  # no command waits for it

    names = ", ".join(extras.list_installed_extras()) or "none"
    output.print_lines([f"vmrag, version {__version__}", f"extras: {names}"])
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, is_set: _print_version(ctx) if is_set else None,
    help="Show the version, and which extras are installed.",
)
def cli(**_: object) -> None:
    """Search the documents and code of the checked-out git commit. 'git checkout' switches the
    stored documents and the index with it.

    Sources name the tracked files to search. The knowledge base stores other documents in
    revisions, and .dolt-version names one (the pin). A KB branch is a branch of it.
    """


cli.params += common_options()  # a command finds them in its parent's context


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and end the process."""
    startup.prepare_start()
    startup.exit_process(run(sys.argv[1:] if argv is None else list(argv)))


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    It is 0 for success, 1 for drift or a failed check, 2 for a usage error, 3 for a failure, 4 for
    a bug and 130 for an interruption.
    """
    as_json = "--json" in argv
    try:
        result: Any = cli.main(list(argv), prog_name="vmrag", standalone_mode=False)
    except click.ClickException as error:
        return _report_usage(error, as_json=as_json)
    except VmragError as error:
        return _report_error(error, as_json=as_json)
    except BaseException as error:  # noqa: BLE001  the outermost boundary
        return _handle_exception(error, argv, as_json=as_json)
    return result if isinstance(result, int) else OK


def _handle_exception(error: BaseException, argv: Sequence[str], *, as_json: bool) -> int:
    """Return the exit code for an exception that is not an error that the user can fix."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            consequence = str(error) or str(error.__cause__ or "") or "No stored data was lost."
            sentence = f"Interrupted. {consequence}"
            if as_json:
                _print_json("INTERRUPTED", sentence, "run the command again")
            else:
                output.print_warning(sentence)
            return INTERRUPTED
        case Exception():
            failure = system_failure(error)
            # Other exceptions are bugs, and leave a log.
            return _report_error(failure, as_json=as_json) if failure else _report_bug(error, argv, as_json=as_json)
    raise error


def _report_error(error: VmragError, *, as_json: bool) -> int:
    if env.is_debug():
        import traceback

        output.print_stderr("".join(traceback.format_exception(error)).splitlines())
    if as_json:
        _print_json(**error.to_dict())
    else:
        _print_failure("error:", error.message, error.hint)
    return error.exit_code


def _report_usage(error: click.ClickException, *, as_json: bool) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = error.format_message()
    hint = _suggest_help(context)
    if message.startswith("Got unexpected extra argument"):
        hint = f"put a text of several words in quotes, or {hint}"
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        output.print_stderr(message.splitlines())
        return USAGE
    if message[1:2].islower():  # click begins with a capital letter, and our errors do not
        message = message[0].lower() + message[1:]
    if as_json:
        _print_json("INVALID_PARAMETER", message, hint)
        return USAGE
    if context:
        output.print_stderr([*context.get_usage().splitlines(), ""])
    _print_failure("error:", message, hint)
    return USAGE


def _suggest_help(context: click.Context | None) -> str:
    if context is None or context.parent is None:
        return "run 'vmrag --help' to list the commands"
    return f"run '{context.command_path} --help' to see its options"


def _report_bug(error: Exception, argv: Sequence[str], *, as_json: bool) -> int:
    from vmrag_link.ops import buglog

    path = buglog.write_log(error, argv)
    message, hint = f"{type(error).__name__}: {error}", buglog.suggest_report(path)
    if as_json:
        _print_json("INTERNAL_ERROR", message, hint, {"log": str(path or "")})
    else:
        _print_failure("bug:", message, hint)
    return BUG


def _print_failure(label: str, message: str, hint: str) -> None:
    output.print_warning(message, label, fg="red", bold=True)
    if hint:
        output.print_warning(hint, "hint:", fg="cyan")


def _print_json(code: str, message: str, hint: str, details: Mapping[str, Any] | None = None) -> None:
    from vmrag_link.models import format_json

    error = {"code": code, "message": message, "hint": hint, "details": details or {}}
    output.print_json(format_json({"error": error}), to_stderr=True)


if __name__ == "__main__":
    main()

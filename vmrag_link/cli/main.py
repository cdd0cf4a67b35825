"""`vmrag`: finds the command, and is the one place where errors become exit codes.

A command's module is imported when the command runs: `vmrag --version` imports click and nothing
else of weight.
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


class LazyGroup(click.Group):
    """Knows its commands by name and one line; imports the one that is called."""

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in commands.COMMANDS and not name.startswith("-") and name not in commands.list_names():
            near = nearest(name, commands.list_names())
            ctx.fail(f"There is no command '{name}'." + (f" Did you mean '{near}'?" if near else ""))
        return super().resolve_command(ctx, args)


def write_commands(formatter: click.HelpFormatter, topics: Mapping[str, Mapping[str, str]]) -> None:
    """Write commands and their lines, by topic."""
    width = max(len(name) for lines in topics.values() for name in lines)
    for topic, lines in topics.items():
        with formatter.section(topic):
            formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])


def _say_version(ctx: click.Context) -> None:
    from vmrag_link import extras  # no command waits for it

    output.print_lines(
        [f"vmrag, version {__version__}", f"extras: {', '.join(extras.list_installed_extras()) or 'none'}"]
    )
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, asked: _say_version(ctx) if asked else None,
    help="Show the version, and which extras are installed.",
)
def cli(**_: object) -> None:
    """One commit for code and knowledge: git checkout moves the knowledge base and its vector index
    with the code.
    """


cli.params += common_options()  # a command finds them in its parent's context


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point; never returns."""
    startup.prepare_start()
    startup.exit_process(run(sys.argv[1:] if argv is None else list(argv)))


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    0 ok, 1 drift or failed check, 2 usage, 3 failed, 4 bug, 130 interrupted.
    """
    as_json = "--json" in argv
    try:
        result: Any = cli.main(list(argv), prog_name="vmrag", standalone_mode=False)
    except click.ClickException as error:
        return _usage(error, as_json=as_json)
    except VmragError as error:
        return _known(error, as_json=as_json)
    except BaseException as error:  # noqa: BLE001  the outermost boundary
        return _unusual(error, argv, as_json=as_json)
    return result if isinstance(result, int) else OK


def _unusual(error: BaseException, argv: Sequence[str], *, as_json: bool) -> int:
    """Everything that is neither success nor an error that a user can mend."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            left = str(error) or str(error.__cause__ or "") or "Nothing that was stored is lost."
            said = f"Interrupted. {left}"
            if as_json:
                _print_json("INTERRUPTED", said, "Run the command again.")
            else:
                output.print_warning(said)
            return INTERRUPTED
        case Exception():
            known = system_failure(error)
            # What nobody foresaw is a bug, and leaves a log.
            return _known(known, as_json=as_json) if known else _bug(error, argv, as_json=as_json)
    raise error


def _known(error: VmragError, *, as_json: bool) -> int:
    if env.is_debug():
        import traceback

        output.print_stderr("".join(traceback.format_exception(error)).splitlines())
    if as_json:
        _print_json(**error.to_dict())
    else:
        output.print_warning(error.message, "error:", fg="red", bold=True)
        if error.hint:
            output.print_warning(error.hint, "hint:", fg="cyan")
    return error.exit_code


def _usage(error: click.ClickException, *, as_json: bool) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"{context.command_path} --help" if context else "vmrag --help"
    if as_json:
        _print_json("INVALID_PARAMETER", error.format_message(), hint)
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        output.print_stderr(error.format_message().splitlines())
    else:
        if context:
            output.print_stderr([*context.get_usage().splitlines(), f"Try '{hint}' for help.", ""])
        output.print_warning(error.format_message(), "error:", fg="red", bold=True)
    return USAGE


def _bug(error: Exception, argv: Sequence[str], *, as_json: bool) -> int:
    from vmrag_link.ops import buglog

    path = buglog.write_log(error, argv)
    message, hint = f"{type(error).__name__}: {error}", buglog.report_hint(path)
    if as_json:
        _print_json("INTERNAL_ERROR", message, hint, {"log": str(path or "")})
    else:
        output.print_warning(message, "bug:", fg="red", bold=True)
        output.print_warning(hint, "hint:", fg="cyan")
    return BUG


def _print_json(code: str, message: str, hint: str, details: Mapping[str, Any] | None = None) -> None:
    from vmrag_link.models import format_json

    described = {"code": code, "message": message, "hint": hint, "details": details or {}}
    output.print_json(format_json({"error": described}), to_stderr=True)


if __name__ == "__main__":
    main()

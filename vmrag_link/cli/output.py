"""All output of the command line. Strangers' text reaches no terminal and no CI log as a command.

Texts are filtered as a whole when they are printed, so no command can forget it. `style` marks our
own colours, which get through.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import IO, Any

import click

from vmrag_link import env, terminal_text

_MARK = os.urandom(8).hex()
"""What a colour begins with until it is printed, in place of the escape character.

Nobody can guess it, so no colour of a stranger's text is taken for ours.
"""

_MARKED = _MARK + r"(\[[0-9;]*m)"

_AT_ONCE = 100
"""Lines of a stream."""


_LEAST_COLUMNS, _MOST_COLUMNS = 20, 100


def style_text(text: str, **look: Any) -> str:
    """The text in the look that `click.style` knows (`fg`, `bold`, …), for the functions below."""
    before, after = (each.replace("\x1b", _MARK) for each in click.style("|", **look).split("|"))
    return f"{before}{text}{after}"


def print_lines(lines: Iterable[str]) -> None:
    """Each element is one line, whatever it holds: a newline in a name is escaped."""
    shown = "\n".join(terminal_text.escape_line(line) for line in lines)
    _write(sys.stdout, _colour(shown, sys.stdout))


def print_stream(lines: Iterable[str]) -> None:
    """As `print_lines`, while they are made; none is made any more when the reader has left."""
    some = iter(lines)
    with _reader_may_leave():
        while batch := [terminal_text.escape_line(line) for line in islice(some, _AT_ONCE)]:
            click.echo(_colour("\n".join(batch), sys.stdout), file=sys.stdout)


def print_json(text: str, *, to_stderr: bool = False) -> None:
    """JSON that means the same."""
    _write(sys.stderr if to_stderr else sys.stdout, terminal_text.escape_json(text))


def print_exactly(text: str, *, raw: bool = False) -> bool:
    """The text byte for byte to a file, or to a program that reads it.

    Returns False if it was changed, because a terminal reads it, or GitHub's runner, which reads
    what a job prints to a pipe. `raw`: byte for byte in any case.
    """
    shown = text if raw else _for_reader(text)
    with _reader_may_leave():
        if shown != text or sys.stdout.isatty():
            click.echo(shown, nl=not shown.endswith("\n"))
        elif buffer := getattr(sys.stdout, "buffer", None):
            sys.stdout.flush()
            buffer.write(text.encode(errors="surrogateescape"))
            buffer.flush()
        else:
            sys.stdout.write(text)
    return shown == text


def print_warning(sentence: str, label: str = "", **look: Any) -> None:
    """A warning, a note or an error, on standard error; what follows its first line is indented."""
    told = f"{style_text(label, **look)} {sentence}" if label else sentence
    _write(sys.stderr, _colour(terminal_text.indent_continuation(told), sys.stderr))


def print_stderr(lines: Iterable[str]) -> None:
    """Lines on standard error, as `print_lines`."""
    _write(sys.stderr, _colour("\n".join(terminal_text.escape_line(line) for line in lines), sys.stderr))


def ask_choice(question: str, answers: Sequence[str], *, default: str | None = None) -> str:
    """One of the answers, which a person is asked for on the terminal until it is one. `default`:
    what an empty line says.
    """
    shown = _colour(terminal_text.escape_line(question), sys.stdout)
    suffix = " " if question.endswith("?") else ": "
    return str(
        click.prompt(
            shown,
            default=default,
            type=click.Choice(answers),
            show_choices=False,
            show_default=False,
            prompt_suffix=suffix,
        )
    )


def terminal_columns() -> int:
    """How wide lines may be: the terminal's width, and never wider than can be read well."""
    if not sys.stdout.isatty():
        return _MOST_COLUMNS
    width = os.get_terminal_size(sys.stdout.fileno()).columns or _MOST_COLUMNS  # some say 0
    return min(_MOST_COLUMNS, max(_LEAST_COLUMNS, width))


def ask_yes(question: str, *, default: bool | None = None) -> bool:
    """Whether the person at the terminal says yes. `default`: what an empty line says."""
    usual = None if default is None else "yes" if default else "no"
    answers = "yes, no" if usual is None else f"yes, no; Enter: {usual}"
    return ask_choice(f"{question} ({answers})", ("y", "yes", "n", "no"), default=usual) in ("y", "yes")


def _for_reader(text: str) -> str:
    """The text without what a terminal or GitHub's runner would obey, if one of them reads it.

    A regular file is no log: the step that redirects into it reads it itself.
    """
    if not sys.stdout.isatty() and not (env.in_github_actions() and not _is_file(sys.stdout)):
        return text
    return terminal_text.escape_for_log(terminal_text.escape_controls(text.replace("\r\n", "\n")))


def has_input_terminal() -> bool:
    """Return True if standard input is a terminal. Python has None in place of a closed one."""
    return sys.stdin is not None and sys.stdin.isatty()


def is_output_file() -> bool:
    """Whether standard output is a regular file."""
    return _is_file(sys.stdout)


def _is_file(stream: IO[str]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # it has no descriptor
        return False


def _colour(shown: str, stream: IO[str]) -> str:
    """Our colours, on a terminal only.

    None in a CI job: a colour could hide a command from the filter until it is dropped.
    """
    if stream.isatty() and not env.in_github_actions():
        return re.sub(_MARKED, "\x1b\\1", shown)
    return terminal_text.escape_for_log(re.sub(_MARKED, "", shown))


def _write(stream: IO[str], text: str) -> None:
    with _reader_may_leave():
        click.echo(text, file=stream)


@contextlib.contextmanager
def _reader_may_leave() -> Any:
    try:
        yield
    except BrokenPipeError:
        # Whoever read our output has seen enough. click would exit with 1, Python complain once
        # more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

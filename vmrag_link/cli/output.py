"""All output of the command line. Untrusted text reaches no terminal and no CI log as a command.

Texts are filtered when they are printed, so no command can forget it. `style_text` marks vmrag's
own colours, which pass the filter.
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
"""The beginning of a colour until it is printed, in place of the escape character.

It is random, so untrusted text cannot contain it.
"""

_MARKED = _MARK + r"(\[[0-9;]*m)"

_BATCH_LINES = 100
"""Lines of a stream that are printed together."""

_MIN_COLUMNS = 20
_MAX_COLUMNS = 100


def style_text(text: str, **look: Any) -> str:
    """Return the text with a style of `click.style`, for the functions below."""
    before, after = (half.replace("\x1b", _MARK) for half in click.style("|", **look).split("|"))
    return f"{before}{text}{after}"


def print_lines(lines: Iterable[str]) -> None:
    """Print each element as one line. A newline in a name is escaped."""
    text = "\n".join(terminal_text.escape_line(line) for line in lines)
    _write_text(sys.stdout, _apply_colours(text, sys.stdout))


def print_stream(lines: Iterable[str]) -> None:
    """Print lines while they are produced, until the reader closes the pipe."""
    iterator = iter(lines)
    with _reader_may_leave():
        while batch := [terminal_text.escape_line(line) for line in islice(iterator, _BATCH_LINES)]:
            click.echo(_apply_colours("\n".join(batch), sys.stdout), file=sys.stdout)


def print_json(text: str, *, to_stderr: bool = False) -> None:
    """Print JSON, escaped for its reader without a change of its meaning."""
    _write_text(sys.stderr if to_stderr else sys.stdout, terminal_text.escape_json(text))


def print_exactly(text: str, *, raw: bool = False, end_line: bool = False) -> bool:
    """Print a text byte for byte to a file, or to a program that reads it.

    Returns False if it was changed, because a terminal or GitHub's runner reads it. The runner
    reads what a job prints to a pipe. With `raw`, the text is never changed. `end_line`: also end
    the last line, except with `raw`.
    """
    if end_line and text and not text.endswith("\n"):
        text = f"{text}\n"
    readable = text if raw else _for_reader(text)
    with _reader_may_leave():
        if readable != text or sys.stdout.isatty():
            click.echo(readable, nl=not readable.endswith("\n"))
        elif hasattr(sys.stdout, "buffer"):
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode(errors="surrogateescape"))
            sys.stdout.buffer.flush()
        else:
            sys.stdout.write(text)
    return readable == text


def print_warning(sentence: str, label: str = "", **look: Any) -> None:
    """Print a warning, a note or an error on standard error. Lines after the first one are
    indented.
    """
    labelled = f"{style_text(label, **look)} {sentence}" if label else sentence
    _write_text(sys.stderr, _apply_colours(terminal_text.indent_continuation(labelled), sys.stderr))


def print_stderr(lines: Iterable[str]) -> None:
    """Print lines on standard error, each as one line."""
    _write_text(sys.stderr, _apply_colours("\n".join(terminal_text.escape_line(line) for line in lines), sys.stderr))


def ask_choice(question: str, answers: Sequence[str]) -> str:
    """Ask the user at the terminal for one of the answers, until it is valid."""
    prompt = _apply_colours(terminal_text.escape_line(question), sys.stdout)
    suffix = " " if question.endswith("?") else ": "
    return str(
        click.prompt(
            prompt,
            type=click.Choice(answers),
            show_choices=False,
            show_default=False,
            prompt_suffix=suffix,
        )
    )


def terminal_columns() -> int:
    """Return the width for lines: that of the terminal, limited to a readable one."""
    if not sys.stdout.isatty():
        return _MAX_COLUMNS
    width = os.get_terminal_size(sys.stdout.fileno()).columns or _MAX_COLUMNS  # some terminals report 0
    return min(_MAX_COLUMNS, max(_MIN_COLUMNS, width))


def ask_yes(question: str) -> bool:
    """Ask the user at the terminal, and return True for yes."""
    return ask_choice(f"{question} (yes, no)", ("y", "yes", "n", "no")) in ("y", "yes")


def _for_reader(text: str) -> str:
    """Return the text without commands to a terminal or to GitHub's runner, if one of them reads
    it.

    A regular file is not a log, because the step that redirects into it reads it.
    """
    if not sys.stdout.isatty() and not (env.in_github_actions() and not _is_file(sys.stdout)):
        return text
    return terminal_text.escape_for_log(terminal_text.escape_controls(text.replace("\r\n", "\n")))


def has_input_terminal() -> bool:
    """Return True if standard input is a terminal. Python has None in place of a closed one."""
    return sys.stdin is not None and sys.stdin.isatty()


def is_output_file() -> bool:
    """Return whether standard output is a regular file."""
    return _is_file(sys.stdout)


def _is_file(stream: IO[str]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # it has no descriptor
        return False


def _apply_colours(text: str, stream: IO[str]) -> str:
    """Insert vmrag's colours on a terminal, and remove them elsewhere.

    A CI job gets none, because a colour could hide a command from the filter until it is removed.
    """
    if stream.isatty() and not env.in_github_actions():
        return re.sub(_MARKED, "\x1b\\1", text)
    return terminal_text.escape_for_log(re.sub(_MARKED, "", text))


def _write_text(stream: IO[str], text: str) -> None:
    with _reader_may_leave():
        click.echo(text, file=stream)


@contextlib.contextmanager
def _reader_may_leave() -> Any:
    """Ignore a pipe that its reader has closed in the block."""
    try:
        yield
    except BrokenPipeError:
        # Without this, Python reports the error again when it flushes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

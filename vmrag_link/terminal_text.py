r"""What a stranger's text must not do to a terminal or to the log of a CI job, and how it is shown
instead.

Unsafe for a terminal are the control characters C0 (but newline and tab), DEL and C1, the controls
of text direction, the line separators of Unicode, and halves of surrogate pairs, which no UTF-8
stream takes. Each is shown as Python writes it: `\x1b`, `\u202e`.

GitHub's runner takes a line of a job's output for a command if it begins, after blanks, with `::`,
or if it holds `##[` anywhere. A backslash makes it text, as the runner itself does with markers of
its own (`##[\start-action`): whoever reads the log sees it, and nothing that the runner might
overlook, as it overlooks characters without width when it compares.
"""

from __future__ import annotations

import functools
import re

from vmrag_link import env

_UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def visible(text: str) -> str:
    """The text with everything that is unsafe for a terminal escaped; newlines and tabs stay."""
    if text.isprintable():  # most texts; the pattern takes longer to compile than a hook has time
        return text
    return _unsafe().sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """As `visible`, with newlines escaped, too: no stranger's name or title begins a line."""
    return visible(text).replace("\n", "\\n")


def lines(text: str) -> list[str]:
    """The lines of a text, which may end in CR LF; a newline at its end begins no further line, and
    an empty text has none.
    """
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def continued(text: str) -> str:
    """As `visible`, with each line but the first indented: none of them can be taken for a line of
    ours.
    """
    return visible(text).replace("\n", "\n    ")


def for_log(text: str) -> str:
    """The text as it is; in a job of GitHub Actions without commands to its runner."""
    return without_commands(text) if env.in_github_actions() else text


def without_commands(text: str) -> str:
    """The text with a backslash in what GitHub's runner would take for a command."""
    return re.sub(r"(?m)^(\s*)::", r"\1\\::", text).replace("##[", "##[\\")


def json_for_terminal(text: str) -> str:
    """JSON that means the same, with what is unsafe for a terminal, and in a job of GitHub Actions
    `##[`, written as escapes.

    No line of JSON begins with `::`: a string begins with a quote and holds no newline.
    """
    escaped = text if text.isascii() and "\x7f" not in text else _unsafe().sub(_json_escape, text)
    return escaped.replace("##[", "##\\u005b") if env.in_github_actions() else escaped


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


@functools.cache
def _unsafe() -> re.Pattern[str]:
    return re.compile(_UNSAFE)

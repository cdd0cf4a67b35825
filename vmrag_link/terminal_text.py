r"""Escape untrusted text for terminals and for the logs of CI jobs.

Unsafe for a terminal are the control characters C0 (except newline and tab), DEL and C1, the line
separators of Unicode, and halves of surrogate pairs, which UTF-8 cannot encode. Some characters are
invisible to a reviewer, but not to a program or a language model: controls of the text direction,
characters without width, fillers, tags and variation selectors. They are all shown in Python's
notation: `\x1b`, `\u202e`, `\U000e0041`.

Some hidden characters belong to a script, and stay in their places: a joiner between letters of a
script that joins, the parts of emoji, and a mark of direction next to text from right to left.

GitHub's runner takes a line of a job's output as a command if it begins, after blanks, with `::`,
or contains `##[`. A backslash makes it text, as in the runner's own markers (`##[\start-action`).
Readers of the log see the backslash, and the runner cannot overlook it like a character without
width.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from vmrag_link import env

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"

_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ufff9-\ufffb"
)
"""Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and the marks around
annotations.
"""

_LAYOUT = "\r\f"
"""Control characters in honest texts: ends of lines, and of the pages of a PDF."""

# Blocks of Unicode, which hold a few characters more than are meant.
_JOINING = (
    "\u0620-\u077f\u07c0-\u07ff\u0840-\u086f\u0870-\u08ff\ufb50-\ufdff\ufe70-\ufefc"  # Arabic, Syriac, N'Ko, Mandaic
    "\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17d3\u1820-\u18aa\u1900-\u1cff\ua800-\uabff"  # Indic and its kin
    "\U00011000-\U00011fff"
)
_MONGOLIAN = "\u1820-\u18aa"
_WITHOUT_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17b3\u17b6-\u17d3"  # Thai, Lao, Burmese, Khmer
_RIGHT_TO_LEFT = (
    "\u0590-\u060b\u060d-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
)
_EMOJI = "\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_TWO_LOOKS = (
    f"{_EMOJI}\u00a9\u00ae\u203c\u2049\u2122\u2139\u2300-\u23ff\u24c2\u25a0-\u25ff\u2934\u2935\u3030\u303d\u3297\u3299"
)
_FLAG = "".join(chr(0xE0000 + ord(letter)) for letter in "gb")
_LANDS = "|".join("".join(chr(0xE0000 + ord(letter)) for letter in land) for land in ("eng", "sct", "wls"))
_MARKS = "\u200e\u200f\u061c"
_NEAR = 20
"""Characters around a mark of direction in which there must be text from right to left."""

_STAYS = (
    f"(?<=[{_JOINING}])\u200c(?=[{_JOINING}])",
    f"(?<=[{_JOINING}])\u200d(?![\u200c\u200d])",
    f"(?<=[{_EMOJI}])\u200d(?=[{_EMOJI}])",
    f"(?<=[{_EMOJI}]\ufe0f)\u200d(?=[{_EMOJI}])",
    f"(?<=[{_TWO_LOOKS}])[\ufe0e\ufe0f]",
    "(?<=[#*0-9])\ufe0f(?=\u20e3)",
    f"(?<=\U0001f3f4){_FLAG}(?:{_LANDS})\U000e007f",
    f"(?<=[{_MONGOLIAN}])[\u180b-\u180f]",
    f"(?<=[{_WITHOUT_BLANKS}])\u200b(?=[{_WITHOUT_BLANKS}])",
)
"""Patterns of hidden characters that belong to the text. The flags are those of England, Scotland
and Wales.
"""


def escape_controls(text: str) -> str:
    """Escape all unsafe and hidden characters. Newlines and tabs stay."""
    return (
        text if _is_plain(text) else _escape_with(text, lambda character: character.encode("unicode_escape").decode())
    )


def count_hidden(text: str) -> int:
    """Return the number of characters that `escape_controls` escapes, except ends of lines and of
    pages.
    """
    if _is_plain(text):
        return 0
    count = 0

    def counted(character: str) -> str:
        nonlocal count
        count += character not in _LAYOUT
        return character

    _escape_with(text, counted)
    return count


def escape_line(text: str) -> str:
    """Escape all unsafe and hidden characters, and newlines.

    An untrusted name or title then cannot begin a line.
    """
    return escape_controls(text).replace("\n", "\\n")


def cut_text(text: str, max_characters: int) -> str:
    """Return a text of at most `max_characters`.

    Escape the text before, because hosts count escaped characters.
    """
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def split_lines(text: str) -> list[str]:
    """Split a text into lines, which can end in CR LF.

    A newline at the end begins no further line, and an empty text has no lines.
    """
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def mark_lines(text: str, mark: str) -> list[str]:
    """Return the escaped lines of a text, each behind `mark`.

    Use it for the text of a document among other lines, so that no line of it can imitate a
    heading.
    """
    return [f"{mark}{line}" if line else mark.rstrip() for line in split_lines(escape_controls(text))]


def indent_continuation(text: str) -> str:
    """Escape a text, and indent each line except the first.

    None of these lines then looks like a line of vmrag.
    """
    return escape_controls(text).replace("\n", "\n    ")


def escape_for_log(text: str) -> str:
    """Return the text; in a job of GitHub Actions without commands to its runner."""
    return escape_commands(text) if env.in_github_actions() else text


def escape_commands(text: str) -> str:
    """Put a backslash into each text that GitHub's runner would take as a command."""
    return re.sub(r"(?m)^([^\S\n]*)::", r"\1\\::", text).replace("##[", "##[\\")


def escape_json(text: str) -> str:
    """Escape JSON for a terminal, without a change of its meaning.

    In a job of GitHub Actions, `##[` is also escaped. No line of JSON begins with `::`, because a
    string begins with a quote and contains no newline.
    """
    escaped = text if text.isascii() and "\x7f" not in text else _escape_with(text, _json_escape)
    return escaped.replace("##[", "##\\u005b") if env.in_github_actions() else escaped


def _json_escape(character: str) -> str:
    import json  # not of every hook

    return json.dumps(character)[1:-1]


def _is_plain(text: str) -> bool:
    """Return whether a text needs no escapes, which is usual.

    Compiling the patterns takes longer than a hook has time, and so does a search in megabytes.
    """
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _escape_with(text: str, escape: Callable[[str], str]) -> str:
    def shown(run: re.Match[str]) -> str:
        parts, at = [], run.start()
        while at < run.end():
            stay = _count_staying(text, at)
            parts.append(text[at : at + stay] if stay else escape(text[at]))
            at += stay or 1
        return "".join(parts)

    return _unsafe_pattern().sub(shown, text)


def _count_staying(text: str, at: int) -> int:
    """Return how many characters from this one on belong to the text."""
    if text[at] in _MARKS:
        alone = text[at + 1 : at + 2] not in {*_MARKS}
        return int(alone and bool(_right_to_left().search(text, max(0, at - _NEAR), at + _NEAR)))
    match = _staying_pattern().match(text, at)
    return len(match[0]) if match else 0


@functools.cache
def _unsafe_pattern() -> re.Pattern[str]:
    return re.compile(f"[{_CONTROLS}{_HIDDEN}]+")


@functools.cache
def _staying_pattern() -> re.Pattern[str]:
    return re.compile("|".join(_STAYS))


@functools.cache
def _right_to_left() -> re.Pattern[str]:
    return re.compile(f"[{_RIGHT_TO_LEFT}]")

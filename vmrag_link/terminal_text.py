r"""What a stranger's text must not do to a terminal or to the log of a CI job, and how it is shown
instead.

Unsafe for a terminal are the control characters C0 (but newline and tab), DEL and C1, the line
separators of Unicode, and halves of surrogate pairs, which no UTF-8 stream takes. Whoever reviews a
text is deceived by what has no shape of its own, but is there for a program or a language model:
controls of text direction, characters without width, fillers, tags, variation selectors. Each is
shown as Python writes it: `\x1b`, `\u202e`, `\U000e0041`.

Some of these are part of how people write, and stay where they are: a joiner between letters of a
script that joins, what emoji are composed of, a mark of direction beside a text from right to left.

GitHub's runner takes a line of a job's output for a command if it begins, after blanks, with `::`,
or if it holds `##[` anywhere. A backslash makes it text, as the runner itself does with markers of
its own (`##[\start-action`): whoever reads the log sees it, and nothing that the runner might
overlook, as it overlooks characters without width when it compares.
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
"""What Unicode calls Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and marks around
annotations.
"""

_LAYOUT = "\r\f"
"""Controls that an honest text has: ends of lines, and of a PDF's pages."""

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
_FLAG = "".join(chr(0xE0000 + ord(each)) for each in "gb")
_LANDS = "|".join("".join(chr(0xE0000 + ord(each)) for each in land) for land in ("eng", "sct", "wls"))
_MARKS = "\u200e\u200f\u061c"
_NEAR = 20
"""Characters around a mark of direction in which there is a text from right to left."""

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
"""Where a hidden character is part of the writing. Flags are those of England, Scotland, Wales."""


def escape_controls(text: str) -> str:
    """The text with everything that is unsafe or hidden escaped; newlines and tabs stay."""
    return text if _is_plain(text) else _escaped(text, lambda each: each.encode("unicode_escape").decode())


def count_hidden(text: str) -> int:
    """How many characters `visible` escapes, but for ends of lines and of pages."""
    if _is_plain(text):
        return 0
    found = 0

    def counted(each: str) -> str:
        nonlocal found
        found += each not in _LAYOUT
        return each

    _escaped(text, counted)
    return found


def escape_line(text: str) -> str:
    """As `visible`, with newlines escaped, too: no stranger's name or title begins a line."""
    return escape_controls(text).replace("\n", "\\n")


def cut_text(text: str, most: int) -> str:
    """Return a text of at most `most` characters. Hosts count them after escaping: cut what is
    escaped already.
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def split_lines(text: str) -> list[str]:
    """The lines of a text, which may end in CR LF; a newline at its end begins no further line, and
    an empty text has none.
    """
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def mark_lines(text: str, mark: str) -> list[str]:
    """Return the lines of a text as `visible` shows them, each behind `mark`.

    Use it for the text of a document that is printed among other lines: none of its lines can
    imitate a heading.
    """
    return [f"{mark}{line}" if line else mark.rstrip() for line in split_lines(escape_controls(text))]


def indent_continuation(text: str) -> str:
    """As `visible`, with each line but the first indented: none of them can be taken for a line of
    ours.
    """
    return escape_controls(text).replace("\n", "\n    ")


def escape_for_log(text: str) -> str:
    """The text as it is; in a job of GitHub Actions without commands to its runner."""
    return escape_commands(text) if env.in_github_actions() else text


def escape_commands(text: str) -> str:
    """The text with a backslash in what GitHub's runner would take for a command."""
    return re.sub(r"(?m)^([^\S\n]*)::", r"\1\\::", text).replace("##[", "##[\\")


def escape_json(text: str) -> str:
    """JSON that means the same, with what is unsafe for a terminal, and in a job of GitHub Actions
    `##[`, written as escapes.

    No line of JSON begins with `::`: a string begins with a quote and holds no newline.
    """
    escaped = text if text.isascii() and "\x7f" not in text else _escaped(text, _json_escape)
    return escaped.replace("##[", "##\\u005b") if env.in_github_actions() else escaped


def _json_escape(character: str) -> str:
    import json  # not of every hook

    return json.dumps(character)[1:-1]


def _is_plain(text: str) -> bool:
    """Most texts: patterns take longer to compile than a hook has time, and to search megabytes."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    def shown(run: re.Match[str]) -> str:
        parts, at = [], run.start()
        while at < run.end():
            stay = _staying(text, at)
            parts.append(text[at : at + stay] if stay else escape(text[at]))
            at += stay or 1
        return "".join(parts)

    return _unsafe().sub(shown, text)


def _staying(text: str, at: int) -> int:
    """How many characters from this one on are part of the writing."""
    if text[at] in _MARKS:
        alone = text[at + 1 : at + 2] not in {*_MARKS}
        return int(alone and bool(_right_to_left().search(text, max(0, at - _NEAR), at + _NEAR)))
    found = _stays().match(text, at)
    return len(found[0]) if found else 0


@functools.cache
def _unsafe() -> re.Pattern[str]:
    return re.compile(f"[{_CONTROLS}{_HIDDEN}]+")


@functools.cache
def _stays() -> re.Pattern[str]:
    return re.compile("|".join(_STAYS))


@functools.cache
def _right_to_left() -> re.Pattern[str]:
    return re.compile(f"[{_RIGHT_TO_LEFT}]")

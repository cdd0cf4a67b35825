"""Markdown that shows strangers' text as text, within the limit of a job's summary.

GitHub takes 1 MiB of a step and drops all of it when there is more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vmrag_link import terminal_text
from vmrag_link.terminal_text import cut_text

MAX_BYTES = 1_000_000
"""Bytes."""

MIN_ROW_BYTES = 120
"""Bytes that a row keeps in any case; rows for which that is not there are only counted."""

MAX_CELL_CHARACTERS = 5_000
"""Characters of a cell, of which nobody reads more."""

LONGEST_CODE = 202
"""Characters. A comment has some seventy spans, and GitHub refuses one of more than 65,536."""

_URL = re.compile(r"https?://[A-Za-z0-9./:?=&%_~-]+")

_MARKUP = re.compile(
    r"""
    [<>&*`~|\\\[\]@$]                         # HTML, emphasis, code, cells, links, mentions, formulas
    | \#(?=[1-9]) | (?<=GH)-(?=\d)            # issues
    | (?<![^\W_])_ | _(?![^\W_])               # emphasis, but not within a name
    | :(?=[:/]) | (?<=:): | :(?=[\w+-]+:)      # addresses, commands to a runner, emoji
    | (?<=www)\.                               # an address
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BEGINNING = re.compile(r"\s|[-+=#]|\d+[.)]")
_NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def escape_markdown(value: object) -> str:
    """A text that Markdown, and the HTML in it, show as it is, within a line, and that reads well
    raw: what could be markup is a character reference, as a backslash is shown within HTML.

    A newline is a line break, also in a cell of a table.
    """
    lines = terminal_text.split_lines(terminal_text.escape_controls(str(value)))
    return "<br>".join(_MARKUP.sub(lambda found: _reference(found[0]), line) for line in lines)


def escape_paragraph(value: object) -> str:
    """As `text`, which begins no list there, nor code."""
    shown = escape_markdown(value)
    if found := _BEGINNING.match(shown):
        last = found.end() - 1
        return f"{shown[:last]}{_reference(shown[last])}{shown[last + 1 :]}"
    return shown


def _reference(character: str) -> str:
    return _NAMED.get(character, f"&#{ord(character)};")


def format_code(value: object) -> str:
    """A text as a code span, which reads as it is, raw or shown: in it nothing is markup, a link, a
    mention or an image. It is one line, blanks between words are one, and an `@` stands apart from
    the name behind it, because programs look for mentions in what is raw.

    The span has at most `LONGEST_CODE` characters of the text, and three times as many with what
    surrounds it.
    """
    shown = cut_text(terminal_text.escape_line(" ".join(str(value).split())), LONGEST_CODE)
    shown = re.sub(r"@(?=\w)", "@ ", shown)
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    apart = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{apart}{shown or ' '}{apart}{fence}"


def format_link(shown: str, url: str) -> str:
    """A link to a URL of our own making, or its text if it has a character that could end it."""
    return f"[{escape_markdown(shown)}]({url})" if _URL.fullmatch(url) else escape_markdown(url)


def format_command(line: str) -> str:
    """A paragraph with a command to copy, as text."""
    return f"<pre>{escape_markdown(line)}</pre>\n\n"


def cut_to_bytes(value: str, room: int) -> str:
    """About as much of a text, from its beginning, as makes `room` bytes of Markdown, and never
    more.
    """
    kept = value[: max(0, room)]
    while kept and (size := len(escape_markdown(kept).encode())) > room:
        kept = kept[: min(len(kept) - 1, len(kept) * room // size)]
    return kept


def format_facts(title: str, rows: Sequence[tuple[str, object]]) -> str:
    """A heading, and a table of what is what."""
    return format_table(title, ("", ""), rows)


def format_table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    limit: int = MAX_BYTES,
    level: int = 2,
    elsewhere: str = "are in the log",
) -> str:
    """A heading of a level and a table of at most `limit` bytes.

    Long cells are cut to what is a fair share, so that no row displaces another one. `elsewhere`:
    where the rows are for which there is no room.
    """
    begin = f"{'#' * level} {escape_markdown(title)}\n\n| {' | '.join(map(escape_markdown, heads))} |\n|{' --- |' * len(heads)}\n"
    room = limit - len(begin.encode()) - 200
    shown = [
        [cut_text(terminal_text.escape_controls(str(cell)[:MAX_CELL_CHARACTERS]), MAX_CELL_CHARACTERS) for cell in row]
        for row in rows[: max(0, room // MIN_ROW_BYTES)]
    ]
    share = compute_fair_share([len(_row(each).encode()) for each in shown], room)
    lines = [_fitting(each, share) for each in shown]
    rest = f"\n{len(rows) - len(shown)} more rows {escape_markdown(elsewhere)}.\n" if len(rows) > len(shown) else ""
    return f"{begin}{''.join(lines)}{rest}\n"


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(escape_markdown, cells))} |\n"


def compute_fair_share(sizes: Sequence[int], room: int) -> int:
    """The size at which to cut, so that all together fit: what short ones leave is the long
    ones'.
    """
    left, most = room, 0
    ordered = sorted(sizes)
    for number, size in enumerate(ordered):
        most = left // (len(ordered) - number)
        if size > most:
            return most
        left -= size
    return max(most, *ordered, MIN_ROW_BYTES) if ordered else MIN_ROW_BYTES


def _fitting(cells: Sequence[str], share: int) -> str:
    """The row; where it is too long, its longest cells are cut."""
    texts = list(cells)
    while len((row := _row(texts)).encode()) > share:
        longest = max(range(len(texts)), key=lambda number: len(texts[number]))
        kept = len(texts[longest]) * 3 // 4
        if kept < 2:  # noqa: PLR2004  nothing is left to cut
            return row if len(row.encode()) <= MIN_ROW_BYTES else _row(["…"] * len(texts))
        texts[longest] = cut_text(texts[longest], kept)
    return row

"""Markdown that shows untrusted text as text, within the limit of a job's summary.

GitHub accepts 1 MiB from a step, and drops all of it if there is more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vmrag_link import terminal_text
from vmrag_link.terminal_text import cut_text

MAX_BYTES = 1_000_000
"""Maximum size of a text."""

MIN_ROW_BYTES = 120
"""Bytes that each shown row has at least. Rows that do not fit are only counted."""

MAX_CELL_CHARACTERS = 5_000
"""Longer cells help no reader."""

MAX_CODE_CHARACTERS = 202
"""Characters. A comment has about seventy code spans, and GitHub refuses a comment of more than
65,536 characters.
"""

_REST_BYTES = 200
"""Space for the sentence about omitted rows."""

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
    """Escape a text, so that Markdown and HTML show it unchanged within a line.

    Possible markup becomes a character reference, because HTML shows a backslash. The text stays
    readable without rendering. A newline becomes a line break, also in the cell of a table.
    """
    lines = terminal_text.split_lines(terminal_text.escape_controls(str(value)))
    return "<br>".join(_MARKUP.sub(lambda match: _format_reference(match[0]), line) for line in lines)


def escape_paragraph(value: object) -> str:
    """Escape a text, so that it also begins no list and no code block."""
    text = escape_markdown(value)
    if match := _BEGINNING.match(text):
        last = match.end() - 1
        return f"{text[:last]}{_format_reference(text[last])}{text[last + 1 :]}"
    return text


def _format_reference(character: str) -> str:
    return _NAMED.get(character, f"&#{ord(character)};")


def format_code(value: object) -> str:
    """Format a text as a code span on one line, in which nothing is markup, a link, a mention or an
    image.

    Several blanks become one. An `@` gets a blank after it, because programs look for mentions in
    the raw text. The span has at most `MAX_CODE_CHARACTERS` of the text, and three times as many in
    total.
    """
    text = cut_text(terminal_text.escape_line(" ".join(str(value).split())), MAX_CODE_CHARACTERS)
    text = re.sub(r"@(?=\w)", "@ ", text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{blank}{text or ' '}{blank}{fence}"


def format_link(label: str, url: str) -> str:
    """Format a link to a URL that vmrag made, or its text if it has a character that could end the
    URL.
    """
    return f"[{escape_markdown(label)}]({url})" if _URL.fullmatch(url) else escape_markdown(url)


def format_command(line: str) -> str:
    """Format a command as a paragraph from which it can be copied."""
    return f"<pre>{escape_markdown(line)}</pre>\n\n"


def cut_to_bytes(value: str, room: int) -> str:
    """Return a beginning of a text that has at most `room` bytes as Markdown."""
    beginning = value[: max(0, room)]
    while beginning and (size := len(escape_markdown(beginning).encode())) > room:
        beginning = beginning[: min(len(beginning) - 1, len(beginning) * room // size)]
    return beginning


def format_facts(title: str, rows: Sequence[tuple[str, object]]) -> str:
    """Format a heading and a table of names and values."""
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
    """Format a heading and a table of at most `limit` bytes.

    Long cells are cut to a fair share, so that no row displaces another one. `elsewhere` tells
    where the omitted rows are.
    """
    head = f"{'#' * level} {escape_markdown(title)}\n\n| {' | '.join(map(escape_markdown, heads))} |\n|{' --- |' * len(heads)}\n"
    room = limit - len(head.encode()) - _REST_BYTES
    cut_rows = [
        [cut_text(terminal_text.escape_controls(str(cell)[:MAX_CELL_CHARACTERS]), MAX_CELL_CHARACTERS) for cell in row]
        for row in rows[: max(0, room // MIN_ROW_BYTES)]
    ]
    share = compute_fair_share([len(_format_row(cells).encode()) for cells in cut_rows], room)
    lines = [_fit_row(cells, share) for cells in cut_rows]
    rest = (
        f"\n{len(rows) - len(cut_rows)} more rows {escape_markdown(elsewhere)}.\n" if len(rows) > len(cut_rows) else ""
    )
    return f"{head}{''.join(lines)}{rest}\n"


def _format_row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(escape_markdown, cells))} |\n"


def compute_fair_share(sizes: Sequence[int], room: int) -> int:
    """Return the size to which items are cut, so that they fit together.

    Long items share the room that short ones leave.
    """
    free, share = room, 0
    ordered = sorted(sizes)
    for number, size in enumerate(ordered):
        share = free // (len(ordered) - number)
        if size > share:
            return share
        free -= size
    return max(share, *ordered, MIN_ROW_BYTES) if ordered else MIN_ROW_BYTES


def _fit_row(cells: Sequence[str], share: int) -> str:
    """Format a row. If it is too long, its longest cells are cut."""
    texts = list(cells)
    while len((row := _format_row(texts)).encode()) > share:
        longest = max(range(len(texts)), key=lambda number: len(texts[number]))
        length = len(texts[longest]) * 3 // 4
        if length < 2:  # noqa: PLR2004  nothing is left to cut
            return row if len(row.encode()) <= MIN_ROW_BYTES else _format_row(["…"] * len(texts))
        texts[longest] = cut_text(texts[longest], length)
    return row

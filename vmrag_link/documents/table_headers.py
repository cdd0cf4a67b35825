"""Find the header row of a table, for passages that contain only later rows."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.conversion.outlines import choose_outline, list_lines, resolve_outline
from vmrag_link.models import Document

_MAX_HEADER_CHARACTERS = 500
"""Maximum number of characters of a header row that is shown."""

_MAX_HTML_CHARACTERS = 4_000
"""Maximum number of characters of an HTML table that are read to find its header row."""

_MAX_HEADER_LINES = 20
"""Maximum number of lines of a header row."""

_CELL = re.compile(r"<th\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_DIRECTIVE = re.compile(r"[ \t]*\.\. (list|csv)-table::")


class _Table(NamedTuple):
    """The rows of a table below its header row."""

    first: int
    """The first line."""

    behind: int
    """The line after the last one."""

    header: str
    after: int = 0
    """The line from which further tables begin, if a line ends this one."""


class TableHeaders:
    """The tables of a text, read once for many offsets."""

    def __init__(self, text: str, outline: str = "markdown") -> None:
        outline = resolve_outline(text, outline)
        lines = list(list_lines(text, outline))
        starts = [line.start for line in lines] + [len(text)]
        rows = ["" if line.fenced or line.level else text[line.start : line.end].rstrip() for line in lines]
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._headers: list[str] = []
        for table in _find_tables(rows, _FINDERS.get(outline, ())):
            self._starts.append(starts[table.first])
            self._ends.append(starts[table.behind])
            self._headers.append(" ".join(table.header.split())[:_MAX_HEADER_CHARACTERS])

    def find_header(self, offset: int) -> str:
        """Return the header row of the table whose rows include this offset; empty if there is
        none.
        """
        number = bisect.bisect_right(self._starts, offset) - 1
        return self._headers[number] if number >= 0 and offset < self._ends[number] else ""


def read_table_headers(document: Document) -> TableHeaders:
    """Return the tables of a document."""
    return TableHeaders(document.content, choose_outline(document.doc_id))


TableFinder = Callable[[Sequence[str], int], "_Table | None"]
"""A function that returns the table that begins in a line, or None."""


def _find_tables(rows: Sequence[str], finders: Sequence[TableFinder]) -> Iterator[_Table]:
    number = 0
    while number < len(rows):
        table = next(filter(None, (find(rows, number) for find in finders)), None) if rows[number] else None
        if table and table.header and table.first < table.behind:
            yield table
        number = max(table.behind, table.after, number + 1) if table else number + 1


def _find_end(rows: Sequence[str], first: int, holds: Callable[[str], bool], end: int | None = None) -> int:
    """Return the first line from `first` on for which `holds` is False, or `end`."""
    last = len(rows) if end is None else min(end, len(rows))
    return next((number for number in range(first, last) if not holds(rows[number])), last)


def _skip_to(number: int) -> _Table:
    """Return an empty table, which makes `_find_tables` continue in this line."""
    return _Table(number, number, "")


def _consists_of(row: str, characters: str) -> bool:
    return not row.strip(characters)


def _find_piped(rows: Sequence[str], number: int) -> _Table | None:
    """Find a table of Markdown or Org: a row, a line of dashes, and rows."""
    below = rows[number + 1] if number + 1 < len(rows) else ""
    if "|" not in rows[number] or "|" not in below or "-" not in below or not _consists_of(below, "|-:+ \t"):
        return None
    if _consists_of(rows[number], "|-:+ \t"):
        return None
    return _Table(number + 2, _find_end(rows, number + 2, lambda row: "|" in row), rows[number])


def _find_grid(rows: Sequence[str], number: int) -> _Table | None:
    """Find a grid of reStructuredText, whose header ends with a line of `=`."""
    border = rows[number].strip()
    if not border.startswith("+-") or not _consists_of(border, "+-"):
        return None
    behind = _find_end(rows, number, lambda row: row.lstrip()[:1] in ("+", "|") and bool(row))
    for place in range(number + 1, min(behind, number + _MAX_HEADER_LINES)):
        if rows[place].strip().startswith("+="):
            return _Table(place + 1, behind, " ".join(rows[number + 1 : place]))
    return _skip_to(behind)


def _find_tabbed(rows: Sequence[str], number: int) -> _Table | None:
    """Find rows of cells with tabs between them, which the text of HTML has. The first row is the
    header.
    """
    if "\t" not in rows[number].strip():
        return None
    behind = _find_end(rows, number, lambda row: "\t" in row.strip())
    if behind <= number + 2:  # one row below the first one is not enough to know that the first is a header
        return _skip_to(behind)
    return _Table(number + 1, behind, " | ".join(rows[number].split("\t")))


def _is_border(row: str) -> bool:
    return "= " in row and _consists_of(row, "= ")


def _find_simple(rows: Sequence[str], number: int) -> _Table | None:
    """Find a table of reStructuredText between lines of `=== ===`."""
    if not _is_border(rows[number]):
        return None
    end = _find_end(rows, number + 1, lambda row: not _is_border(row))
    if end - number > _MAX_HEADER_LINES or not any(rows[end + 1 : end + 2]):
        return _skip_to(end + 1)  # a table without a header row has only two borders
    behind = _find_end(rows, end + 1, lambda row: not _is_border(row))
    if behind == len(rows):
        return _skip_to(end + 1)
    return _Table(end + 1, behind, " ".join(rows[number + 1 : end]), after=behind + 1)


def _find_directive(rows: Sequence[str], number: int) -> _Table | None:
    """Find a `list-table` or `csv-table` of reStructuredText."""
    kind = _DIRECTIVE.match(rows[number])
    if not kind:
        return None
    indent = len(rows[number]) - len(rows[number].lstrip())
    behind = _find_end(rows, number + 1, lambda row: not row or len(row) - len(row.lstrip()) > indent)
    options = _find_end(rows, number + 1, lambda row: row.lstrip().startswith(":"))
    given = {
        name: value
        for _, name, value in (row.split(":", 2) for row in rows[number + 1 : options] if row.count(":") > 1)
    }
    if kind[1] == "csv":
        return _Table(options, behind, given.get("header", ""))
    first = _find_end(rows, options, lambda row: not row.lstrip().startswith("* -"), behind)
    second = _find_end(rows, first + 1, lambda row: not row.lstrip().startswith("* -"), behind)
    if given.get("header-rows", "").strip() in ("", "0") or second >= behind:
        return _skip_to(behind)
    cells = (row.strip().removeprefix("*").strip().removeprefix("-").strip() for row in rows[first:second] if row)
    return _Table(second, behind, " | ".join(cells))


def _find_asciidoc(rows: Sequence[str], number: int) -> _Table | None:
    """Find a table of AsciiDoc between lines of `|===`. Its header row has an attribute, or a blank
    line below.
    """
    fence = rows[number]
    if not fence.startswith("|==") or not _consists_of(fence[1:], "="):
        return None
    behind = _find_end(rows, number + 1, lambda row: row != fence)
    stated = number > 0 and rows[number - 1].startswith("[") and "header" in rows[number - 1]
    stop = min(behind, number + _MAX_HEADER_LINES)
    end = _find_end(rows, number + 1, bool, stop)
    if end == number + 1 and not stated:
        return _Table(behind + 1, behind + 1, "")
    if end == stop:
        end = number + 2 if stated else behind
    return _Table(min(end, behind), behind, " ".join(rows[number + 1 : end]), after=behind + 1)


def _find_wiki(rows: Sequence[str], number: int) -> _Table | None:
    """Find a table of MediaWiki between `{|` and `|}`, whose header cells start with `!`."""
    if not rows[number].lstrip().startswith("{|"):
        return None
    behind = _find_end(rows, number + 1, lambda row: not row.lstrip().startswith("|}"))
    stop = min(behind, number + _MAX_HEADER_LINES)
    first = _find_end(rows, number + 1, lambda row: not row.startswith("!"), stop)
    end = _find_end(rows, first, lambda row: row.startswith("!"), stop)
    cells = (cell.rpartition("|")[2].strip() for row in rows[first:end] for cell in row[1:].split("!!"))
    return _Table(min(end, behind), behind, " | ".join(cells))


def _find_html(rows: Sequence[str], number: int) -> _Table | None:
    """Find a table of HTML whose first row has header cells."""
    begin = rows[number].lower().find("<table")
    if begin < 0:
        return None
    behind = _find_end(rows, number, lambda row: "</table" not in row.lower())
    end = _find_end(rows, number, lambda row: "</tr" not in row.lower(), min(behind, number + _MAX_HEADER_LINES))
    if end == min(behind, number + _MAX_HEADER_LINES):
        return _skip_to(behind)
    head = "\n".join(rows[number : end + 1])[:_MAX_HTML_CHARACTERS]
    cells = _CELL.split(head[: head.lower().find("</tr")])[1:]
    return _Table(min(end + 1, behind), behind, " | ".join(" ".join(_TAG.sub("", cell).split()) for cell in cells))


_FINDERS: Mapping[str, Sequence[TableFinder]] = {
    "markdown": (_find_piped, _find_html),
    "mdx": (_find_piped, _find_html),
    "html": (_find_tabbed,),
    "org": (_find_piped,),
    "textile": (_find_html,),
    "rst": (_find_grid, _find_simple, _find_directive),
    "asciidoc": (_find_asciidoc,),
    "mediawiki": (_find_wiki, _find_html),
}

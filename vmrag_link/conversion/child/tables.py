"""Tables as text: of files with values that commas, semicolons, tabs or bars separate, and of
spreadsheets.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence

from vmrag_link.conversion.child.outline import Outline
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText
from vmrag_link.conversion.text_bytes import decode

_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 50
_SAMPLE = 1 << 16
"""Characters."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Spreadsheets write their texts so."""

_MOST_ROWS = 1 << 20
"""Of a sheet, as spreadsheets have it."""


def csv_text(data: bytes, charset: str, limit: int) -> FileText:
    """As `_add_table`; of several possible separators the one that makes the first rows alike.

    Raises `ContentUnreadable`.
    """
    text = decode(data, charset or ("utf-16" if data.startswith(_UTF_16) else ""))
    csv.field_size_limit(limit)
    outline = Outline(limit)
    _add_table(outline, _rows(text, _delimiter(text)))
    return FileText("", outline.text(), {})


def spreadsheet_text(data: bytes, limit: int) -> FileText:
    """Each sheet is a heading and its table; formulas are the values that were stored with them.

    Raises `ContentUnreadable`, and whatever the library raises.
    """
    from openpyxl.reader.excel import load_workbook

    workbook = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    outline = Outline(limit)
    for sheet in workbook.worksheets:
        outline.paragraph()
        outline.line(f"## {' '.join(sheet.title.split())}")
        outline.paragraph()
        sheet.reset_dimensions()  # what the file says of them may be wrong
        values = sheet.iter_rows(max_row=_MOST_ROWS, values_only=True)
        _add_table(outline, filter(any, (list(map(_cell, row)) for row in values)))
    return FileText("", outline.text(), {})


def _add_table(outline: Outline, rows: Iterator[list[str]]) -> None:
    """The first row names the columns; each other one is a paragraph of lines `name: value`.

    Rows of one value above a wider table are its caption. Empty values are left out. A value
    without a name gets the number of its column; a table of one row is that row.
    """
    first = list(itertools.islice(rows, _SAMPLE_ROWS))
    width = max((_filled(row) for row in first), default=0)
    caption = list(itertools.takewhile(lambda row: width > 1 and _filled(row) == 1, first))
    for row in caption:
        outline.line("".join(row).strip())
    header, *others = first[len(caption) :] or [[]]
    if others:
        _add_records(outline, header, itertools.chain(others, rows))
    elif header:
        outline.line(", ".join(header))


def _filled(row: Sequence[str]) -> int:
    return sum(bool(value.strip()) for value in row)


def _add_records(outline: Outline, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    names = [" ".join(each.split()) for each in header]
    for row in rows:
        outline.paragraph()
        for number, value in enumerate(row):
            if value.strip():
                name = names[number] if number < len(names) else ""
                outline.value(name or f"column {number + 1}", value)


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """The rows that are not empty."""
    try:
        yield from filter(any, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise ContentUnreadable(f"is no table that can be read ({error})") from None


def _delimiter(text: str) -> str:
    sample = text[:_SAMPLE]

    def agreement(delimiter: str) -> tuple[int, int]:
        widths = [len(row) for row in itertools.islice(_rows(sample, delimiter), _SAMPLE_ROWS)]
        if not widths or widths[-1] == 1:
            return (0, 0)
        return (widths.count(widths[-1]), widths[-1])

    return max(_DELIMITERS, key=agreement)


def _cell(value: object) -> str:
    """Numbers with the 15 digits that spreadsheets show; midnight is a date without a time."""
    match value:
        case None:
            return ""
        case bool():
            return "TRUE" if value else "FALSE"
        case float():
            return f"{value:.15g}"
        case dt.datetime():
            return str(value.date()) if value.time() == dt.time() else value.isoformat(" ")
        case _:
            return str(value)

"""Tables in text: values that commas, semicolons, tabs or bars separate."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from collections.abc import Iterator

from vmrag_link.conversion.outline import Outline, add_records
from vmrag_link.conversion.reading import FileText
from vmrag_link.conversion.text_bytes import decode
from vmrag_link.conversion.unreadable import ContentUnreadable

_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 50
_SAMPLE = 1 << 16
"""Characters."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Spreadsheets write their texts so."""


def csv_text(data: bytes, charset: str, limit: int) -> FileText:
    """The first row names the columns; each other one is a paragraph of `name: value` lines.

    A table of one row is that row. Raises `ContentUnreadable`.
    """
    text = decode(data, charset or ("utf-16" if data.startswith(_UTF_16) else ""))
    csv.field_size_limit(max(limit, 1))
    rows = _rows(text, _delimiter(text))
    outline = Outline(limit)
    header = next(rows, [])
    first = next(rows, None)
    if first is None:
        outline.line(", ".join(header))
    else:
        add_records(outline, header, itertools.chain([first], rows))
    return FileText("", outline.text(), {})


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """The rows that are not empty."""
    try:
        yield from filter(any, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise ContentUnreadable(f"is no table that can be read ({error})") from None


def _delimiter(text: str) -> str:
    """The one by which most of the first rows have as many values as the first of them."""
    sample = text[:_SAMPLE]

    def agreement(delimiter: str) -> tuple[int, int]:
        widths = [len(row) for row in itertools.islice(_rows(sample, delimiter), _SAMPLE_ROWS)]
        if not widths or widths[0] == 1:
            return (0, 0)
        return (widths.count(widths[0]), widths[0])

    return max(_DELIMITERS, key=agreement)

"""Convert office files to text: tables of separated values and spreadsheets; Word, PowerPoint and
EPUB as Markdown; and PDF.

The converters of markitdown are called directly. Its class `MarkItDown` would guess types with a
model, load plugins and open URLs.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from vmrag_link.conversion.child.text_builder import TextBuilder
from vmrag_link.conversion.formats import decode_text
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText, find_markdown_title
from vmrag_link.models import PAGE_BREAK

if TYPE_CHECKING:
    import pypdfium2
    from markitdown import DocumentConverter


_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 50
_SAMPLE = 1 << 16
"""Number of characters."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Spreadsheets write their texts in this encoding."""

_MOST_ROWS = 1 << 20
"""Maximum number of rows of a sheet, like in spreadsheet programs."""


def convert_csv(data: bytes, charset: str, limit: int) -> FileText:
    """Return a table of separated values (see `_add_table`).

    Of several possible separators, the one with the most equal widths of rows is used. Raises
    `ContentUnreadable`.
    """
    text = decode_text(data, charset or ("utf-16" if data.startswith(_UTF_16) else ""))
    csv.field_size_limit(limit)
    builder = TextBuilder(limit)
    _add_table(builder, _read_rows(text, _find_delimiter(text)))
    return FileText("", builder.text(), {})


def convert_spreadsheet(data: bytes, limit: int) -> FileText:
    """Return each sheet as a heading and its table. Formulas are replaced by their stored values.

    Raises `ContentUnreadable`, and any error of the library.
    """
    from openpyxl.reader.excel import load_workbook

    workbook = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    builder = TextBuilder(limit)
    for sheet in workbook.worksheets:
        builder.begin_paragraph()
        builder.add_line(f"## {' '.join(sheet.title.split())}")
        builder.begin_paragraph()
        sheet.reset_dimensions()  # the dimensions in the file may be wrong
        values = sheet.iter_rows(max_row=_MOST_ROWS, values_only=True)
        _add_table(builder, filter(any, (list(map(_format_cell, row)) for row in values)))
    return FileText("", builder.text(), {})


def _add_table(builder: TextBuilder, rows: Iterator[list[str]]) -> None:
    """Add a table. The first row has the names of columns. Each further row is a paragraph of lines
    `name: value`.

    Rows of one value above a wider table are its caption. Empty values are left out. A value
    without a name gets the number of its column. A table of one row is that row.
    """
    first = list(itertools.islice(rows, _SAMPLE_ROWS))
    width = max((_count_values(row) for row in first), default=0)
    caption = list(itertools.takewhile(lambda row: width > 1 and _count_values(row) == 1, first))
    for row in caption:
        builder.add_line("".join(row).strip())
    header, *others = first[len(caption) :] or [[]]
    if others:
        _add_records(builder, header, itertools.chain(others, rows))
    elif header:
        builder.add_line(", ".join(header))


def _count_values(row: Sequence[str]) -> int:
    return sum(bool(value.strip()) for value in row)


def _add_records(builder: TextBuilder, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    names = [" ".join(title.split()) for title in header]
    for row in rows:
        builder.begin_paragraph()
        for number, value in enumerate(row):
            if value.strip():
                name = names[number] if number < len(names) else ""
                builder.add_value(name or f"column {number + 1}", value)


def _read_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the rows that are not empty."""
    try:
        yield from filter(any, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise ContentUnreadable(f"is not a readable table ({error})") from None


def _find_delimiter(text: str) -> str:
    sample = text[:_SAMPLE]

    def count_equal_rows(delimiter: str) -> tuple[int, int]:
        widths = [len(row) for row in itertools.islice(_read_rows(sample, delimiter), _SAMPLE_ROWS)]
        if not widths or widths[-1] == 1:
            return (0, 0)
        return (widths.count(widths[-1]), widths[-1])

    return max(_DELIMITERS, key=count_equal_rows)


def _format_cell(value: object) -> str:
    """Return the text of a cell. Numbers have the 15 digits that spreadsheets show. Midnight is a
    date without a time.
    """
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


_EMPTY_LINES = re.compile(r"\n{3,}")
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
_UNESCAPED = {"escape_underscores": False, "escape_asterisks": False}
r"""Options of markdownify. A search for `max_wait` would not find `max\_wait`."""

_PICTURE_INSIDE = re.compile(r"!\[([^\]\n]*)\]\(data:[^)\s]*\)")
_NAMELESS_TABLE = re.compile(r"^\|(?:  \|)+\n(\|(?: --- \|)+)\n(\|.*)", re.MULTILINE)
"""A table of Word. mammoth does not recognize header rows, so the first row is below an empty one.
"""


def convert_office(data: bytes, file_type: str) -> FileText:
    """Return the text of an office file. The title is that of a book, or else the first heading.

    Raises any error of the libraries.
    """
    from markitdown import StreamInfo

    about = StreamInfo(extension=f".{file_type}")
    converted = _make_converter(file_type).convert(io.BytesIO(data), about, **_UNESCAPED)
    markdown = _NAMELESS_TABLE.sub(r"\2\n\1", _PICTURE_INSIDE.sub(r"\1", converted.markdown))
    text = _EMPTY_LINES.sub("\n\n", _TRAILING.sub("", markdown)).strip()
    return FileText(" ".join((converted.title or find_markdown_title(text)).split()), text, {})


def _make_converter(file_type: str) -> DocumentConverter:
    from markitdown import converters

    match file_type:
        case "docx":
            return converters.DocxConverter()
        case "pptx":
            return converters.PptxConverter()
        case "epub":
            return converters.EpubConverter()
        case _:
            raise ValueError(file_type)


_HYPHEN = "\ufffe"
"""The character that PDFium inserts where a word was hyphenated. It has already joined both parts.
"""


def convert_pdf(data: bytes, limit: int) -> FileText:
    """Return the lines of each page. A form feed precedes each page except the first.

    So the page of every passage can be counted, even if pages have no text. The title is the file's
    title if the first page shows it, because many titles are "Microsoft Word - x". Raises
    `ContentUnreadable`.
    """
    import pypdfium2 as pdfium  # it belongs to an extra, like the libraries of the other formats

    builder = TextBuilder(limit)
    first_text = title = page_breaks = ""
    try:
        with closing(pdfium.PdfDocument(data)) as document:
            title = _join_words(document.get_metadata_dict().get("Title", ""))
            for number in range(len(document)):
                text = _read_page(document, number)
                first_text = first_text or text
                page_breaks += PAGE_BREAK if number else ""
                if text:
                    builder.begin_paragraph()
                    builder.add_line(page_breaks + text)
                    page_breaks = ""
    except pdfium.PdfiumError as error:
        raise ContentUnreadable(f"is not a readable PDF ({error})") from None
    is_shown = title and title.casefold() in _join_words(first_text).casefold()
    return FileText(title if is_shown else "", builder.text(), {})


def _read_page(document: pypdfium2.PdfDocument, number: int) -> str:
    with closing(document[number]) as page, closing(page.get_textpage()) as text_page:
        text = text_page.get_text_bounded().replace("\r\n", "\n").replace(_HYPHEN, "")
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def _join_words(text: str) -> str:
    return " ".join(text.split())

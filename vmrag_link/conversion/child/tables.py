"""Files of programs for offices as text: tables, of files with values that commas, semicolons, tabs
or bars separate, and of spreadsheets; Word, PowerPoint and EPUB as Markdown; PDF.

The converters of markitdown are called one by one. The class `MarkItDown` in front of them would
guess types by a model, load plugins and take URLs.
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

from vmrag_link.conversion.formats import decode_text
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText, Outline, find_markdown_title
from vmrag_link.models import PAGE_BREAK

if TYPE_CHECKING:
    import pypdfium2
    from markitdown import DocumentConverter


_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 50
_SAMPLE = 1 << 16
"""Characters."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Spreadsheets write their texts so."""

_MOST_ROWS = 1 << 20
"""Of a sheet, as spreadsheets have it."""


def convert_csv(data: bytes, charset: str, limit: int) -> FileText:
    """As `_add_table`; of several possible separators the one that makes the first rows alike.

    Raises `ContentUnreadable`.
    """
    text = decode_text(data, charset or ("utf-16" if data.startswith(_UTF_16) else ""))
    csv.field_size_limit(limit)
    outline = Outline(limit)
    _add_table(outline, _rows(text, _delimiter(text)))
    return FileText("", outline.text(), {})


def convert_spreadsheet(data: bytes, limit: int) -> FileText:
    """Each sheet is a heading and its table; formulas are the values that were stored with them.

    Raises `ContentUnreadable`, and whatever the library raises.
    """
    from openpyxl.reader.excel import load_workbook

    workbook = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    outline = Outline(limit)
    for sheet in workbook.worksheets:
        outline.begin_paragraph()
        outline.add_line(f"## {' '.join(sheet.title.split())}")
        outline.begin_paragraph()
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
        outline.add_line("".join(row).strip())
    header, *others = first[len(caption) :] or [[]]
    if others:
        _add_records(outline, header, itertools.chain(others, rows))
    elif header:
        outline.add_line(", ".join(header))


def _filled(row: Sequence[str]) -> int:
    return sum(bool(value.strip()) for value in row)


def _add_records(outline: Outline, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    names = [" ".join(each.split()) for each in header]
    for row in rows:
        outline.begin_paragraph()
        for number, value in enumerate(row):
            if value.strip():
                name = names[number] if number < len(names) else ""
                outline.add_value(name or f"column {number + 1}", value)


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


_EMPTY_LINES = re.compile(r"\n{3,}")
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
_UNESCAPED = {"escape_underscores": False, "escape_asterisks": False}
"""For markdownify. Nobody finds `max_wait` in a text that says `max\\_wait`."""

_PICTURE_INSIDE = re.compile(r"!\[([^\]\n]*)\]\(data:[^)\s]*\)")
_NAMELESS_TABLE = re.compile(r"^\|(?:  \|)+\n(\|(?: --- \|)+)\n(\|.*)", re.MULTILINE)
"""Word has no header rows that mammoth would see, so the first row is below an empty one."""


def convert_office(data: bytes, file_type: str) -> FileText:
    """The title is a book's own, else the first heading. Raises whatever the libraries raise."""
    from markitdown import StreamInfo

    about = StreamInfo(extension=f".{file_type}")
    found = _converter(file_type).convert(io.BytesIO(data), about, **_UNESCAPED)
    markdown = _NAMELESS_TABLE.sub(r"\2\n\1", _PICTURE_INSIDE.sub(r"\1", found.markdown))
    text = _EMPTY_LINES.sub("\n\n", _TRAILING.sub("", markdown)).strip()
    return FileText(" ".join((found.title or find_markdown_title(text)).split()), text, {})


def _converter(file_type: str) -> DocumentConverter:
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
"""What PDFium puts where a word was divided at the end of a line; it has joined the two already."""


def convert_pdf(data: bytes, limit: int) -> FileText:
    """The lines of each page; a form feed stands before each page but the first.

    So the page of every passage can be counted, also where pages hold no text. The title is what
    the file calls so, if its first page shows it: many say "Microsoft Word - x".
    Raises `ContentUnreadable`.
    """
    import pypdfium2 as pdfium  # of an extra, as what the other formats need

    outline = Outline(limit)
    first = title = turned = ""
    try:
        with closing(pdfium.PdfDocument(data)) as document:
            title = _one_line(document.get_metadata_dict().get("Title", ""))
            for number in range(len(document)):
                text = _page(document, number)
                first = first or text
                turned += PAGE_BREAK if number else ""
                if text:
                    outline.begin_paragraph()
                    outline.add_line(turned + text)
                    turned = ""
    except pdfium.PdfiumError as error:
        raise ContentUnreadable(f"is no PDF that can be read ({error})") from None
    shown = title and title.casefold() in _one_line(first).casefold()
    return FileText(title if shown else "", outline.text(), {})


def _page(document: pypdfium2.PdfDocument, number: int) -> str:
    with closing(document[number]) as page, closing(page.get_textpage()) as found:
        text = found.get_text_bounded().replace("\r\n", "\n").replace(_HYPHEN, "")
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())

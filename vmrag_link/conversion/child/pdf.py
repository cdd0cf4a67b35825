"""The text of PDF."""

from __future__ import annotations

from contextlib import closing

import pypdfium2 as pdfium

from vmrag_link.conversion.child.outline import Outline
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText
from vmrag_link.models import PAGE_BREAK

_HYPHEN = "\ufffe"
"""What PDFium puts where a word was divided at the end of a line; it has joined the two already."""


def pdf_text(data: bytes, limit: int) -> FileText:
    """The lines of each page; a form feed stands before each page but the first.

    So the page of every passage can be counted, also where pages hold no text. The title is what
    the file calls so, if its first page shows it: many say "Microsoft Word - x".
    Raises `ContentUnreadable`.
    """
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
                    outline.paragraph()
                    outline.line(turned + text)
                    turned = ""
    except pdfium.PdfiumError as error:
        raise ContentUnreadable(f"is no PDF that can be read ({error})") from None
    shown = title and title.casefold() in _one_line(first).casefold()
    return FileText(title if shown else "", outline.text(), {})


def _page(document: pdfium.PdfDocument, number: int) -> str:
    with closing(document[number]) as page, closing(page.get_textpage()) as found:
        text = found.get_text_bounded().replace("\r\n", "\n").replace(_HYPHEN, "")
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())

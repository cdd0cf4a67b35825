"""Word, PowerPoint and EPUB as Markdown, by the converters of markitdown.

They are called one by one. The class `MarkItDown` in front of them would guess types by a model,
load plugins and take URLs.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from vmrag_link.conversion.reading import FileText, markdown_title

if TYPE_CHECKING:
    from markitdown import DocumentConverter

_EMPTY_LINES = re.compile(r"\n{3,}")
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
_UNESCAPED = {"escape_underscores": False, "escape_asterisks": False}
"""For markdownify. Nobody finds `max_wait` in a text that says `max\\_wait`."""

_PICTURE_INSIDE = re.compile(r"!\[([^\]\n]*)\]\(data:[^)\s]*\)")
_NAMELESS_TABLE = re.compile(r"^\|(?:  \|)+\n(\|(?: --- \|)+)\n(\|.*)", re.MULTILINE)
"""Word has no header rows that mammoth would see, so the first row is below an empty one."""


def office_text(data: bytes, file_type: str) -> FileText:
    """The title is a book's own, else the first heading. Raises whatever the libraries raise."""
    from markitdown import StreamInfo

    about = StreamInfo(extension=f".{file_type}")
    found = _converter(file_type).convert(io.BytesIO(data), about, **_UNESCAPED)
    markdown = _NAMELESS_TABLE.sub(r"\2\n\1", _PICTURE_INSIDE.sub(r"\1", found.markdown))
    text = _EMPTY_LINES.sub("\n\n", _TRAILING.sub("", markdown)).strip()
    return FileText(" ".join((found.title or markdown_title(text)).split()), text, {})


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

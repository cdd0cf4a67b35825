"""The bytes of a source as a document's text, title and type."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from vmrag_link.documents import reading
from vmrag_link.documents.front_matter import FrontMatterRefused
from vmrag_link.documents.importing import FILE_TYPES
from vmrag_link.documents.nesting import MAX_DEPTH, NestedTooDeeply
from vmrag_link.errors import ConversionFailed, FormatUnsupported
from vmrag_link.models import Record
from vmrag_link.ops.libraries.source import Source


class Converted(Record, frozen=True):
    """`title` is empty where the text names none; `metadata` is ready for JSON."""

    text: str
    title: str
    file_type: str
    metadata: dict[str, Any]


def convert(source: Source) -> Converted:
    """Raises `FormatUnsupported`, `ConversionFailed`."""
    file_type = FILE_TYPES.get(PurePosixPath(source.name).suffix.lower())
    if file_type is None:
        raise FormatUnsupported(
            f"{source.name} cannot be converted to text: there is no converter for its type.",
            hint="Convert it to Markdown, and take that.",
            name=source.name,
        )
    try:
        page = reading.page(source.data.decode("utf-8-sig"), file_type)
    except UnicodeDecodeError as error:
        raise _failed(source, f"it is not UTF-8 (byte {error.start})") from None
    except FrontMatterRefused as refused:
        raise _failed(source, f"line {refused.line} of its front matter {refused.reason}") from None
    except NestedTooDeeply:
        raise _failed(source, f"it nests its elements deeper than {MAX_DEPTH} levels") from None
    if not page.content.strip():
        raise _failed(source, "there is no text in it")
    return Converted(page.content, page.title, file_type, page.metadata)


def _failed(source: Source, why: str) -> ConversionFailed:
    return ConversionFailed(
        f"{source.name} could not be converted to text: {why}.",
        hint="Open it, and see what is in it.",
        name=source.name,
    )

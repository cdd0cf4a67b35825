"""Sources to Markdown, within what the settings allow a conversion to cost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from vmrag_link.conversion.converter import Converted, Converter
from vmrag_link.conversion.limits import limits_of
from vmrag_link.errors import ConversionFailed
from vmrag_link.ops.documents.named_files import Source
from vmrag_link.workspace import Workspace

Convert = Callable[[Source], Converted]
"""Raises `FormatUnsupported`, and `ConversionFailed` also where there is no text."""


@contextlib.contextmanager
def converting(ws: Workspace) -> Iterator[Convert]:
    """Converts any number of sources until the block ends."""
    with Converter(limits_of(ws.config.ingest)) as converter:

        def convert(source: Source) -> Converted:
            found = converter.convert(
                source.data, name=source.name, media_type=source.media_type, charset=source.charset
            )
            if not found.text.strip():
                raise ConversionFailed(
                    f"{source.name} holds no text.",
                    hint="What it shows may be a picture of a text: convert it by other means, and take that.",
                    reason="holds no text",
                )
            return found

        yield convert

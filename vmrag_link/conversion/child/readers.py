"""Which reader converts what; each is imported when it is needed."""

from __future__ import annotations

from vmrag_link.conversion.frames import ConversionTask
from vmrag_link.conversion.limits import ConversionLimits
from vmrag_link.conversion.outline import too_much_text
from vmrag_link.conversion.reading import FileText


def read(task: ConversionTask, data: bytes, limits: ConversionLimits) -> FileText:
    """Raises `ContentUnreadable`, and whatever a library raises."""
    found = _read(task, data, limits)
    content = _storable(found.content)
    if len(content.encode()) > limits.max_text:
        raise too_much_text(limits.max_text)
    return FileText(_storable(found.title), content, found.metadata)


def _read(task: ConversionTask, data: bytes, limits: ConversionLimits) -> FileText:
    match task.file_type:
        case "csv":
            from vmrag_link.conversion.csv_text import csv_text

            return csv_text(data, task.charset, limits.max_text)
        case "json":
            from vmrag_link.conversion.json_text import json_text

            return json_text(data, task.charset, limits.max_text)
        case "xml":
            from vmrag_link.conversion.xml_text import xml_text

            return xml_text(data, task.charset, limits.max_text)
        case "notebook":
            from vmrag_link.conversion.notebook import notebook_text

            return notebook_text(data, task.charset, limits.max_text)
        case _:
            raise ValueError(task.file_type)


def _storable(text: str) -> str:
    """Without what no engine stores: NUL, and halves of surrogate pairs."""
    text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

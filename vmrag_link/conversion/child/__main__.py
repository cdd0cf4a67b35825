"""`python -m vmrag_link.conversion.child`: convert files (see `serving`).

Each converter is imported when it is needed, because some take a second. The size of an archive is
checked before a library opens it.
"""

from __future__ import annotations

import importlib
import io
import mimetypes
import sys
import zipfile
from typing import IO

import msgspec

from vmrag_link.conversion import reading
from vmrag_link.conversion.child.serving import LONGEST_TASK, is_memory_exhausted, serve_tasks
from vmrag_link.conversion.child.text_builder import too_much_text
from vmrag_link.conversion.limits import (
    ContentUnreadable,
    ConversionLimits,
    Disconnected,
    receive_frame,
)
from vmrag_link.conversion.messages import ConversionAnswer, ConversionTask, encode
from vmrag_link.conversion.reading import FileText

_ARCHIVES = {
    "docx": ("[Content_Types].xml", "Word document"),
    "pptx": ("[Content_Types].xml", "PowerPoint presentation"),
    "xlsx": ("[Content_Types].xml", "Excel workbook"),
    "epub": ("META-INF/container.xml", "EPUB book"),
}
"""A member of each archive of the kind, and the name of the kind."""

_LONGEST_TITLE = 1000
"""Maximum number of characters of a title. A notebook may have one of megabytes."""

_MAY_BE_PICTURES = frozenset(("pdf", *_ARCHIVES))


def read_task(task: ConversionTask, data: bytes, limits: ConversionLimits) -> FileText:
    """Return the text of a file. Raises `ContentUnreadable`, and any error of a library."""
    if task.file_type in _ARCHIVES:
        _check_archive(data, *_ARCHIVES[task.file_type], limits)
    text = _convert_by_format(task, data, limits)
    content = _replace_unstorable(text.content)
    if len(content.encode()) > limits.max_text:
        raise too_much_text(limits.max_text)
    if task.file_type in _MAY_BE_PICTURES and not content.strip():
        raise ContentUnreadable("has no text (perhaps pictures of text)")
    return FileText(_replace_unstorable(text.title)[:_LONGEST_TITLE], content, text.metadata)


def _convert_by_format(task: ConversionTask, data: bytes, limits: ConversionLimits) -> FileText:
    if task.reader:
        module, _, name = task.reader.partition(":")
        return reading.convert_text(getattr(importlib.import_module(module), name)(data), "markdown")
    match task.file_type:
        case "html":
            from vmrag_link.conversion.child.markup_text import convert_html as native
        case "csv":
            from vmrag_link.conversion.child.tables import convert_csv as native
        case "json":
            from vmrag_link.conversion.child.json_text import convert_json as native
        case "xml":
            from vmrag_link.conversion.child.markup_text import convert_xml as native
        case "notebook":
            from vmrag_link.conversion.child.json_text import convert_notebook as native
        case _:
            return _convert_by_extra(task.file_type, data, limits)
    return native(data, task.charset, limits.max_text)


def _convert_by_extra(file_type: str, data: bytes, limits: ConversionLimits) -> FileText:
    match file_type:
        case "pdf":
            from vmrag_link.conversion.child.tables import convert_pdf

            return convert_pdf(data, limits.max_text)
        case "xlsx":
            from vmrag_link.conversion.child.tables import convert_spreadsheet

            return convert_spreadsheet(data, limits.max_text)
        case _:
            from vmrag_link.conversion.child.tables import convert_office

            return convert_office(data, file_type)


def _replace_unstorable(text: str) -> str:
    """Return the text with a replacement for characters that no engine stores: NUL and lone
    surrogates.
    """
    text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_MOST_MEMBERS = 10_000
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def _check_archive(data: bytes, member: str, kind: str, limits: ConversionLimits) -> None:
    """Raise `ContentUnreadable` for a file that is not an archive with this member, or that is a
    zip bomb.

    A member never has more bytes than the directory of the archive states. So the sizes are added
    up, and nothing is unpacked.
    """
    if data.startswith(_OLE):
        raise ContentUnreadable(f"is not a readable {kind} (it has a password or an older format)")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
        raise ContentUnreadable(f"is not a {kind} ({error})") from None
    if len(members) > _MOST_MEMBERS:
        raise ContentUnreadable(f"is an archive of {len(members):,} files, but the maximum is {_MOST_MEMBERS:,}")
    expanded = sum(info.file_size for info in members)
    if expanded > limits.max_expanded:
        raise ContentUnreadable(
            f"unpacks to {expanded >> 20:,} MiB, but the maximum is {limits.max_expanded >> 20} MiB"
        )
    if member not in {info.filename for info in members}:
        raise ContentUnreadable(f"is not a {kind} (it has no {member})")


def _receive_task(stdin: IO[bytes], limits: ConversionLimits) -> tuple[ConversionTask, bytes]:
    task = msgspec.msgpack.decode(receive_frame(stdin, LONGEST_TASK), type=ConversionTask)
    return task, receive_frame(stdin, limits.max_bytes)


def _convert_task(task: tuple[ConversionTask, bytes], limits: ConversionLimits) -> ConversionAnswer:
    """Convert a file, and return the text or the failure.

    Every exception is a failure of this one file, because converters raise any errors.
    """
    try:
        text = read_task(*task, limits)
    except ContentUnreadable as error:
        return ConversionAnswer(failed=error.reason, hint=error.hint, last=is_memory_exhausted(limits))
    except MemoryError:
        mib = limits.max_memory >> 20
        hint = f"run 'git config vmrag.ingest.convert-mb {2 * mib}'"
        return ConversionAnswer(failed=f"needs more than {mib:,} MiB of memory to be converted", hint=hint, last=True)
    except RecursionError:
        return ConversionAnswer(failed="nests too deeply to be converted", last=is_memory_exhausted(limits))
    except ImportError as error:  # it is installed, because the parent has checked that
        hint = (
            "run 'pip install --force-reinstall \"vmrag-link[convert]\"', or 'git config vmrag.ingest.convert-mb "
            "NUMBER' if memory is short"
        )
        failed = f"cannot be converted, because its converter does not start ({_format_error(error)})"
        return ConversionAnswer(failed=failed, hint=hint, last=True)
    except Exception as error:  # noqa: BLE001  the outermost boundary of this process
        return ConversionAnswer(
            failed=f"cannot be converted ({_format_error(error)})", last=is_memory_exhausted(limits)
        )
    return ConversionAnswer(
        text=text.content, title=text.title, metadata=text.metadata, last=is_memory_exhausted(limits)
    )


def _format_error(error: Exception) -> str:
    """Return the error of a library in one line."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:300]


def _answer_task(task: tuple[ConversionTask, bytes], limits: ConversionLimits) -> tuple[bytes, bool]:
    answer = _convert_task(task, limits)
    return encode(answer), answer.last


if __name__ == "__main__":
    mimetypes.init([])  # libraries use it, and otherwise it would read lists of this machine
    try:
        serve_tasks(_receive_task, _answer_task)
    except Disconnected:
        sys.exit(0)

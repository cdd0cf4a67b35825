"""`python -m vmrag_link.conversion.child`: convert files, as `serving` says.

Each reader is imported when it is needed, because some take a second; an archive is looked at
before a library opens it.
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
from vmrag_link.conversion.limits import (
    ContentUnreadable,
    ConversionLimits,
    Disconnected,
    receive_frame,
)
from vmrag_link.conversion.messages import ConversionAnswer, ConversionTask, encode
from vmrag_link.conversion.reading import FileText, too_much_text

_ARCHIVES = {
    "docx": ("[Content_Types].xml", "Word document"),
    "pptx": ("[Content_Types].xml", "PowerPoint presentation"),
    "xlsx": ("[Content_Types].xml", "Excel workbook"),
    "epub": ("META-INF/container.xml", "EPUB book"),
}
"""A member of each archive of the kind, and what the kind is called."""

_LONGEST_TITLE = 1000
"""Characters. A notebook may state one of megabytes."""

_PICTURES_PERHAPS = frozenset(("pdf", *_ARCHIVES))


def read_task(task: ConversionTask, data: bytes, limits: ConversionLimits) -> FileText:
    """Raises `ContentUnreadable`, and whatever a library raises."""
    if task.file_type in _ARCHIVES:
        _check_archive(data, *_ARCHIVES[task.file_type], limits)
    found = _read(task, data, limits)
    content = _storable(found.content)
    if len(content.encode()) > limits.max_text:
        raise too_much_text(limits.max_text)
    if task.file_type in _PICTURES_PERHAPS and not content.strip():
        raise ContentUnreadable("holds no text (perhaps pictures of it)")
    return FileText(_storable(found.title)[:_LONGEST_TITLE], content, found.metadata)


def _read(task: ConversionTask, data: bytes, limits: ConversionLimits) -> FileText:
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
            return _read_by_extra(task.file_type, data, limits)
    return native(data, task.charset, limits.max_text)


def _read_by_extra(file_type: str, data: bytes, limits: ConversionLimits) -> FileText:
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


def _storable(text: str) -> str:
    """Without what no engine stores: NUL, and halves of surrogate pairs."""
    text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_MOST_MEMBERS = 10_000
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def _check_archive(data: bytes, member: str, what: str, limits: ConversionLimits) -> None:
    """Raises `ContentUnreadable` for what is no archive with such a member, or one that is a bomb.

    A member gives no more than the size that the directory of the archive states, so these are
    summed up; nothing is unpacked.
    """
    if data.startswith(_OLE):
        raise ContentUnreadable(f"is no {what} that can be read (it has a password, or is of an older format)")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
        raise ContentUnreadable(f"is no {what} ({error})") from None
    if len(members) > _MOST_MEMBERS:
        raise ContentUnreadable(
            f"is an archive of {len(members):,} files, more than the {_MOST_MEMBERS:,} that are opened"
        )
    expanded = sum(each.file_size for each in members)
    if expanded > limits.max_expanded:
        raise ContentUnreadable(
            f"unpacks to {expanded >> 20:,} MiB, more than the {limits.max_expanded >> 20} MiB that are taken"
        )
    if member not in {each.filename for each in members}:
        raise ContentUnreadable(f"is no {what} (it has no {member})")


def _receive(stdin: IO[bytes], limits: ConversionLimits) -> tuple[ConversionTask, bytes]:
    task = msgspec.msgpack.decode(receive_frame(stdin, LONGEST_TASK), type=ConversionTask)
    return task, receive_frame(stdin, limits.max_bytes)


def _answer(given: tuple[ConversionTask, bytes], limits: ConversionLimits) -> ConversionAnswer:
    """Every failure is that of this one file: converters raise whatever they like."""
    try:
        found = read_task(*given, limits)
    except ContentUnreadable as error:
        return ConversionAnswer(failed=error.reason, hint=error.hint, last=is_memory_exhausted(limits))
    except MemoryError:
        mib = limits.max_memory >> 20
        hint = f"git config vmrag.ingest.convert-mb {2 * mib}"
        return ConversionAnswer(failed=f"needs more than {mib:,} MiB of memory to be converted", hint=hint, last=True)
    except RecursionError:
        return ConversionAnswer(failed="nests too deeply to be converted", last=is_memory_exhausted(limits))
    except ImportError as error:  # it is installed, or the parent had not asked
        hint = "pip install --force-reinstall 'vmrag-link[convert]'; if memory is short: git config vmrag.ingest.convert-mb NUMBER"
        failed = f"cannot be converted, its converter does not start ({_error_line(error)})"
        return ConversionAnswer(failed=failed, hint=hint, last=True)
    except Exception as error:  # noqa: BLE001  the outermost boundary of this process
        return ConversionAnswer(failed=f"cannot be converted ({_error_line(error)})", last=is_memory_exhausted(limits))
    return ConversionAnswer(
        text=found.content, title=found.title, metadata=found.metadata, last=is_memory_exhausted(limits)
    )


def _error_line(error: Exception) -> str:
    """What a library raised, in one line."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:300]


def _reply(given: tuple[ConversionTask, bytes], limits: ConversionLimits) -> tuple[bytes, bool]:
    answer = _answer(given, limits)
    return encode(answer), answer.last


if __name__ == "__main__":
    mimetypes.init([])  # libraries use it, and it would read the lists of this machine
    try:
        serve_tasks(_receive, _reply)
    except Disconnected:
        sys.exit(0)

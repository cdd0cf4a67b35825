"""Change the promotion level of a document: in the front matter of its file, and in its row.

One key of the front matter changes, and every other byte stays, because a person wrote the file.
The parser (`yaml_tree`) finds the positions, and the result is read again before it is written.
"""

from __future__ import annotations

import codecs
import stat
from pathlib import Path

from vmrag_link.conversion import formats, front_matter
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.errors import FileFailed, quoted
from vmrag_link.file_access import list_stale_temporaries, write_atomically
from vmrag_link.models import Document, Record, parse_metadata
from vmrag_link.toolsets.compounding import documents, mirror
from vmrag_link.toolsets.compounding.doc_types import Level
from vmrag_link.toolsets.compounding.mirror import ActiveProject
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.workspace import Workspace
from vmrag_link.yaml_tree import MappingNode, ScalarNode, YamlRefused, parse_document

KEY = "promotion_level"


class Promotion(Record, frozen=True):
    """A changed level. `pending` is the reason why the index is not up to date."""

    previous: Level
    changed: bool
    pending: str = ""


def promote_document(
    ws: Workspace, active: ActiveProject, project: DocsProject, doc_id: str, level: Level
) -> Promotion:
    """Write the level to the file, and mirror the file.

    If the row cannot be stored, restore the file.

    Raises `FileFailed` and the errors of `mirror.index_file`; then nothing is changed.
    """
    with active.lock:
        source = documents.read_source(ws, project.docs_folder, doc_id)
        previous: Level = _read_level(documents.project_document(project, doc_id, source))
        if previous == level:
            return Promotion(previous, changed=False)
        path = project.docs_folder / doc_id
        try:
            written = with_key(source.data, KEY, level)
        except NotEditable as error:
            raise FileFailed(
                f"{doc_id} {error.reason}.", hint=f"write into it by hand: {KEY}: {level}", path=doc_id
            ) from None
        _replace_content(path, source.data, written)
        try:
            result = mirror.index_file(ws, active, project, doc_id)
        except BaseException:
            _replace_content(path, written, source.data)
            raise
        return Promotion(previous, changed=True, pending=result.pending)


def _read_level(document: Document) -> Level:
    level: Level = parse_metadata(document)[KEY]
    return level


def _replace_content(path: Path, before: bytes, after: bytes) -> None:
    """Replace the content of an unchanged file in one step."""
    try:
        if path.read_bytes() != before:
            raise FileFailed(
                f"{path} changed during the call, so vmrag did not write it.", hint="call again", path=str(path)
            )
        for leftover in list_stale_temporaries(path.parent, name=path.name):
            leftover.unlink(missing_ok=True)  # of a killed call
        write_atomically(path, after, mode=stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise FileFailed(
            f"{path} cannot be written: {error.strerror}.",
            hint=f"run 'ls -la {quoted(path)}' to check its permissions",
            path=str(path),
        ) from error


class NotEditable(Exception):
    """A file cannot be edited. `reason` is the end of a sentence that begins with the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def with_key(data: bytes, key: str, value: str) -> bytes:
    """Return the file with a plain word for a key of its front matter, which is added if it is
    missing.

    Raises `NotEditable`.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = formats.decode_text(data)
        before, content = front_matter.split_front_matter(text)
        written = _edit_header(text, front_matter.locate_block(text), key, value)
        after, same = front_matter.split_front_matter(written)
    except ContentUnreadable as error:
        raise NotEditable(error.reason) from None
    except YamlRefused as error:
        raise NotEditable(f"has front matter that cannot be edited: line {error.line + 1} {error.reason}") from None
    # Before the change, an empty block is part of the text.
    is_unchanged = same == content or (not before and content.endswith(same))
    if after != before | {key: value} or not is_unchanged:
        raise NotEditable(f"has front matter in which {key} cannot be set automatically")
    return mark + written.encode()


def _edit_header(text: str, block: tuple[int, int] | None, key: str, value: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    line = f"{key}: {value}{newline}"
    if block is None:
        return f"---{newline}{line}---{newline}{text}"
    start, end = block
    root = parse_document(text[start:end])
    if root is None:
        return text[:end] + line + text[end:]
    if not isinstance(root, MappingNode) or root.flow or root.column:
        raise NotEditable("has front matter that is not a list of keys, one per line")
    entry = root.entries.get(key)
    if entry is None:
        return text[:end] + line + text[end:]
    if not isinstance(entry.value, ScalarNode):
        raise NotEditable(f"has a {key} that is not a word")
    first, last = start + entry.value.start, start + entry.value.end
    space = "" if text[first - 1 : first] in (" ", "\t") else " "
    return text[:first] + space + value + text[last:]

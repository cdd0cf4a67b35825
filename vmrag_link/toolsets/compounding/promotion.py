"""Say how much a document of a project counts: in its file's front matter, and in its row.

One key of the front matter is changed, and everything else stays byte for byte: a person wrote it.
The places come from the parser (`yaml_tree`), and the result is read again before it counts.
"""

from __future__ import annotations

import codecs
import stat
from pathlib import Path

from vmrag_link.conversion import front_matter, text_bytes
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.errors import FileFailed, quoted
from vmrag_link.models import Document, Record, metadata_of
from vmrag_link.paths import stale_temporaries, write_atomically
from vmrag_link.toolsets.compounding import documents, mirror
from vmrag_link.toolsets.compounding.doc_types import Level
from vmrag_link.toolsets.compounding.mirror import ActiveProject
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.workspace import Workspace
from vmrag_link.yaml_tree import MappingNode, ScalarNode, YamlRefused, parse

KEY = "promotion_level"


class Promoted(Record, frozen=True):
    """`pending`: why the index does not follow yet."""

    previous: Level
    changed: bool
    pending: str = ""


def promote(ws: Workspace, active: ActiveProject, project: DocsProject, doc_id: str, level: Level) -> Promoted:
    """Write the level into the file, and mirror that; where the row cannot be stored, the file is
    put back.

    Raises `FileFailed`, and as `mirror.index`: then nothing is changed.
    """
    with active.lock:
        found = documents.source(ws, project.docs_folder, doc_id)
        previous: Level = _level(documents.project_document(project, doc_id, found))
        if previous == level:
            return Promoted(previous, changed=False)
        path = project.docs_folder / doc_id
        try:
            written = with_key(found.data, KEY, level)
        except NotEditable as error:
            raise FileFailed(
                f"{doc_id} {error.reason}.", hint=f"Write into it by hand: {KEY}: {level}", path=doc_id
            ) from None
        _replace(path, found.data, written)
        try:
            done = mirror.index(ws, active, project, doc_id)
        except BaseException:
            _replace(path, written, found.data)
            raise
        return Promoted(previous, changed=True, pending=done.pending)


def _level(document: Document) -> Level:
    found: Level = metadata_of(document)[KEY]
    return found


def _replace(path: Path, before: bytes, after: bytes) -> None:
    """Exchange the contents of a file that nobody has changed meanwhile, in one step."""
    try:
        if path.read_bytes() != before:
            raise FileFailed(f"{path} changed meanwhile; it stays as it is.", hint="Call again.", path=str(path))
        for leftover in stale_temporaries(path.parent, name=path.name):
            leftover.unlink(missing_ok=True)  # of a killed call
        write_atomically(path, after, mode=stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise FileFailed(
            f"{path} cannot be written: {error.strerror}.", hint=f"ls -la {quoted(path)}", path=str(path)
        ) from error


class NotEditable(Exception):
    """`reason` completes a sentence that begins with the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def with_key(data: bytes, key: str, value: str) -> bytes:
    """The file with a plain word for a key of its front matter; without a block it gets one.

    Raises `NotEditable`.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = text_bytes.decode(data)
        before, content = front_matter.split(text)
        written = _edited(text, front_matter.block_of(text), key, value)
        after, same = front_matter.split(written)
    except ContentUnreadable as error:
        raise NotEditable(error.reason) from None
    except YamlRefused as error:
        raise NotEditable(f"has front matter that cannot be edited: line {error.line + 1} {error.reason}") from None
    # An empty block was text before, and is none afterwards.
    kept = same == content or (not before and content.endswith(same))
    if after != before | {key: value} or not kept:
        raise NotEditable(f"has front matter that is written in a way in which {key} cannot be set")
    return mark + written.encode()


def _edited(text: str, block: tuple[int, int] | None, key: str, value: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    line = f"{key}: {value}{newline}"
    if block is None:
        return f"---{newline}{line}---{newline}{text}"
    start, end = block
    root = parse(text[start:end])
    if root is None:
        return text[:end] + line + text[end:]
    if not isinstance(root, MappingNode) or root.flow or root.column:
        raise NotEditable("has front matter that is no list of keys, one a line")
    there = root.entries.get(key)
    if there is None:
        return text[:end] + line + text[end:]
    if not isinstance(there.value, ScalarNode):
        raise NotEditable(f"has a {key} that is no word")
    first, last = start + there.value.start, start + there.value.end
    space = "" if text[first - 1 : first] in (" ", "\t") else " "
    return text[:first] + space + value + text[last:]

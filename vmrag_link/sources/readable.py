"""Which files a source has, at a commit or in the work tree, what is remembered of the last list,
and what a file says as a text, or why it is none.

Of a Jupyter notebook the cells are the text, as Markdown. What they printed is no source. What is
remembered is derived; what is damaged is forgotten.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from vmrag_link.conversion.formats import by_suffix, decode
from vmrag_link.conversion.limits import BINARY_WITHIN, ContentUnreadable
from vmrag_link.models import Record
from vmrag_link.paths import FileStamp, write_atomically
from vmrag_link.sources.rules import NOTEBOOK


class TreeFile(NamedTuple):
    """A file of a source.

    `path`: below the top of the repository, with `/`. `blob`: how git names what it holds; in the
    work tree of what would be committed now, as far as git's settings and attributes decide it.
    `size` in bytes. `uncommitted`: how it differs from HEAD, which is empty at a commit.
    `handwritten`: attributes say that nothing generated it, whatever it looks like. `encoding`:
    that of the file on the disk, where attributes name one; blobs are UTF-8. `note_id`: the id of a
    note, which is not its path.
    """

    path: str
    blob: str
    size: int
    uncommitted: Literal["", "added", "modified", "unmerged"] = ""
    handwritten: bool = False
    encoding: str = ""
    note_id: str = ""

    @property
    def doc_id(self) -> str:
        """The id of the document."""
        return self.note_id or self.path


class LeftOutFile(Record, frozen=True):
    """`reason` completes `PATH is left out: it …`."""

    path: str
    reason: str


class NoDocument(Record, frozen=True):
    """Why a file is no document, completing `it …`. `here`: on another machine it may be one."""

    reason: str
    here: bool = False


class SourceListing(Record, frozen=True):
    """The files of all sources at one place, by collection, each sorted by path.

    `left_out`: files that a source names and that are no documents. `missing`: paths whose blobs
    this clone does not have. `removed`: files of HEAD that the work tree has no more. `untracked`:
    how many files would be of a source if git tracked them. `claims`: the ids in the front matter
    of notes, by blob.
    """

    files: Mapping[str, Sequence[TreeFile]]
    left_out: tuple[LeftOutFile, ...] = ()
    missing: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    untracked: int = 0
    claims: Mapping[str, str] = {}


def token_of(listing: SourceListing) -> str:
    """Names what is listed, but for the number of untracked files: equal listings have one."""
    counted = msgspec.structs.replace(listing, untracked=0)
    return hashlib.sha256(msgspec.msgpack.encode(counted, order="deterministic")).hexdigest()


_TICK = 50_000_000
_COARSE = 2_000_000_000
"""Nanoseconds within which two changes of a file may have one time; the other for disks that know
seconds only.
"""


class ChangedFile(Record, frozen=True):
    """A file that differs from the index: by git's status, or `?` where git does not track it.

    `listed`: a source names it, or it holds attributes, so each change of it matters. `blob` is
    empty for what was not read.
    """

    path: bytes
    status: str
    listed: bool
    stamp: FileStamp | None
    blob: str


class Seen(Record, frozen=True):
    """`question`: what was asked; `place`: which index, HEAD and configuration; `storing`: what
    decided blobs. `at`: when, by the disk's clock, in nanoseconds, before a file was read.
    """

    question: str
    place: str
    storing: str
    at: int
    changed: list[ChangedFile]
    token: str


class StoredListing(Record, frozen=True):
    """The listing that `token` names."""

    token: str
    listing: SourceListing


def may_have_changed(stamp: FileStamp, at: int) -> bool:
    """Whether a file with an unchanged stamp may be another one than when it was read after `at`:
    git's racy rule.
    """
    coarse = not any(time % 1_000_000_000 for time in stamp[2:])
    return max(stamp[2:]) >= at - (_COARSE if coarse else _TICK)


def recall(cache: Path) -> Seen | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.msgpack.decode(cache.read_bytes(), type=Seen)
    return None


def recall_listing(cache: Path) -> StoredListing | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.msgpack.decode(_listing(cache).read_bytes(), type=StoredListing)
    return None


def remember(cache: Path, seen: Seen, listing: SourceListing) -> None:
    """Raises OSError."""
    stored = StoredListing(seen.token, listing)
    write_atomically(_listing(cache), msgspec.msgpack.encode(stored), durable=False)
    write_atomically(cache, msgspec.msgpack.encode(seen), durable=False)


def _listing(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.listing")


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
POINTER_BYTES = 1024
_MARKED_WITHIN = 1000
_LONGEST_LINE = 20_000

_GENERATED = re.compile(r"^[^\w\n]{0,20}@generated\b|^.{0,20}\bCode generated\b.{0,200}\bDO NOT EDIT\b", re.MULTILINE)
"""Of comments. In prose, such words are spoken of."""

# UTF-32's first: it begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class SourceText(NamedTuple):
    """`text` with line feeds alone, no byte order mark, no NUL. None: the file is left out, and
    `reason` completes `PATH is left out: it …`.
    """

    text: str | None
    reason: str = ""


def readable(file: TreeFile, data: bytes) -> SourceText:
    """`data`: all bytes of its blob, which are UTF-8 whatever encoding the file has."""
    if len(data) < POINTER_BYTES and data.startswith(LFS_POINTER):
        return SourceText(None, "is kept in Git LFS")
    try:
        text = as_text(data)
        if is_notebook(file.path):
            text = cells(text)
    except ContentUnreadable as error:
        return SourceText(None, str(error))
    if not text.strip():
        return SourceText(None, "has no text")
    if not file.handwritten and _GENERATED.search(text, 0, _MARKED_WITHIN):
        return SourceText(None, "is generated, as it says itself")
    if not file.handwritten and _is_dense(file.path, text):
        return SourceText(None, f"has a line of more than {_LONGEST_LINE:,} characters")
    return SourceText(text)


def as_text(data: bytes, encoding: str = "") -> str:
    """The text of a file. Raises `ContentUnreadable`."""
    marked = marked_encoding(data)
    if not (marked or encoding) and b"\0" in data[:BINARY_WITHIN]:
        raise ContentUnreadable("is no text")
    text = decode(data, marked or encoding)
    return text.replace("\r\n", "\n") if "\r" in text else text


def marked_encoding(data: bytes) -> str:
    """Return the encoding that a byte order mark names, other than UTF-8; empty without one."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), "")


def is_notebook(path: str) -> bool:
    return path.lower().endswith(".ipynb")


def _is_dense(path: str, text: str) -> bool:
    """Nobody writes such lines but in prose, where each paragraph is one, or holds a picture."""
    found = by_suffix(posixpath.basename(path))
    if len(text) <= _LONGEST_LINE or (found is not None and (found.where == "here" or found.file_type == NOTEBOOK)):
        return False
    return any(len(line) > _LONGEST_LINE for line in text.split("\n"))


_LONGEST = 4_000_000
"""Characters of one that is read. An empty cell takes 3, and 90 bytes of memory."""

_MOST_CELLS = 20_000
_LANGUAGE = re.compile(r"[\w+#-]{1,40}")
_PICTURE = re.compile(r"data:[\w.+-]{1,50}/[\w.+-]{1,100}(?:;[\w=.-]{1,50}){0,5};base64,[A-Za-z0-9+/=%\s]*+")


def cells(text: str) -> str:
    """Code stands in fences. Raises `ContentUnreadable`."""
    if len(text) > _LONGEST:
        raise ContentUnreadable(f"has more than {_LONGEST:,} characters")
    try:
        notebook = _mapping(msgspec.json.decode(text))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ContentUnreadable(f"is no notebook ({error})") from None
    found = [
        each for sheet in (notebook, *_list(notebook.get("worksheets"))) for each in _list(_mapping(sheet).get("cells"))
    ]
    if not found and not any("cells" in _mapping(each) for each in (notebook, *_list(notebook.get("worksheets")))):
        raise ContentUnreadable("is no notebook (it has no cells)")
    if len(found) > _MOST_CELLS:
        raise ContentUnreadable(f"has more than {_MOST_CELLS:,} cells")
    blocks = _blocks(map(_mapping, found), _language(_mapping(notebook.get("metadata"))))
    return "\n\n".join(blocks).replace("\0", "\ufffd")  # JSON writes it as an escape


def _blocks(found: Iterator[dict[str, Any]], language: str) -> Iterator[str]:
    for cell in found:
        source = _joined(cell.get("source", cell.get("input"))).replace("\r\n", "\n").strip("\n")
        if not source.strip():
            continue
        match cell.get("cell_type"):
            case "code":
                fence = "`" * (max(map(len, re.findall("`{3,}", source)), default=2) + 1)
                yield f"{fence}{language}\n{source}\n{fence}"
            case "heading":
                level = cell.get("level")
                yield f"{'#' * (level if isinstance(level, int) and 1 <= level <= 6 else 1)} {source}"  # noqa: PLR2004
            case _:
                yield _PICTURE.sub("", source) if "base64," in source else source


def _language(metadata: dict[str, Any]) -> str:
    for place, name in (("language_info", "name"), ("kernelspec", "language")):
        language = _mapping(metadata.get(place)).get(name)
        if isinstance(language, str) and _LANGUAGE.fullmatch(language):
            return language
    return ""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _joined(value: Any) -> str:
    """A text, which notebooks may write as a list of its lines."""
    return "".join(each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))

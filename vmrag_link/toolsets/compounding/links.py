"""Which documents of a project refer to which: Markdown links, and `related_docs`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from urllib.parse import unquote

from vmrag_link.models import Document, Record, metadata_of

_TARGET = re.compile(
    r"\]\([ \t]{0,8}<?([^()\s<>]{1,500})|^ {0,3}\[[^\]\n]{1,200}\]:[ \t]{1,8}<?([^\s<>]{1,500})", re.MULTILINE
)
MOST_TARGETS = 500
"""Of one document."""


class Linked(Record, frozen=True):
    """A document that is linked from another one."""

    doc_id: str
    linked_from: str


def follow(
    start: Sequence[str],
    document: Callable[[str], Document | None],
    known: Collection[str],
    *,
    docs: str,
    depth: int,
    most: int,
) -> list[Linked]:
    """The documents that are reached from others by links, nearest first, each once.

    `document` gives one by id, `known` are all ids; `docs`: the documents' folder.
    """
    found: list[Linked] = []
    seen, layer = {*start}, [*start]
    for _ in range(depth):
        following = []
        for source in layer:
            here = document(source)
            for target in targets(here, known, docs=docs) if here else ():
                if target in seen:
                    continue
                if len(found) == most:
                    return found
                seen.add(target)
                following.append(target)
                found.append(Linked(target, source))
        layer = following
    return found


def targets(document: Document, known: Collection[str], *, docs: str) -> list[str]:
    """The ids of the documents that it refers to, in its order, those of `related_docs` first."""
    found: dict[str, None] = {}
    for text in _texts(document):
        target = _resolved(text, document.doc_id, known, docs)
        if target and target != document.doc_id:
            found[target] = None
    return [*found]


def _texts(document: Document) -> Iterator[str]:
    related = metadata_of(document).get("related_docs")
    listed = [related] if isinstance(related, str) else related if isinstance(related, list) else []
    yield from (each for each in listed[:MOST_TARGETS] if isinstance(each, str))
    for number, match in enumerate(_TARGET.finditer(document.content)):
        if number == MOST_TARGETS:
            return
        yield match[1] or match[2]


def _resolved(text: str, source: str, known: Collection[str], docs: str) -> str | None:
    """The document that is meant, from beside its source, from the folder, or from the root."""
    path = unquote(re.split(r"[#?]", text, maxsplit=1)[0])
    if not path or "://" in path:
        return None
    bare = path.lstrip("/")
    candidates = [] if path.startswith("/") else [posixpath.join(posixpath.dirname(source), path)]
    candidates += [bare, bare.removeprefix("./").removeprefix(f"{docs}/")]
    for each in candidates:
        found = posixpath.normpath(each)
        for name in (found, f"{found}.md"):
            if name in known:
                return name
    return None

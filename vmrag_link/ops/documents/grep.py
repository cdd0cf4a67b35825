"""`vmrag grep`: the lines of the documents that a pattern matches, at any place."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence

from vmrag_link import terminal_text
from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.models import Document, Record
from vmrag_link.ops.documents import reading
from vmrag_link.ops.documents.reading import TextSource
from vmrag_link.ops.follow.provenance import KbBlock, Standing
from vmrag_link.ops.history import known
from vmrag_link.progress import Task
from vmrag_link.workspace import Workspace


class Pattern(Record, frozen=True):
    """What is looked for, as Python's `re` has it; with `fixed` the text itself."""

    text: str
    fixed: bool = False
    ignore_case: bool = False

    def compiled(self) -> re.Pattern[str]:
        """Raises `UsageInvalid` for what is no regular expression."""
        flags = re.IGNORECASE if self.ignore_case else re.NOFLAG
        try:
            with warnings.catch_warnings():  # `[[` means another set in a later Python
                warnings.simplefilter("ignore")
                return re.compile(re.escape(self.text) if self.fixed else self.text, flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageInvalid(
                f"{self.text!r} is no regular expression: {error}.",
                hint=f"vmrag grep -F -- {quoted(self.text)}   (finds the text itself)",
                parameter="pattern",
            ) from None


class MatchedLine(Record, frozen=True):
    """`number` counts from 1; `matches`: characters of the line, from and to. A line that is not
    `matched` is near to one.
    """

    number: int
    text: str
    matched: bool
    matches: tuple[tuple[int, int], ...]


class MatchedDocument(Record, frozen=True):
    """`count`: how many lines match; `lines`: these, and those around them that were asked for."""

    collection: str
    doc_id: str
    title: str
    count: int
    lines: list[MatchedLine]


class GrepReport(Record, frozen=True):
    """`notes`: why this is not the pinned revision, if so."""

    documents: list[MatchedDocument]
    kb: KbBlock
    notes: tuple[str, ...] = ()


def grep(
    ws: Workspace, pattern: Pattern, *, collections: Sequence[str] = (), ref: str | None = None, context: int = 0
) -> GrepReport:
    """Every document with a line that matches, by name.

    `collections`: only these; by default all but those in which tools write for themselves. `ref`:
    as `revparse.resolve_at`. Raises `UsageInvalid`, `CollectionMissing`.
    """
    wanted = pattern.compiled()

    def look(source: TextSource, here: Standing) -> GrepReport:
        names = reading.collection_names(source, here.at, collections, searched=True)
        with ws.progress.task("searching", sum(source.count(here.at, collection=each) for each in names)) as task:
            documents = (each for name in names for each in source.documents(here.at, collection=name))
            found = list(_found(documents, wanted, context, task))
        return GrepReport(found, here.kb, here.notes)

    with known.naming_collections(ws, collections):
        return reading.read_texts(ws, ref, look)


def _found(
    documents: Iterable[Document], wanted: re.Pattern[str], context: int, task: Task
) -> Iterator[MatchedDocument]:
    for document in documents:
        if found := _matching(document, wanted, context):
            yield found
        task.advance()


def _matching(document: Document, wanted: re.Pattern[str], context: int) -> MatchedDocument | None:
    lines = terminal_text.lines(document.content)
    hits = {
        number: tuple(each.span() for each in wanted.finditer(line) if each.end() > each.start())
        for number, line in enumerate(lines, start=1)
        if wanted.search(line)
    }
    if not hits:
        return None
    shown = {near for number in hits for near in range(max(1, number - context), min(len(lines), number + context) + 1)}
    found = [MatchedLine(number, lines[number - 1], number in hits, hits.get(number, ())) for number in sorted(shown)]
    return MatchedDocument(document.collection, document.doc_id, document.title, len(hits), found)

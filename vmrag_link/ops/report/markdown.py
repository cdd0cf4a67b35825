"""A report as Markdown, for a job's summary: strangers' text as text, and within the limit.

Every part has a share of the room, and within a part every row or document; what is cut says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from vmrag_link.errors import plural
from vmrag_link.golden.queries import RankedChunk
from vmrag_link.markdown_text import (
    MAX_BYTES,
    compute_fair_share,
    cut_to_bytes,
    escape_markdown,
    escape_paragraph,
    format_table,
)
from vmrag_link.ops.report.rankings import (
    PLACES,
    build_rank_rows,
    index_answers,
    list_changed_rankings,
    list_renames,
    name_differing_text,
    shorten_name,
)
from vmrag_link.ops.report.records import (
    AnswerChange,
    ComparedQueries,
    DocumentLine,
    FieldChange,
    KnowledgeReport,
    QueryChange,
    ReportedDocument,
    ReportEnd,
    ReportSummary,
    RevisionList,
    TextChange,
)
from vmrag_link.ops.report.wording import (
    describe_basis,
    describe_pinning,
    describe_revision,
    describe_unpinned,
    format_growth,
    judge_report,
    name_document,
    name_end,
)
from vmrag_link.worddiff import Op, render_pieces
from vmrag_link.workspace.history.word_diff import Words, hidden_suffix

_SHARES = {
    "facts": 0.03,
    "findings": 0.1,
    "revisions": 0.1,
    "collections": 0.05,
    "queries": 0.2,
    "notes": 0.05,
    "documents": 0.22,
}
"""Of the room, at most; texts get what is left."""

_LEAST = 300
"""Bytes that a document's text has at least; documents for which there is less are only listed."""

_NOTE = 400
"""Bytes for what is said of those."""

_ELSEWHERE = "are on the page that vmrag report --html writes"

_REST = 60
"""Bytes for what is said of the rest of a document."""

_SENTENCE = 500
"""Characters of a sentence with a name in it."""

_TAGS = {"insert": "ins", "delete": "del"}


def format_markdown(report: KnowledgeReport, *, limit: int = MAX_BYTES) -> str:
    """At most `limit` bytes, of which there have to be 100,000.

    Raises as `KnowledgeReport.documents`.
    """
    summary = report.summary
    room = {name: int(limit * share) for name, share in _SHARES.items()}
    parts = [
        _head(summary, room["facts"]),
        _findings(summary, room["findings"]),
        _queries(summary, room["queries"]),
        _note_rows(summary, room["notes"]),
        _collections(summary, room["collections"]),
        _documents(summary, room["documents"]),
    ]
    history = [*_revisions(summary, room["revisions"] // 2)]
    used = sum(len(part.encode()) for part in (*parts, *history))
    return "".join((*parts, *_texts(report, limit - used), *history))


def _head(summary: ReportSummary, room: int) -> str:
    first, *others = judge_report(summary).sentences
    rows = [
        ("Before", _end(summary.start, summary.lost)),
        ("After", _end(summary.head, summary.gained)),
        ("Documents", format_growth(summary.size.documents)),
        ("Characters", f"{summary.size.characters.grown:+,}"),
        ("Words", _words(summary.words)),
        *((f"Files of {file.collection} that differ", f"{file.total:,}") for file in summary.files),
        *([("Chunks", format_growth(summary.size.chunks))] if summary.size.chunks else []),
        *(
            [("Golden queries", f"{summary.queries.not_compared} {summary.queries.hint}")]
            if summary.queries.not_compared
            else []
        ),
    ]
    said = "".join(f"{escape_paragraph(_beginning(each))}\n\n" for each in (*others, describe_basis(summary)))
    return f"## {escape_markdown(_beginning(first))}\n\n{said}{format_table('Knowledge', ('', ''), rows, limit=room, level=3)}"


def _end(end: ReportEnd, found: RevisionList) -> str:
    if end.revision is None:
        return f"{name_end(end)}: {describe_unpinned(end)}"
    by = describe_pinning(end.revision)
    return f"{name_end(end)}, revision {end.revision.revision[:12]}: {describe_revision(end.revision, found)}" + (
        f"\npinned by {by}" if by else ""
    )


def _findings(summary: ReportSummary, room: int) -> str:
    rows = [
        (finding.level, finding.code, finding.commit[:12], finding.message, finding.hint)
        for finding in summary.findings
    ]
    heads = ("", "Code", "Commit", "What", "What helps")
    return _table("Pins of the code commits", heads, rows, room)


def _note_rows(summary: ReportSummary, room: int) -> str:
    rows = [(note.path, str(note)) for note in summary.citing]
    return _table("Notes that may be outdated", ("Note", "Cites"), rows, room)


def _revisions(summary: ReportSummary, room: int) -> Iterator[str]:
    for title, found in (
        ("Revisions", summary.gained),
        (f"Revisions of {name_end(summary.start)} that are not in {name_end(summary.head)}", summary.lost),
    ):
        rows = [(each.revision[:12], describe_revision(each, found), describe_pinning(each)) for each in found.shown]
        yield _table(title, ("Revision", "Message", "Pinned by"), rows, room, total=found.total)


def _queries(summary: ReportSummary, room: int) -> str:
    queries, names = summary.queries, list_renames(summary)
    answers = index_answers(queries)
    rows = [
        (f"{each.query}\n(line {each.line})", *_rankings(each, answers.get(each.line), names, queries))
        for each in list_changed_rankings(queries)
    ]
    new = [("new", each.query, "\n".join(each.missed)) for each in queries.added]
    removed = [("removed", each.query, "") for each in queries.removed]
    return (
        _table("Golden queries that change", ("Query", "Before", "After"), rows, room * 3 // 4)
        + _table("Golden queries that are new or removed", ("", "Query", "What it lacks"), [*new, *removed], room // 4)
    )  # fmt: skip


def _rankings(
    query: QueryChange, answer: AnswerChange | None, names: Mapping[str, str], queries: ComparedQueries
) -> tuple[str, str]:
    rows = build_rank_rows(query, names)
    before = (_format_place(row.place, row.before, "gone" if row.gone else "", queries) for row in rows if row.before)
    after = (_format_place(row.place, row.after, row.mark, queries) for row in rows if row.after)
    differs = filter(None, [name_differing_text(answer, queries)])
    return (
        "\n".join((*_lacks(query.problem_before, query.missed_before), *before, *_more(query.before))),
        "\n".join((*_lacks(query.problem_after, query.missed_after), *differs, *after, *_more(query.after))),
    )


def _format_place(place: int, chunk: RankedChunk, mark: str, queries: ComparedQueries) -> str:
    said = f" {mark}" if mark not in ("", "=") else ""
    return f"{place}. {shorten_name(chunk.document, queries)} #{chunk.chunk} ({chunk.score:g}){said}"


def _lacks(problem: str, missed: Sequence[str]) -> Iterator[str]:
    yield from [problem] if problem else []
    yield from missed


def _more(ranking: Sequence[RankedChunk]) -> Iterator[str]:
    if len(ranking) > PLACES:
        yield f"and {plural(len(ranking) - PLACES, 'more place')}"


def _collections(summary: ReportSummary, room: int) -> str:
    rows = [
        (collection.kind, collection.name, "\n".join(map(_field, collection.fields)))
        for collection in summary.collections
    ]
    return _table("Settings of collections", ("", "Collection", "What"), rows, room)


def _field(field: FieldChange) -> str:
    return f"{field.name}: {render_pieces(field.change.pieces)}{_left_out(field.change)}"


def _documents(summary: ReportSummary, room: int) -> str:
    rows = [(document.kind, _names(document), _words(document.words)) for document in summary.documents]
    return _table("Documents", ("", "Document", "Words"), rows, room)


def _words(words: Words) -> str:
    return f"+{words.inserted:,} -{words.deleted:,}{hidden_suffix(words)}"


def _names(line: DocumentLine) -> str:
    name = name_document(line)
    return f"{line.shown_old_name}\n→ {name}" if line.shown_old_name else name


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], room: int, *, total: int = 0) -> str:
    """Nothing without rows. `total`: how many there are, if these are only the first of them."""
    if not rows:
        return ""
    titled = f"{title} ({len(rows)} of {total})" if total > len(rows) else title
    return format_table(titled, heads, rows, limit=room, level=3, elsewhere=_ELSEWHERE)


# -- what differs in the texts


def _texts(report: KnowledgeReport, room: int) -> Iterator[str]:
    """The documents that have something to show, each with its fair share of the room."""
    heading = "### What differs\n\n"
    room -= len(heading) + _NOTE
    sizes = [len(shown.encode()) for document in report.read_documents() if (shown := _details(document, room))]
    if not sizes:
        return
    fits = min(len(sizes), room // _LEAST)
    share = compute_fair_share(sizes[:fits], room)
    yield heading
    yield from islice(filter(None, (_details(document, share) for document in report.read_documents())), fits)
    if fits < len(sizes):
        rest = f"What differs in {plural(len(sizes) - fits, 'more document')} has no room here"
        yield f"{escape_markdown(f'{rest}; the texts {_ELSEWHERE}.')}\n"


def _details(document: ReportedDocument, room: int) -> str:
    """The differences of one document in so many bytes; empty if it was moved as it is."""
    stretches = list(_stretches(document))
    if not stretches:
        return ""
    name = cut_to_bytes(_names(document), room // 3)
    before, after = f"<details><summary>{document.kind} {escape_markdown(name)}</summary><p>", "</p></details>\n\n"
    left = room - len((before + after).encode()) - _REST
    shown: list[str] = []
    for number, (op, string) in enumerate(stretches):
        if len(string) > left or len((marked := _marked(op, string)).encode()) > left:
            kept = cut_to_bytes(string, left - len(_marked(op, "")))
            unshown = sum(len(stretch) for _, stretch in stretches[number:]) - len(kept)
            return "".join((before, *shown, _marked(op, kept), _rest(document.text.left_out + unshown), after))
        shown.append(marked)
        left -= len(marked.encode())
    return "".join((before, *shown, _rest(document.text.left_out), after))


def _stretches(document: ReportedDocument) -> Iterator[tuple[Op, str]]:
    for field in document.fields:
        yield "equal", f"{field.name}: "
        yield from ((piece.op, piece.text) for piece in field.change.pieces)
        yield "equal", f"{_left_out(field.change)}\n"
    yield from ((piece.op, piece.text) for piece in document.text.pieces)


def _marked(op: Op, string: str) -> str:
    tag = _TAGS.get(op)
    return f"<{tag}>{escape_markdown(string)}</{tag}>" if tag else escape_markdown(string)


def _rest(characters: int) -> str:
    return f" … ({characters:,} characters more)" if characters else ""


def _left_out(change: TextChange) -> str:
    return _rest(change.left_out)


def _beginning(sentence: str) -> str:
    return sentence if len(sentence) <= _SENTENCE else f"{sentence[:_SENTENCE]}…"

"""Format a report as Markdown for a job's summary, with escaped texts and within a size limit.

Every part has a share of the size, and so has every row or document of a part. `room` is always the
number of bytes of this share. A shortened part names the omitted rows.
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
    MAX_PLACES,
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
"""The maximum share of each part. Texts get the rest."""

_MIN_DOCUMENT_BYTES = 300
"""Minimum number of bytes for the text of a document. Documents with less space are only listed."""

_SKIPPED_BYTES = 400
"""Number of bytes for the sentence about the documents that are only listed."""

_ELSEWHERE = "are on the page of 'vmrag report --html'"

_REST_BYTES = 60
"""Number of bytes for the remark about the rest of a document."""

_MAX_SENTENCE_CHARACTERS = 500
"""Maximum number of characters of a sentence that contains a name."""

_TAGS = {"insert": "ins", "delete": "del"}


def format_markdown(report: KnowledgeReport, *, limit: int = MAX_BYTES) -> str:
    """Format the report in at most `limit` bytes, which must be at least 100,000.

    Raises the errors of `KnowledgeReport.read_documents`.
    """
    summary = report.summary
    room = {part: int(limit * share) for part, share in _SHARES.items()}
    parts = [
        _format_head(summary, room["facts"]),
        _format_findings(summary, room["findings"]),
        _format_queries(summary, room["queries"]),
        _format_notes(summary, room["notes"]),
        _format_collections(summary, room["collections"]),
        _format_documents(summary, room["documents"]),
    ]
    history = [*_generate_revisions(summary, room["revisions"] // 2)]
    used = sum(len(part.encode()) for part in (*parts, *history))
    return "".join((*parts, *_generate_texts(report, limit - used), *history))


def _format_head(summary: ReportSummary, room: int) -> str:
    first, *others = judge_report(summary).sentences
    rows = [
        ("Before", _format_end(summary.start, summary.lost)),
        ("After", _format_end(summary.head, summary.gained)),
        ("Documents", format_growth(summary.size.documents)),
        ("Characters", f"{summary.size.characters.grown:+,}"),
        ("Words", _format_words(summary.words)),
        *((f"Files of {file.collection} that differ", f"{file.total:,}") for file in summary.files),
    ]
    if summary.size.chunks:
        rows.append(("Chunks", format_growth(summary.size.chunks)))
    if summary.queries.not_compared:
        rows.append(("Golden queries", f"{summary.queries.not_compared} {summary.queries.hint}"))
    sentences = "".join(
        f"{escape_paragraph(_shorten_sentence(sentence))}\n\n" for sentence in (*others, describe_basis(summary))
    )
    return f"## {escape_markdown(_shorten_sentence(first))}\n\n{sentences}{format_table('Knowledge', ('', ''), rows, limit=room, level=3)}"


def _format_end(end: ReportEnd, revisions: RevisionList) -> str:
    if end.revision is None:
        return f"{name_end(end)}: {describe_unpinned(end)}"
    pinning = describe_pinning(end.revision)
    return f"{name_end(end)}, revision {end.revision.revision[:12]}: {describe_revision(end.revision, revisions)}" + (
        f"\npinned by {pinning}" if pinning else ""
    )


def _format_findings(summary: ReportSummary, room: int) -> str:
    rows = [
        (finding.level, finding.code, finding.commit[:12], finding.message, finding.hint)
        for finding in summary.findings
    ]
    heads = ("", "Code", "Commit", "Problem", "Fix")
    return _format_table("Pins of the git commits", heads, rows, room)


def _format_notes(summary: ReportSummary, room: int) -> str:
    rows = [(note.path, str(note)) for note in summary.citing]
    return _format_table("Notes that may be outdated", ("Note", "Cites"), rows, room)


def _generate_revisions(summary: ReportSummary, room: int) -> Iterator[str]:
    for title, revisions in (
        ("Revisions", summary.gained),
        (f"Revisions of {name_end(summary.start)} that are not in {name_end(summary.head)}", summary.lost),
    ):
        rows = [
            (revision.revision[:12], describe_revision(revision, revisions), describe_pinning(revision))
            for revision in revisions.shown
        ]
        yield _format_table(title, ("Revision", "Message", "Pinned by"), rows, room, total=revisions.total)


def _format_queries(summary: ReportSummary, room: int) -> str:
    queries = summary.queries
    names = list_renames(summary)
    answers = index_answers(queries)
    rows = [
        (f"{change.query}\n(line {change.line})", *_format_rankings(change, answers.get(change.line), names, queries))
        for change in list_changed_rankings(queries)
    ]
    new = [("new", query.query, "\n".join(query.missed)) for query in queries.added]
    removed = [("removed", query.query, "") for query in queries.removed]
    return (
        _format_table("Golden queries that change", ("Query", "Before", "After"), rows, room * 3 // 4)
        + _format_table("Golden queries that are new or removed", ("", "Query", "Missing"), [*new, *removed], room // 4)
    )  # fmt: skip


def _format_rankings(
    query: QueryChange, answer: AnswerChange | None, names: Mapping[str, str], queries: ComparedQueries
) -> tuple[str, str]:
    rows = build_rank_rows(query, names)
    before = [
        query.problem_before,
        *query.missed_before,
        *(_format_place(row.place, row.before, "gone" if row.gone else "", queries) for row in rows if row.before),
        _format_rest_of_ranking(query.before),
    ]
    after = [
        query.problem_after,
        *query.missed_after,
        name_differing_text(answer, queries),
        *(_format_place(row.place, row.after, row.mark, queries) for row in rows if row.after),
        _format_rest_of_ranking(query.after),
    ]
    return "\n".join(filter(None, before)), "\n".join(filter(None, after))


def _format_place(place: int, chunk: RankedChunk, mark: str, queries: ComparedQueries) -> str:
    suffix = f" {mark}" if mark not in ("", "=") else ""
    return f"{place}. {shorten_name(chunk.document, queries)} #{chunk.chunk} ({chunk.score:g}){suffix}"


def _format_rest_of_ranking(ranking: Sequence[RankedChunk]) -> str:
    return f"and {plural(len(ranking) - MAX_PLACES, 'more place')}" if len(ranking) > MAX_PLACES else ""


def _format_collections(summary: ReportSummary, room: int) -> str:
    rows = [
        (collection.kind, collection.name, "\n".join(map(_format_field, collection.fields)))
        for collection in summary.collections
    ]
    return _format_table("Settings of collections", ("", "Collection", "Change"), rows, room)


def _format_field(field: FieldChange) -> str:
    return f"{field.name}: {render_pieces(field.change.pieces)}{_format_left_out(field.change)}"


def _format_documents(summary: ReportSummary, room: int) -> str:
    rows = [(document.kind, _format_name(document), _format_words(document.words)) for document in summary.documents]
    return _format_table("Documents", ("", "Document", "Words"), rows, room)


def _format_words(words: Words) -> str:
    return f"+{words.inserted:,} -{words.deleted:,}{hidden_suffix(words)}"


def _format_name(line: DocumentLine) -> str:
    name = name_document(line)
    return f"{line.shown_old_name}\n→ {name}" if line.shown_old_name else name


def _format_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], room: int, *, total: int = 0
) -> str:
    """Format a table; empty without rows. `total` is the number of all rows, if these are only the
    first.
    """
    if not rows:
        return ""
    titled = f"{title} ({len(rows)} of {total})" if total > len(rows) else title
    return format_table(titled, heads, rows, limit=room, level=3, elsewhere=_ELSEWHERE)


# -- differences of texts


def _generate_texts(report: KnowledgeReport, room: int) -> Iterator[str]:
    """Yield the documents with differences, each with its fair share of the space."""
    heading = "### Differences\n\n"
    room -= len(heading) + _SKIPPED_BYTES
    whole_texts = (_format_details(document, room) for document in report.read_documents())
    sizes = [len(text.encode()) for text in whole_texts if text]
    if not sizes:
        return
    fits = min(len(sizes), room // _MIN_DOCUMENT_BYTES)
    share = compute_fair_share(sizes[:fits], room)
    yield heading
    shortened_texts = (_format_details(document, share) for document in report.read_documents())
    yield from islice(filter(None, shortened_texts), fits)
    if fits < len(sizes):
        rest = f"The differences of {plural(len(sizes) - fits, 'more document')} do not fit here"
        yield f"{escape_markdown(f'{rest}. They {_ELSEWHERE}.')}\n"


def _format_details(document: ReportedDocument, room: int) -> str:
    """Format the differences of one document within `room` bytes; empty if it was only moved."""
    stretches = list(_generate_stretches(document))
    if not stretches:
        return ""
    name = cut_to_bytes(_format_name(document), room // 3)
    before = f"<details><summary>{document.kind} {escape_markdown(name)}</summary><p>"
    after = "</p></details>\n\n"
    remaining = room - len((before + after).encode()) - _REST_BYTES
    left_out = document.text.left_out
    parts: list[str] = []
    for number, (op, string) in enumerate(stretches):
        size = len(_mark_text(op, string).encode()) if len(string) <= remaining else len(string)
        if size > remaining:
            beginning = cut_to_bytes(string, remaining - len(_mark_text(op, "")))
            parts.append(_mark_text(op, beginning))
            left_out += sum(len(stretch) for _, stretch in stretches[number:]) - len(beginning)
            break
        parts.append(_mark_text(op, string))
        remaining -= size
    return "".join((before, *parts, _format_rest(left_out), after))


def _generate_stretches(document: ReportedDocument) -> Iterator[tuple[Op, str]]:
    for field in document.fields:
        yield "equal", f"{field.name}: "
        yield from ((piece.op, piece.text) for piece in field.change.pieces)
        yield "equal", f"{_format_left_out(field.change)}\n"
    yield from ((piece.op, piece.text) for piece in document.text.pieces)


def _mark_text(op: Op, string: str) -> str:
    tag = _TAGS.get(op)
    return f"<{tag}>{escape_markdown(string)}</{tag}>" if tag else escape_markdown(string)


def _format_rest(characters: int) -> str:
    return f" … ({characters:,} characters more)" if characters else ""


def _format_left_out(change: TextChange) -> str:
    return _format_rest(change.left_out)


def _shorten_sentence(sentence: str) -> str:
    return sentence if len(sentence) <= _MAX_SENTENCE_CHARACTERS else f"{sentence[:_MAX_SENTENCE_CHARACTERS]}…"

"""Print documents that differ, for `vmrag diff`, `log` and `show`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from vmrag_link import terminal_text
from vmrag_link.cli import output
from vmrag_link.cli.base import format_title
from vmrag_link.cli.history_view import Form
from vmrag_link.errors import first_of, plural
from vmrag_link.models import ChangeKind
from vmrag_link.workspace.history.word_diff import DocumentDiff, FieldDiff, WordDiff, Words, hidden_suffix

if TYPE_CHECKING:
    from vmrag_link import worddiff
    from vmrag_link.worddiff import Piece
    from vmrag_link.workspace.history.diff import FileCounts

MARKS = {"added": ("A", "green"), "modified": ("M", "yellow"), "removed": ("D", "red")}
COLOURS = {"delete": "red", "insert": "green", "omitted": "cyan"}
INDENT = "    "


def format_diff(diff: WordDiff, form: Form) -> Iterator[str]:
    """Yield the lines of a diff. The documents are read during the iteration."""
    match form:
        case "names":
            return (_shown_name(diff, change) for change in diff.read_documents())
        case "status":
            return (f"{MARKS[change.kind][0]}\t{_shown_name(diff, change)}" for change in diff.read_documents())
        case "stat":
            return _format_stat(diff)
        case "text":
            return _format_changes(diff)


def format_diff_notes(diff: WordDiff, form: Form) -> Iterator[str]:
    """Yield notes about what the lines do not show."""
    if diff.diff.files and form in ("names", "status"):
        yield f"{_file_counts(diff.diff.files)}. Their names: --files"
    if missing := diff.diff.missing:
        yield f"Not compared, because this clone does not have them: {plural(len(missing), 'file')} ({first_of(missing, 3)})."


def _file_counts(files: Sequence[FileCounts]) -> str:
    """Return how many files of code differ."""
    kinds = {kind: sum(getattr(file, kind) for file in files) for kind in MARKS}
    text = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
    return f"Code: {plural(sum(kinds.values()), 'file')} ({text})"


def _format_code(diff: WordDiff) -> Iterator[str]:
    if diff.diff.files:
        yield f"{_file_counts(diff.diff.files)}; to see them: --files"


def _format_changes(diff: WordDiff) -> Iterator[str]:
    hidden = 0
    yield from _format_collections(diff)
    for document in diff.read_documents():
        yield _format_headline(
            document.kind, f"{_both_names(diff, document)}{format_title(document.doc_id, document.title)}"
        )
        if document.words and document.words.hidden:
            yield f"{INDENT}{output.style_text(hidden_suffix(document.words).removeprefix('; '), fg='magenta')}"
        yield from _format_fields(document.fields)
        if document.text:
            yield from (
                f"{INDENT}{line}" if line else "" for line in terminal_text.split_lines(_join_pieces(document.text))
            )
        hidden += document.words.hidden if document.words else 0
    yield diff.diff.changes.text + hidden_suffix(Words(hidden=hidden))
    yield from _format_code(diff)


def _format_stat(diff: WordDiff) -> Iterator[str]:
    width = max((len(diff.names["/".join(change.key)]) for change in diff.diff.documents), default=0)
    inserted = deleted = hidden = 0
    for document in diff.read_documents():
        words = document.words or Words()
        inserted, deleted, hidden = inserted + words.inserted, deleted + words.deleted, hidden + words.hidden
        counted = f"+{words.inserted} -{words.deleted}{hidden_suffix(words)}"
        yield f"{_format_headline(document.kind, _both_names(diff, document).ljust(width))} | {counted}"
    text = f"; {plural(inserted, 'word')} inserted(+), {deleted} deleted(-)" if diff.diff.documents else ""
    yield diff.diff.changes.text + text + hidden_suffix(Words(hidden=hidden))
    if diff.collections:
        names = [f"{collection.name} ({collection.kind})" for collection in diff.collections]
        yield f"Settings of collections: {', '.join(names)}"
    yield from _format_code(diff)


def _format_collections(diff: WordDiff) -> Iterator[str]:
    for collection in diff.collections:
        yield _format_headline(collection.kind, f"{collection.name}/ (the collection's settings)")
        yield from _format_fields(collection.fields)


def _format_fields(fields: Iterable[FieldDiff]) -> Iterator[str]:
    from vmrag_link import worddiff

    for field in fields:
        yield f"{INDENT}{field.name}: {_join_pieces(worddiff.diff_words(field.before, field.after))}"


def _join_pieces(pieces: Iterable[Piece]) -> str:
    """Join the pieces of a text.

    The marks stay in coloured text, because output to a file has no colours.
    """
    from vmrag_link import worddiff

    return worddiff.render_pieces(pieces, style=_colour_lines)


def _colour_lines(op: worddiff.Op, text: str) -> str:
    """Colour a text line by line, because a pager resets the colour at the end of a line."""
    return "\n".join(output.style_text(line, fg=COLOURS[op]) if line else "" for line in text.split("\n"))


def _shown_name(diff: WordDiff, document: DocumentDiff) -> str:
    return diff.names[f"{document.collection}/{document.doc_id}"]


def _both_names(diff: WordDiff, document: DocumentDiff) -> str:
    name = _shown_name(diff, document)
    return f"{diff.names[document.old_name]} -> {name}" if document.old_name else name


def _format_headline(kind: ChangeKind, name: str) -> str:
    letter, colour = MARKS[kind]
    return f"{output.style_text(letter, fg=colour)}  {name}"

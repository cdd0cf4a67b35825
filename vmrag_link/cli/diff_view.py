"""How documents that differ are printed: by `vmrag diff`, `log` and `show`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from vmrag_link import terminal_text
from vmrag_link.cli import output
from vmrag_link.cli.base import describe_changes, format_title
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
    """The documents are read while the lines are taken."""
    return {"names": _names, "status": _status, "stat": _stat, "text": _changes}[form](diff)


def _names(diff: WordDiff) -> Iterator[str]:
    return (_shown_name(diff, change) for change in diff.read_documents())


def _status(diff: WordDiff) -> Iterator[str]:
    return (f"{MARKS[change.kind][0]}\t{_shown_name(diff, change)}" for change in diff.read_documents())


def format_diff_notes(diff: WordDiff, form: Form) -> Iterator[str]:
    """What the lines do not say."""
    if diff.diff.files and form in ("names", "status"):
        yield f"{_file_counts(diff.diff.files)}. Their names: --files"
    if missing := diff.diff.missing:
        yield f"Not compared, because this clone does not have them: {plural(len(missing), 'file')} ({first_of(missing, 3)})."


def _file_counts(files: Sequence[FileCounts]) -> str:
    """Of code, how many files differ."""
    kinds = {kind: sum(getattr(file, kind) for file in files) for kind in MARKS}
    said = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
    return f"Code: {plural(sum(kinds.values()), 'file')} ({said})"


def _code(diff: WordDiff) -> Iterator[str]:
    if diff.diff.files:
        yield f"{_file_counts(diff.diff.files)}; to see them: --files"


def _changes(diff: WordDiff) -> Iterator[str]:
    hidden = 0
    yield from _collections(diff)
    for document in diff.read_documents():
        yield _headline(document.kind, f"{_both_names(diff, document)}{format_title(document.doc_id, document.title)}")
        if document.words and document.words.hidden:
            yield f"{INDENT}{output.style_text(hidden_suffix(document.words).removeprefix('; '), fg='magenta')}"
        yield from _fields(document.fields)
        if document.text:
            yield from (f"{INDENT}{line}" if line else "" for line in terminal_text.split_lines(_render(document.text)))
        hidden += document.words.hidden if document.words else 0
    yield describe_changes(diff.diff.changes) + hidden_suffix(Words(hidden=hidden))
    yield from _code(diff)


def _stat(diff: WordDiff) -> Iterator[str]:
    yield from _collections(diff)
    width = max((len(diff.names["/".join(change.key)]) for change in diff.diff.documents), default=0)
    inserted = deleted = hidden = 0
    for document in diff.read_documents():
        words = document.words or Words()
        inserted, deleted, hidden = inserted + words.inserted, deleted + words.deleted, hidden + words.hidden
        counted = f"+{words.inserted} -{words.deleted}{hidden_suffix(words)}"
        yield f"{_headline(document.kind, _both_names(diff, document).ljust(width))} | {counted}"
    said = f"; {plural(inserted, 'word')} inserted(+), {deleted} deleted(-)" if diff.diff.documents else ""
    yield describe_changes(diff.diff.changes) + said + hidden_suffix(Words(hidden=hidden))
    yield from _code(diff)


def _collections(diff: WordDiff) -> Iterator[str]:
    for collection in diff.collections:
        yield _headline(collection.kind, f"{collection.name}/ (the collection's settings)")
        yield from _fields(collection.fields)


def _fields(fields: Iterable[FieldDiff]) -> Iterator[str]:
    from vmrag_link import worddiff

    for field in fields:
        yield f"{INDENT}{field.name}: {_render(worddiff.diff_words(field.before, field.after))}"


def _render(pieces: Iterable[Piece]) -> str:
    """The marks stay beneath the colours: they are all there is where the output is no terminal."""
    from vmrag_link import worddiff

    return worddiff.render_pieces(pieces, style=_colour)


def _colour(op: worddiff.Op, text: str) -> str:
    """Line by line: a pager forgets a colour at the end of a line."""
    return "\n".join(output.style_text(line, fg=COLOURS[op]) if line else "" for line in text.split("\n"))


def _shown_name(diff: WordDiff, document: DocumentDiff) -> str:
    return diff.names[f"{document.collection}/{document.doc_id}"]


def _both_names(diff: WordDiff, document: DocumentDiff) -> str:
    name = _shown_name(diff, document)
    return f"{diff.names[document.old_name]} -> {name}" if document.old_name else name


def _headline(kind: ChangeKind, name: str) -> str:
    letter, colour = MARKS[kind]
    return f"{output.style_text(letter, fg=colour)}  {name}"

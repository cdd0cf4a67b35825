"""A report as one page of HTML that needs nothing else: no script to be read, no network at all.

Whatever stands in a report is a stranger's. It becomes text of elements only: Jinja2 escapes it, and
before that `terminal_text` makes visible what would turn or hide the text around it. No attribute
holds any of it; ids are numbers. The page's own style and script are the only ones that its policy
lets a browser use.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import vmrag_link
from vmrag_link import terminal_text
from vmrag_link.errors import IndexExtraMissing, plural
from vmrag_link.golden.comparison import RankChange, ranking_changes
from vmrag_link.ops.report.records import DocumentLine, QueryChange, ReportSummary, TextChange
from vmrag_link.ops.report.report import KnowledgeReport
from vmrag_link.ops.report.verdict import counted, mended, verdict, worsened
from vmrag_link.worddiff import Piece

if TYPE_CHECKING:
    from jinja2 import Environment

Line = TypeVar("Line", bound=DocumentLine)

OPEN = 30
"""Up to so many documents are shown open."""

ROOM = 10_000_000
"""Characters of all documents' texts; each of many gets its share, so that none displaces another."""

LEAST = 300
"""Characters of a document that are shown in any case."""

_BUFFERED = 256
"""Stretches of the page that are handed on together."""

_MESSAGE = 2_000
"""Characters of a message, a query, a finding."""

_BLOCKS = 5


def page(report: KnowledgeReport) -> Iterator[str]:
    """The page in pieces, which are made while they are taken: memory holds one document's text.

    Raises `IndexExtraMissing` where Jinja2 is not installed.
    """
    summary = report.summary
    stream = _environment().get_template("page.html").stream(
        report=summary,
        verdict=verdict(summary),
        groups=[_group(number, list(lines)) for number, (_, lines) in _by_collection(summary.documents)],
        documents=_by_collection(report.documents()),
        room=max(LEAST, ROOM // max(1, len(summary.documents))),
        open=len(summary.documents) <= OPEN,
        same_in_terminal=_command(summary),
    )
    stream.enable_buffering(_BUFFERED)
    return stream


class Group(NamedTuple):
    """A collection's documents that differ, in the table of contents."""

    number: int
    name: str
    lines: Sequence[DocumentLine]


class RankRow(NamedTuple):
    """What stands at a place of two rankings."""

    place: int
    before: RankChange | None
    after: RankChange | None


def rank_rows(query: QueryChange) -> list[RankRow]:
    """Both rankings side by side, the best first."""
    changes = ranking_changes(query.before, query.after)
    old = sorted((each for each in changes if each.rank_before), key=lambda each: each.rank_before or 0)
    new = [each for each in changes if each.rank_after]
    return [RankRow(place, *both) for place, both in enumerate(zip_longest(old, new), start=1)]


def fitting(change: TextChange, room: int) -> TextChange:
    """As much of it as `room` characters hold."""
    shown: list[Piece] = []
    left = room
    for each in change.pieces:
        if left <= 0:
            break
        shown.append(each if len(each.text) <= left else Piece(each.op, each.text[:left]))
        left -= len(each.text)
    cut = sum(len(each.text) for each in change.pieces) - sum(len(each.text) for each in shown)
    return TextChange(tuple(shown), change.left_out + cut)


def piece_text(piece: Piece) -> str:
    """A changed blank would show nothing: it is drawn. Elsewhere the end of a line is a newline."""
    if piece.op in ("insert", "delete") and piece.text.isspace():
        return piece.text.replace(" ", "·").replace("\t", "⇥\t").replace("\n", "↵\n")
    return piece.text.replace("\r\n", "\n")


def subject_and_body(message: str) -> tuple[str, str]:
    """The first line of a message, and what follows; both may be empty, and are cut where they are
    long.
    """
    subject, _, body = message.strip().partition("\n")
    return _beginning(subject), _beginning(body.strip())


def blocks(line: DocumentLine) -> str:
    """Five letters: the share of inserted words (`p`), of deleted ones (`m`), and `n` for the rest
    where little differs.
    """
    both = line.words.inserted + line.words.deleted
    if not both:
        return "n" * _BLOCKS
    many = min(_BLOCKS, both)
    plus = round(many * line.words.inserted / both)
    return "p" * plus + "m" * (many - plus) + "n" * (_BLOCKS - many)


def _group(number: int, lines: list[DocumentLine]) -> Group:
    return Group(number, lines[0].collection, lines)


def _by_collection(documents: Iterable[Line]) -> Iterator[tuple[int, tuple[str, Iterator[Line]]]]:
    """Numbered from 1; documents are taken as they are wanted."""
    return enumerate(groupby(documents, attrgetter("collection")), start=1)


def _command(summary: ReportSummary) -> str:
    """What shows the same in a terminal."""
    return f"vmrag diff {shlex.quote(f'{summary.base.name}...{summary.head.name}')}"


@functools.cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise IndexExtraMissing(
            "The page of a report is written by Jinja2, which is not installed.",
            hint="pip install 'vmrag-link[index]'",
        ) from None
    made = Environment(
        autoescape=True,
        finalize=_shown,
        loader=FunctionLoader(_part),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"beginning": _beginning, "day": _day, "plural": plural, "grouped": "{:,}".format, "signed": "{:+,}".format}
    made.globals |= {
        "blocks": blocks,
        "counted": counted,
        "fitting": fitting,
        "mended": mended,
        "piece_text": piece_text,
        "subject_and_body": subject_and_body,
        "rank_rows": rank_rows,
        "worsened": worsened,
        "version": vmrag_link.__version__,
        **_own("style", _part("page.css")),
        **_own("script", _part("page.js")),
    }
    return made


def _own(name: str, text: str) -> dict[str, str]:
    """A text of ours for the page, and its hash, by which the policy knows it."""
    from markupsafe import Markup

    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {name: Markup(text), f"{name}_hash": f"sha256-{digest}"}  # noqa: S704  a file of ours


def _part(name: str) -> str:
    return (resources.files(vmrag_link) / "ops" / "report" / "page" / name).read_text("utf-8")


def _shown(value: Any) -> Any:
    """What is no markup of ours is a text, and can be seen."""
    return value if hasattr(value, "__html__") else terminal_text.visible(str(value))


def _beginning(text: str) -> str:
    """Of a text that is meant to be short: a message, a query."""
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"


def _day(date: str) -> str:
    """`2026-11-23T09:12:00Z` as a person writes it."""
    return f"{date[:10]} {date[11:16]} UTC"

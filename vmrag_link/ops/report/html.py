"""A report as one page of HTML that needs nothing else: no script to be read, no network at all.

Whatever stands in a report is a stranger's. It becomes text of elements only: Jinja2 escapes it,
and before that `terminal_text` makes visible what would turn or hide the text around it. No
attribute holds any of it; ids are numbers. The page's own style and script are the only ones that
its policy lets a browser use.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import vmrag_link
from vmrag_link import extras, terminal_text
from vmrag_link.errors import plural
from vmrag_link.markdown_text import compute_fair_share
from vmrag_link.ops.report import plot, rankings, wording
from vmrag_link.ops.report.rankings import has_improved, has_worsened
from vmrag_link.ops.report.records import DocumentLine, KnowledgeReport, ReportedDocument, ReportSummary
from vmrag_link.ops.report.wording import describe_basis, judge_report, list_change_counts, name_end
from vmrag_link.worddiff import Piece
from vmrag_link.workspace.history.word_diff import hidden_suffix

if TYPE_CHECKING:
    from jinja2 import Environment

OPEN, OPEN_WORDS = 30, 5_000
"""Up to so many documents with so many words that differ are shown open."""

MAX_DOCUMENTS = 5_000
"""Documents on a page; a browser takes seconds for more."""

MAX_SHOWN = 200
"""Queries, findings and collections on a page."""

_BUFFERED = 32
"""Stretches of the page that are handed on together."""

_MESSAGE = 2_000
"""Characters of a message, a query, a finding."""

_BLOCKS = 5

_COLLECTION = attrgetter("collection")


def require_jinja() -> None:
    """Raises `IndexExtraMissing` where Jinja2 is not installed."""
    _environment()


def render_page(report: KnowledgeReport) -> Iterator[str]:
    """The page in pieces, which are made while they are taken: memory holds one document's text.

    Raises `IndexExtraMissing` where Jinja2 is not installed.
    """
    summary = report.summary
    groups = group_documents(summary.documents, MAX_DOCUMENTS)
    few = len(summary.documents) <= OPEN
    queries = rankings.list_changed_rankings(summary.queries)
    stream = (
        _environment()
        .get_template("page.html")
        .stream(
            report=summary,
            verdict=judge_report(summary),
            basis="" if summary.start == summary.base else describe_basis(summary),
            base=name_end(summary.base),
            start=name_end(summary.start),
            head=name_end(summary.head),
            groups=groups,
            sections=_sections(groups, report.read_documents()),
            queries=queries,
            scores=rankings.list_changed_scores(summary.queries),
            answers=rankings.index_answers(summary.queries),
            shown=MAX_SHOWN,
            places=rankings.PLACES,
            renamed=rankings.list_renames(summary),
            few=few,
            open=few and _words(summary) <= OPEN_WORDS,
            same_in_terminal=_command(summary),
            plot=_draw_plot(summary),
        )
    )
    stream.enable_buffering(_BUFFERED)
    return stream


class Group(NamedTuple):
    """A collection's documents that are on the page, and how many are `left_out`."""

    number: int
    name: str
    lines: Sequence[DocumentLine]
    left_out: int


def group_documents(documents: Sequence[DocumentLine], most: int) -> list[Group]:
    """By collection, numbered from 1. Of more than `most` documents each collection has its share:
    what small ones leave is the large ones'.
    """
    by_name = [(name, list(lines)) for name, lines in groupby(documents, _COLLECTION)]
    share = compute_fair_share([len(lines) for _, lines in by_name], most)
    return [
        Group(number, name, lines[:share], len(lines[share:])) for number, (name, lines) in enumerate(by_name, start=1)
    ]


def _sections(
    groups: Sequence[Group], documents: Iterator[ReportedDocument]
) -> Iterator[tuple[Group, Iterator[ReportedDocument]]]:
    """The groups with their documents, which are read as they are taken."""
    for group, (_, some) in zip(groups, groupby(documents, _COLLECTION), strict=True):
        yield group, islice(some, len(group.lines))


def piece_text(piece: Piece) -> str:
    """A changed blank would show nothing: it is drawn. Elsewhere the end of a line is a newline."""
    if piece.op in ("insert", "delete") and piece.text.isspace():
        return piece.text.replace(" ", "·").replace("\t", "⇥\t").replace("\n", "↵\n")
    return piece.text.replace("\r\n", "\n")


def draw_blocks(line: DocumentLine) -> str:
    """Five letters: the share of inserted words (`p`), of deleted ones (`m`), and `n` for the rest
    where little differs.
    """
    both = line.words.inserted + line.words.deleted
    if not both:
        return "n" * _BLOCKS
    many = min(_BLOCKS, both)
    plus = round(many * line.words.inserted / both)
    return "p" * plus + "m" * (many - plus) + "n" * (_BLOCKS - many)


def _words(summary: ReportSummary) -> int:
    return summary.words.inserted + summary.words.deleted


def _command(summary: ReportSummary) -> str:
    """What shows the same in a terminal."""
    return f"vmrag diff {shlex.quote(f'{summary.base.name}...{summary.head.name}')}"


def _draw_plot(summary: ReportSummary) -> Any:
    """Return the plot of the history; empty if none was requested."""
    from markupsafe import Markup

    return Markup(plot.draw_history(summary.history) if summary.history else "")  # noqa: S704  only numbers and our own names


@functools.cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise extras.missing_extra_error(
            "report", "The page of a report is written by Jinja2, which is not installed."
        ) from None
    made = Environment(
        autoescape=True,
        finalize=_show,
        loader=FunctionLoader(read_part),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "beginning": _beginning,
        "day": _day,
        "plural": plural,
        "grouped": "{:,}".format,
        "signed": _signed,
    }
    made.globals |= {
        "blocks": draw_blocks,
        "counted": list_change_counts,
        "mended": has_improved,
        "piece_text": piece_text,
        "subject_and_body": wording.split_message,
        "brought": wording.describe_merged,
        "telling_title": rankings.choose_title,
        "text_that_differs": rankings.name_differing_text,
        "rank_rows": rankings.build_rank_rows,
        "hidden_suffix": hidden_suffix,
        "worsened": has_worsened,
        "version": vmrag_link.__version__,
        **_own("style", read_part("page.css")),
        **_own("script", read_part("page.js")),
    }
    return made


def _own(name: str, text: str) -> dict[str, str]:
    """A text of ours for the page, and its hash, by which the policy knows it."""
    from markupsafe import Markup

    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {name: Markup(text), f"{name}_hash": f"sha256-{digest}"}  # noqa: S704  a file of ours


def read_part(name: str) -> str:
    """A file of the page's."""
    return (resources.files(vmrag_link) / "ops" / "report" / "page" / name).read_text("utf-8")


def _show(value: Any) -> Any:
    """What is no markup of ours is a text, and can be seen."""
    return value if hasattr(value, "__html__") else terminal_text.escape_controls(str(value))


def _beginning(text: str) -> str:
    """Of a text that is meant to be short: a message, a query."""
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"


def _signed(number: int) -> str:
    return f"{number:+,}".replace("-", "−") if number else "0"  # noqa: RUF001  the sign, not a hyphen


def _day(date: str) -> str:
    """`2026-11-23T09:12:00Z` as a person writes it."""
    return f"{date[:10]} {date[11:16]} UTC"

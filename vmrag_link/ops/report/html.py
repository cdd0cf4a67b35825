"""Render a report as one HTML page without external files and without network access.

All contents of a report are untrusted. They become only texts of elements: `terminal_text` makes
invisible and reordering characters visible, and Jinja2 escapes the result. No attribute contains
any of them; ids are numbers. The content policy allows only the page's own style and script.
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

MAX_OPEN_DOCUMENTS = 30
MAX_OPEN_WORDS = 5_000
"""Up to so many documents, with so many changed words in total, are displayed unfolded."""

MAX_DOCUMENTS = 5_000
"""Maximum number of documents on a page. A browser needs seconds for more."""

MAX_SHOWN = 200
"""Maximum number of queries, findings and collections on a page."""

_BUFFERED_PIECES = 32
"""Number of pieces of the page that are passed on together."""

_MAX_MESSAGE_CHARACTERS = 2_000
"""Maximum number of characters of a message, a query or a finding."""

_BLOCKS = 5
"""Number of small squares that show the share of inserted and deleted words."""

_get_collection = attrgetter("collection")


def require_jinja() -> None:
    """Raise `IndexExtraMissing` if Jinja2 is not installed."""
    _create_environment()


def render_page(report: KnowledgeReport) -> Iterator[str]:
    """Return the page in pieces, which are rendered when they are read. Only the text of one
    document is in memory at a time.

    Raises `IndexExtraMissing` if Jinja2 is not installed.
    """
    summary = report.summary
    groups = group_documents(summary.documents, MAX_DOCUMENTS)
    few = len(summary.documents) <= MAX_OPEN_DOCUMENTS
    queries = rankings.list_changed_rankings(summary.queries)
    stream = (
        _create_environment()
        .get_template("page.html")
        .stream(
            report=summary,
            verdict=judge_report(summary),
            basis="" if summary.start == summary.base else describe_basis(summary),
            base=name_end(summary.base),
            start=name_end(summary.start),
            head=name_end(summary.head),
            groups=groups,
            sections=_generate_sections(groups, report.read_documents()),
            queries=queries,
            scores=rankings.list_changed_scores(summary.queries),
            answers=rankings.index_answers(summary.queries),
            shown=MAX_SHOWN,
            places=rankings.MAX_PLACES,
            renamed=rankings.list_renames(summary),
            few=few,
            open=few and summary.words.inserted + summary.words.deleted <= MAX_OPEN_WORDS,
            same_in_terminal=f"vmrag diff {shlex.quote(f'{summary.base.name}...{summary.head.name}')}",
            plot=_draw_plot(summary),
        )
    )
    stream.enable_buffering(_BUFFERED_PIECES)
    return stream


class Group(NamedTuple):
    """The documents of a collection that are on the page."""

    number: int
    name: str
    lines: Sequence[DocumentLine]
    left_out: int
    """Number of documents that are not on the page."""


def group_documents(documents: Sequence[DocumentLine], limit: int) -> list[Group]:
    """Group the documents by collection, numbered from 1.

    If there are more than `limit`, each collection has a share of the page. Large collections get
    what small ones do not need.
    """
    by_name = [(name, list(lines)) for name, lines in groupby(documents, _get_collection)]
    share = compute_fair_share([len(lines) for _, lines in by_name], limit)
    return [
        Group(number, name, lines[:share], len(lines[share:])) for number, (name, lines) in enumerate(by_name, start=1)
    ]


def _generate_sections(
    groups: Sequence[Group], documents: Iterator[ReportedDocument]
) -> Iterator[tuple[Group, Iterator[ReportedDocument]]]:
    """Yield the groups with their documents, which are read on iteration."""
    for group, (_, documents_of_group) in zip(groups, groupby(documents, _get_collection), strict=True):
        yield group, islice(documents_of_group, len(group.lines))


def piece_text(piece: Piece) -> str:
    """Return the text of a piece. A changed blank is drawn, because it is invisible. Other line
    ends become newlines.
    """
    if piece.op in ("insert", "delete") and piece.text.isspace():
        return piece.text.replace(" ", "·").replace("\t", "⇥\t").replace("\n", "↵\n")
    return piece.text.replace("\r\n", "\n")


def draw_blocks(line: DocumentLine) -> str:
    """Return five letters: `p` for the share of inserted words, `m` for deleted words, and `n` for
    the rest if little changed.
    """
    changed = line.words.inserted + line.words.deleted
    if not changed:
        return "n" * _BLOCKS
    coloured = min(_BLOCKS, changed)
    plus = round(coloured * line.words.inserted / changed)
    return "p" * plus + "m" * (coloured - plus) + "n" * (_BLOCKS - coloured)


def _draw_plot(summary: ReportSummary) -> Any:
    """Return the plot of the history; empty if none was requested."""
    from markupsafe import Markup

    return Markup(plot.draw_history(summary.history) if summary.history else "")  # noqa: S704  only numbers and fixed names


@functools.cache
def _create_environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise extras.missing_extra_error(
            "report", "the page of a report needs Jinja2, which is not installed."
        ) from None
    environment = Environment(
        autoescape=True,
        finalize=_make_visible,
        loader=FunctionLoader(read_part),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "beginning": _shorten_text,
        "day": _format_day,
        "plural": plural,
        "grouped": "{:,}".format,
        "signed": _format_signed,
    }
    environment.globals |= {
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
        **_embed_text("style", read_part("page.css")),
        **_embed_text("script", read_part("page.js")),
    }
    return environment


def _embed_text(name: str, text: str) -> dict[str, str]:
    """Return a trusted text for the page, and its hash for the content policy."""
    from markupsafe import Markup

    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {name: Markup(text), f"{name}_hash": f"sha256-{digest}"}  # noqa: S704  a file of this package


def read_part(name: str) -> str:
    """Read a file of the page."""
    return (resources.files(vmrag_link) / "ops" / "report" / "page" / name).read_text("utf-8")


def _make_visible(value: Any) -> Any:
    """Return markup unchanged, and make other values visible texts."""
    return value if hasattr(value, "__html__") else terminal_text.escape_controls(str(value))


def _shorten_text(text: str) -> str:
    """Shorten a text that should be short, such as a message or a query."""
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else f"{text[:_MAX_MESSAGE_CHARACTERS]}…"


def _format_signed(number: int) -> str:
    return f"{number:+,}".replace("-", "−") if number else "0"  # noqa: RUF001  the sign, not a hyphen


def _format_day(date: str) -> str:
    """Format `2026-11-23T09:12:00Z` for people."""
    return f"{date[:10]} {date[11:16]} UTC"

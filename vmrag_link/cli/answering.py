"""What the commands that search share: where an answer comes from, and whether another revision
than the pinned one may give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click

from vmrag_link import env
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.errors import FAILED_CHECK
from vmrag_link.ops.follow.provenance import KbBlock, SourceBlock


class ShownAnswer(NamedTuple):
    """What `emit` takes. `hint`: what to type to go on from it, once."""

    report: Any
    lines: Iterable[str]
    notes: Sequence[str]
    hint: str = ""


def strict_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--strict`, as `strict` of the function."""
    about = f"Exit with {FAILED_CHECK} instead of answering from another revision than the pinned one (also: {env.STRICT}=1)."
    return click.option("--strict", is_flag=True, default=env.strict, help=about)(function)


def emit(invocation: Invocation, report: Any, lines: Iterable[str], notes: Sequence[str]) -> None:
    """Print an answer. `notes`, why it is not what the code says now, come first: before all
    lines, or on standard error where a program reads the answer.
    """
    if invocation.as_json or invocation.verbosity < 0:
        for note in notes:
            output.complain(note, "warning:")
        invocation.emit(report)
    else:
        invocation.emit(report, [*(f"{output.style('warning:', fg='yellow')} {each}" for each in notes), *lines])


def standing_line(kb: KbBlock) -> str:
    """Where an answer comes from."""
    return output.style(place(kb), dim=True)


def place(kb: KbBlock) -> str:
    """The same without a look."""
    if not kb.versioned:
        return "from this machine alone, not versioned"
    state = "uncommitted documents included" if kb.dirty else "as committed"
    places = [f"revision {kb.commit[:7]}, {state}"] if kb.commit else []
    if kb.sources:
        places.append(_files_of(kb.sources))
    return f"from {', and '.join(places)}"


def _files_of(found: SourceBlock) -> str:
    counts = {"uncommitted": len(found.uncommitted), "removed": len(found.removed)}
    said = [f"{number} {what}" for what, number in counts.items() if number]
    untracked = f" ({found.untracked} untracked left out)" if found.untracked else ""
    return ", ".join([f"the files of {found.commit[:7] if found.commit else 'the work tree'}", *said]) + untracked

"""What the commands that search share: where an answer comes from, and whether another revision
than the pinned one may give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from vmrag_link import env
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.errors import FAILED_CHECK
from vmrag_link.ops.follow.provenance import KbBlock


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
    if not kb.versioned:
        return output.style("from this machine alone, not versioned", dim=True)
    state = "uncommitted documents included" if kb.dirty else "as committed"
    return output.style(f"from revision {kb.commit[:7]}, {state}", dim=True)

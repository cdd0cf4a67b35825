"""What the message of a revision says of a merge: whose words it keeps, which revisions it merged,
and which losses a person accepted.

All of it derives from the revisions that are merged, so equal merges give equal messages. A
revision is lost when nobody has it any more. The record of the loss travels as the knowledge does
that goes on from there. It counts only while the lost revision is not here: nobody drops by it what
there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vmrag_link.engines.base import Engine, own_revisions
from vmrag_link.merging.text import VERSION
from vmrag_link.models import RevisionInfo

MOST_SUBJECTS = 20
"""Revisions beside the last one whose subjects a message names."""

_MERGED = re.compile(r"^Vmrag-Base: (\w+)\nVmrag-Theirs: (\w+)$", re.MULTILINE)
_END = re.compile(r"^Vmrag-Base: \w+\nVmrag-Theirs: \w+(?:\nVmrag-(?:Merge|Decided-By): .*)*\Z", re.MULTILINE)


class Change(NamedTuple):
    """What a message's trailers say was merged: the difference between two revisions."""

    base: str
    theirs: str


def change_named(message: str) -> Change | None:
    """The change that the last trailers of a message name: the ones that we wrote."""
    found = _MERGED.findall(message)
    return Change(*found[-1]) if found else None


def without_trailers(message: str) -> str:
    """What a message says besides the trailers of ours at its end."""
    return _END.sub("", message.strip()).strip()


def of_merge(*, base: str, ours: str, theirs: str) -> str:
    return f"Merge {theirs[:12]} into {ours[:12]}\n\n{_trailers(base, theirs)}"


def of_replay(engine: Engine, *, base: str, theirs: str, decided_by: str = "") -> str:
    """The message of theirs, whose change since the base becomes a revision elsewhere.

    One code commit may have moved its pin by several revisions. It names the last one, so that
    one's words are kept whole; of the others the subjects, by which they are searched for. Where
    theirs is what the base was made of, the change is a revert.
    """
    if engine.is_ancestor(theirs, base):
        said, others = f'Revert "{_subject(engine.info(base))}"', []
    else:
        last, *others = reversed(own_revisions(engine, theirs, base))
        said = without_trailers(last.message)
        others = [each for each in others if len(each.parents) == 1]
        if others:
            said += "\n\n" + "\n".join(_list(last, others))
    lost = _unsaid_losses(said, others)
    return f"{said}\n\n{loss_trailers(lost)}{_trailers(base, theirs, decided_by)}".lstrip()


def _unsaid_losses(said: str, others: list[RevisionInfo]) -> Iterator[str]:
    """The losses that the other revisions accept, whose messages are not kept."""
    known = accepted_losses(said)
    yield from dict.fromkeys(each for info in others for each in accepted_losses(info.message) if each not in known)


def _trailers(base: str, theirs: str, decided_by: str = "") -> str:
    decided = f"Vmrag-Decided-By: {decided_by}\n" if decided_by else ""
    return f"Vmrag-Base: {base}\nVmrag-Theirs: {theirs}\nVmrag-Merge: {VERSION}\n{decided}"


def _list(last: RevisionInfo, others: list[RevisionInfo]) -> Iterator[str]:
    yield "Replayed with it:"
    for each in others[:MOST_SUBJECTS]:
        yield f"- {_subject(each)}" + (f" ({each.author})" if each.author != last.author else "")
    if len(others) > MOST_SUBJECTS:
        yield f"- and {len(others) - MOST_SUBJECTS} more"


def _subject(info: RevisionInfo) -> str:
    return next(iter(info.message.strip().splitlines()), "") or info.revision[:12]


_LOST = re.compile(r"^Vmrag-Lost: (\w+)$", re.MULTILINE)


def accepted_losses(message: str) -> list[str]:
    """The revisions whose loss a message accepts."""
    return list(dict.fromkeys(_LOST.findall(message)))


def loss_trailers(lost: Iterable[str]) -> str:
    return "".join(f"Vmrag-Lost: {each}\n" for each in lost)


def accepts_loss(engine: Engine, revision: str, lost: str) -> bool:
    """Whether a revision that is here, or one that it contains, accepts the loss of one that is
    not.
    """
    if engine.has_revision(lost) or not engine.has_revision(revision):
        return False
    return any(lost in accepted_losses(info.message) for info in engine.log(revision))


def record_loss(engine: Engine, revision: str, *, message: str, author: str, date: str) -> str:
    """A revision with the documents of another one, and a message that records a loss."""
    with engine.writing("accept a loss"):
        made = engine.recreate([revision], [], message=message, author=author, date=date)
        engine.anchor(made, reason="a loss was accepted")
    return made

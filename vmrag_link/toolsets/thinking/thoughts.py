"""A thought as a document: its id, its metadata, its place in a session.

A session is a trunk of numbered thoughts, and branches that begin at one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from vmrag_link.models import At, Document, Record, metadata_of
from vmrag_link.ops.system.collections import THOUGHTS
from vmrag_link.workspace import DocumentStore

CUSTOM = "custom:"
"""How keys begin that the client adds to a thought's metadata."""

_Number = Annotated[int, msgspec.Meta(ge=1)]


class ThoughtPlace(Record, frozen=True):
    """What a thought's metadata holds, under these names. `branch_id` is empty on the trunk;
    `branch_from_thought` is the trunk's thought at which the branch begins, 0 if none is known.
    """

    session_id: Annotated[str, msgspec.Meta(min_length=1)]
    thought_number: _Number
    total_thoughts: _Number
    next_thought_needed: bool = False
    branch_id: str = ""
    branch_from_thought: Annotated[int, msgspec.Meta(ge=0)] = 0
    timestamp: str = ""

    @property
    def order(self) -> tuple[str, int]:
        """Sorts the trunk first, then each branch."""
        return (self.branch_id, self.thought_number)


class Thought(Record, frozen=True):
    """`custom`: what the client added to it."""

    id: str
    place: ThoughtPlace
    content: str
    custom: dict[str, Any]


def thought_id(session: str, number: int, branch: str) -> str:
    plain = f"{_prefix(session)}{number}"
    return f"{plain}_branch_{branch}" if branch else plain


def metadata(place: ThoughtPlace, custom: Mapping[str, Any]) -> dict[str, Any]:
    return msgspec.structs.asdict(place) | {f"{CUSTOM}{key}": value for key, value in custom.items()}


def parse(doc_id: str, content: str, metadata: Mapping[str, Any]) -> Thought | None:
    """None for a document that is no thought: any tool may add some."""
    try:
        place = msgspec.convert(metadata, type=ThoughtPlace)
    except msgspec.ValidationError:
        return None
    if doc_id != thought_id(place.session_id, place.thought_number, place.branch_id):
        return None
    custom = {key.removeprefix(CUSTOM): value for key, value in metadata.items() if key.startswith(CUSTOM)}
    return Thought(doc_id, place, content, custom)


def thought_of(document: Document) -> Thought | None:
    return parse(document.doc_id, document.content, metadata_of(document))


def of_sessions(ws: DocumentStore, at: At, sessions: Iterable[str]) -> list[Thought]:
    """The thoughts of some sessions, the trunk by number and then each branch; none where nothing
    was ever thought.
    """
    wanted = set(sessions)
    ids = [doc_id for session in wanted for doc_id in ws.engine.ids(at, THOUGHTS, prefix=_prefix(session))]
    found = map(thought_of, ws.engine.documents(at, collection=THOUGHTS, ids=ids)) if ids else ()
    return sorted(
        (each for each in found if each and each.place.session_id in wanted),
        key=lambda each: (each.place.session_id, *each.place.order),
    )


def _prefix(session: str) -> str:
    return f"thought_{session}_"

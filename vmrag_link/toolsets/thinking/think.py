"""Thoughts as documents, and how to store one at its place in a session.

A session is a trunk of numbered thoughts, and branches that begin at one of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from vmrag_link import clock
from vmrag_link.documents.import_base import find_id_problem
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import LONGEST_TEXT, At, Document, Record, content_hash, parse_metadata
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.stores import THOUGHTS, build_document
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import Planned, WriteResult

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore

CUSTOM = "custom:"
"""Prefix of keys that the client adds to a thought's metadata."""

MAX_SHOWN_THOUGHTS = 5
"""Maximum number of previous thoughts in a report."""

MAX_SHOWN_CHARS = 300
"""Maximum number of characters of a previous thought."""

_Number = Annotated[int, msgspec.Meta(ge=1)]


class ThinkingSettings(Record, frozen=True):
    threshold: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            le=1,
            description="Default minimum similarity of thoughts and sessions. 0: the default of the embedding model.",
        ),
    ] = 0.0


def load_settings(ws: Workspace) -> ThinkingSettings:
    settings: ThinkingSettings = ws.section("thinking", ThinkingSettings).config.thinking
    return settings


class ThoughtPlace(Record, frozen=True):
    """The values of a thought's metadata, under these names.

    `branch_id` is empty on the trunk. `branch_from_thought` is the number of the trunk's thought at
    which the branch begins, or 0. `custom_data` are the client's own keys, which are stored with
    the prefix `CUSTOM`.
    """

    session_id: Annotated[str, msgspec.Meta(min_length=1)]
    thought_number: _Number
    total_thoughts: _Number
    next_thought_needed: bool = False
    branch_id: str = ""
    branch_from_thought: Annotated[int, msgspec.Meta(ge=0)] = 0
    timestamp: str = ""
    custom_data: Mapping[str, Any] = {}

    @property
    def order(self) -> tuple[str, int]:
        """Sorts the trunk first, then each branch."""
        return (self.branch_id, self.thought_number)


class Thought(Record, frozen=True, rename={"place": "metadata"}):
    id: str
    content: str
    place: ThoughtPlace


def thought_id(session: str, number: int, branch: str) -> str:
    plain = f"{_id_prefix(session)}{number}"
    return f"{plain}_branch_{branch}" if branch else plain


def build_metadata(place: ThoughtPlace) -> dict[str, Any]:
    fields = msgspec.structs.asdict(place)
    return fields | {f"{CUSTOM}{key}": value for key, value in fields.pop("custom_data").items()}


def parse_thought(doc_id: str, content: str, metadata: Mapping[str, Any]) -> Thought | None:
    """Return the thought of a document; None for another document, which any tool can add."""
    custom = {key.removeprefix(CUSTOM): value for key, value in metadata.items() if key.startswith(CUSTOM)}
    try:
        place = msgspec.convert({**metadata, "custom_data": custom}, type=ThoughtPlace)
    except msgspec.ValidationError:
        return None
    if doc_id != thought_id(place.session_id, place.thought_number, place.branch_id):
        return None
    return Thought(doc_id, content, place)


def thought_of(document: Document) -> Thought | None:
    return parse_thought(document.doc_id, document.content, parse_metadata(document))


def read_sessions(ws: DocumentStore, at: At, sessions: Iterable[str]) -> list[Thought]:
    """Return the thoughts of some sessions: the trunk by number, then each branch."""
    session_names = set(sessions)
    ids = [
        doc_id for session in session_names for doc_id in ws.engine.list_ids(at, THOUGHTS, prefix=_id_prefix(session))
    ]
    thoughts = map(thought_of, ws.engine.read_documents(at, collection=THOUGHTS, ids=ids)) if ids else ()
    return sorted(
        (thought for thought in thoughts if thought and thought.place.session_id in session_names),
        key=lambda thought: (thought.place.session_id, *thought.place.order),
    )


def _id_prefix(session: str) -> str:
    return f"thought_{session}_"


class NewThought(Record, frozen=True):
    """A new thought.

    An empty `session_id` starts a session. `branch_from_thought` 0: on the trunk, or later on the
    branch.
    """

    thought: Annotated[str, msgspec.Meta(description="text of the thought", max_length=LONGEST_TEXT)]
    thought_number: Annotated[int, msgspec.Meta(description="number of the thought", ge=1)]
    total_thoughts: Annotated[int, msgspec.Meta(description="estimated number of thoughts", ge=1)]
    session_id: Annotated[str, msgspec.Meta(description="id of the session; default: a new one")] = ""
    branch_from_thought: Annotated[int, msgspec.Meta(description="thought where a branch begins", ge=0)] = 0
    branch_id: Annotated[str, msgspec.Meta(description="name of the branch")] = ""
    next_thought_needed: Annotated[bool, msgspec.Meta(description="true if more thoughts follow")] = False
    custom_data: Annotated[Mapping[str, Any], msgspec.Meta(description="other data")] = {}


class PreviousThought(Record, frozen=True):
    """An earlier thought. `content` has its first 300 characters."""

    id: str
    thought_number: int
    branch_id: str
    content: str


class ThoughtReport(Record, frozen=True):
    """The stored thought.

    `previous_thoughts` are the last five of the `previous_thoughts_count` thoughts that lead to it.
    `replaced`: it replaced a different thought at its place.
    """

    session_id: str
    thought_id: str
    thought_number: int
    total_thoughts: int
    branch_id: str
    next_thought_needed: bool
    previous_thoughts_count: int
    previous_thoughts: list[PreviousThought]
    replaced: bool


def store_thought(ws: Workspace, new: NewThought) -> WriteResult[ThoughtReport]:
    """Store a thought.

    An equal thought changes nothing; a different thought replaces the earlier one.

    Raises `UsageInvalid` for an impossible place, `JsonInvalid` for values of `custom_data` that
    cannot be stored, `EmbeddingError`, and the errors of `write_rows`.
    """
    session = new.session_id or str(uuid.uuid4())
    branch = new.branch_id or (f"branch-{uuid.uuid4().hex[:8]}" if new.branch_from_thought else "")
    doc_id = thought_id(session, new.thought_number, branch)
    id_problem = find_id_problem(doc_id)
    if id_problem:
        raise UsageInvalid(
            f"the thought's id {doc_id[:80]!r} {id_problem}.",
            hint="use a shorter session_id and branch_id, or leave them out",
            parameter="session_id",
        )

    store = stores.find_tools_store(ws)

    def plan_thought(at: At) -> Planned[ThoughtReport]:
        collection, is_new = stores.find_or_define(store, at, stores.THOUGHTS)
        session_thoughts = [] if is_new else read_sessions(store, at, [session])
        place = ThoughtPlace(
            session_id=session,
            thought_number=new.thought_number,
            total_thoughts=new.total_thoughts,
            next_thought_needed=new.next_thought_needed,
            branch_id=branch,
            branch_from_thought=_find_branch_start(session_thoughts, new, branch),
            timestamp=clock.now(),
            custom_data=dict(new.custom_data),
        )
        before = None if is_new else store.engine.find_document(at, collection.name, doc_id)
        row = build_document(collection.name, doc_id, new.thought, build_metadata(place), before=before)
        old = thought_of(before) if before else None
        if old and (old.place.session_id, old.place.branch_id) != (session, branch):
            raise _build_id_taken(doc_id, old)
        thought = Thought(doc_id, new.thought, place)
        previous = _list_previous(session_thoughts, place)
        if before and old and content_hash(new.thought) == before.content_hash and _is_same(old, thought):
            return Planned(None, _build_report(old, previous, replaced=False))
        write = stores.prepare_write(store, [stores.CollectionPut(collection, is_new, [row])])
        return Planned(write, _build_report(thought, previous, replaced=before is not None))

    return writing.write_rows(store, plan_thought, "write down a thought")


def _build_report(thought: Thought, previous: Sequence[Thought], *, replaced: bool) -> ThoughtReport:
    place = thought.place
    return ThoughtReport(
        session_id=place.session_id,
        thought_id=thought.id,
        thought_number=place.thought_number,
        total_thoughts=place.total_thoughts,
        branch_id=place.branch_id,
        next_thought_needed=place.next_thought_needed,
        previous_thoughts_count=len(previous),
        previous_thoughts=[
            PreviousThought(
                earlier.id, earlier.place.thought_number, earlier.place.branch_id, earlier.content[:MAX_SHOWN_CHARS]
            )
            for earlier in previous[-MAX_SHOWN_THOUGHTS:]
        ],
        replaced=replaced,
    )


def _find_branch_start(session: Sequence[Thought], new: NewThought, branch: str) -> int:
    """Return the number of the thought at which the branch begins. Raises `UsageInvalid`."""
    if not branch:
        return 0
    others = [thought.place for thought in session if thought.place.branch_id == branch]
    start = next((place.branch_from_thought for place in others if place.branch_from_thought), 0)
    if new.branch_from_thought and start not in (0, new.branch_from_thought):
        raise UsageInvalid(
            f"branch {branch!r} begins at thought {start}, not at {new.branch_from_thought}.",
            hint="leave branch_from_thought out, or use another branch_id",
            parameter="branch_from_thought",
            value=new.branch_from_thought,
        )
    trunk = {thought.place.thought_number for thought in session if not thought.place.branch_id}
    if new.branch_from_thought and new.branch_from_thought not in trunk:
        raise UsageInvalid(
            f"the session has no thought {new.branch_from_thought} from which a branch could begin.",
            hint="store that thought first, or call chroma_get_session_summary to list the stored thoughts",
            parameter="branch_from_thought",
            value=new.branch_from_thought,
        )
    return new.branch_from_thought or start


def _list_previous(session: Sequence[Thought], place: ThoughtPlace) -> list[Thought]:
    """Return the thoughts that lead to a place: the trunk until the branch begins, and then the
    branch.
    """
    last = place.branch_from_thought if place.branch_id else place.thought_number - 1
    trunk = [thought for thought in session if not thought.place.branch_id and thought.place.thought_number <= last]
    branch = [
        thought
        for thought in session
        if place.branch_id
        and thought.place.branch_id == place.branch_id
        and thought.place.thought_number < place.thought_number
    ]
    return [*trunk, *branch]


def _is_same(old: Thought, new: Thought) -> bool:
    """Return whether two thoughts differ at most in their times."""
    return msgspec.structs.replace(old, place=msgspec.structs.replace(old.place, timestamp=new.place.timestamp)) == new


def _build_id_taken(doc_id: str, old: Thought) -> UsageInvalid:
    return UsageInvalid(
        f"session {old.place.session_id!r} already has a thought with the id {doc_id!r}.",
        hint="use another session_id or branch_id",
        parameter="session_id",
    )

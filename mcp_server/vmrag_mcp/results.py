"""What every successful answer of a tool holds.

Most tools return a `ToolAnswer`: the record that their operation reports is the result. A record of
its own, beside the tool, is for an answer that no operation reports. A field that is not always
there is `T | UnsetType` with the default `UNSET`, and its `Meta` says when it is there.
`reference.answer_schema` derives the schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Generic, Self, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType, structs

from vmrag_link import terminal_text
from vmrag_link.models import Record

if TYPE_CHECKING:  # a server answers `tools/list` before this is imported
    from vmrag_link.workspace.follow.provenance import KbBlock, SourceBlock

Where = Meta(description="in_sync is false, or the tool shows the status")
Copies = Meta(description="documents of this answer that are copies of files which git tracks")
OfFiles = Meta(description="files of the tree can answer, too")
Some = Meta(description="there are any; at most 20")
Unversioned = Meta(description="false: no revision, what this machine alone holds (system.versioned)")


class ToolResult(Record, frozen=True, kw_only=True):
    """Base of all results. `message`: a sentence for people, after the fields of the subclass."""

    whole_kb: ClassVar[bool] = False
    """Whether the answer says in any case in which work tree it stands."""

    message: str


R = TypeVar("R", bound=Record)


class DerivedRecord(Record, frozen=True):
    """A part of an answer whose fields are attributes of what an operation reports. `rename` says
    under which keys clients know them.
    """

    @classmethod
    def from_report(cls, report: object) -> Self:
        return msgspec.convert(report, cls, from_attributes=True)


class ToolAnswer(ToolResult, Generic[R], frozen=True):
    """The result is the report of an operation: its fields, and then the message."""

    report: R


class ServerResult(ToolResult, frozen=True, kw_only=True):
    """Of a tool about the server itself: it comes from no knowledge, and has no block `kb`."""


class TextResult(ToolResult, frozen=True, kw_only=True):
    """Plain text of many lines, which is the whole answer of an essential tool.

    Some clients show a model only structured content and others only text, and all cut one long
    line of JSON. These tools therefore answer with text alone.
    """

    text: str = ""
    """The lines above the message. Text of documents is inside a fence (`fenced`)."""


_LONGEST_FENCE = re.compile(r"`{3,}")


def fence_text(text: str) -> str:
    """Return a document's text between fences that no line of it can close."""
    longest = max((len(run) for run in _LONGEST_FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{terminal_text.escape_controls(text)}\n{fence}"


MOST_PATHS = 20
"""Of each list of files that an answer's `kb` names."""


class SourcesAnswer(Record, frozen=True):
    """The files that are searched next to a knowledge base, with at most `MOST_PATHS` paths.

    Made from `workspace.follow.provenance.SourceBlock`.
    """

    commit: str | None
    collections: list[str]
    uncommitted: Annotated[list[str] | UnsetType, Some] = UNSET
    uncommitted_count: Annotated[int | UnsetType, Meta(description="uncommitted is there")] = UNSET
    removed: Annotated[list[str] | UnsetType, Some] = UNSET
    untracked: Annotated[int | UnsetType, Meta(description="git does not track all files")] = UNSET
    missing: Annotated[list[str] | UnsetType, Some] = UNSET
    failed: Annotated[list[str] | UnsetType, Some] = UNSET
    unavailable: Annotated[dict[str, str] | UnsetType, Meta(description="not all collections can be read")] = UNSET

    @classmethod
    def from_block(cls, found: SourceBlock) -> SourcesAnswer:
        return cls(
            found.commit,
            list(found.collections),
            uncommitted=_some(found.uncommitted),
            uncommitted_count=len(found.uncommitted) or UNSET,
            removed=_some(found.removed),
            untracked=found.untracked or UNSET,
            missing=_some(found.missing),
            failed=_some(found.failed),
            unavailable=dict(found.unavailable) or UNSET,
        )


def _some(paths: Sequence[str]) -> list[str] | UnsetType:
    return list(paths[:MOST_PATHS]) or UNSET


class KbAnswer(Record, frozen=True):
    """The knowledge that an answer comes from (`workspace.follow.provenance.KbBlock`)."""

    branch: str | None
    commit: str
    dirty: bool
    in_sync: bool
    worktree: Annotated[str | UnsetType, Where] = UNSET
    git_head: Annotated[str | UnsetType | None, Where] = UNSET
    versioned: Annotated[bool | UnsetType, Unversioned] = UNSET
    copies: Annotated[list[str] | UnsetType, Copies] = UNSET
    sources: Annotated[SourcesAnswer | UnsetType, OfFiles] = UNSET

    @classmethod
    def from_block(cls, kb: KbBlock, *, whole: bool, copies: Sequence[str] = ()) -> KbAnswer:
        versioned, stored = UNSET if kb.versioned else False, list(copies) or UNSET
        files = SourcesAnswer.from_block(kb.sources) if kb.sources else UNSET
        short = cls(kb.branch, kb.commit, kb.dirty, kb.in_sync, versioned=versioned, copies=stored, sources=files)
        return structs.replace(short, worktree=kb.worktree, git_head=kb.git_head) if whole or not kb.in_sync else short


class ToolWarning(Record, frozen=True):
    """What was worth saying although nothing failed."""

    code: str
    message: str

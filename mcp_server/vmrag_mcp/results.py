"""The common fields of successful answers of tools.

Most tools return a `ToolAnswer`: the report of their operation is the result. If no operation
reports an answer, the tool has a record of its own. An optional field has the type `T | UnsetType`
and the default `UNSET`, and its `Meta` tells when it is present. `answer_schemas` derives the
schema.
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
Copies = Meta(description="documents of this answer that are copies of tracked files")
OfFiles = Meta(description="files of the working tree can also answer")
Some = Meta(description="the list is not empty; at most 20")
Unversioned = Meta(description="false: the answer is from data of this machine without revisions (system.versioned)")


class ToolResult(Record, frozen=True, kw_only=True):
    """Base of all results. `message` is a sentence for people, after the fields of the subclass."""

    whole_kb: ClassVar[bool] = False
    """True if `kb` always names the work tree and its git commit."""

    message: str


R = TypeVar("R", bound=Record)


class DerivedRecord(Record, frozen=True):
    """A part of an answer whose fields are attributes of an operation's report.

    The parameter `rename` of msgspec maps them to the keys for clients.
    """

    @classmethod
    def from_report(cls, report: object) -> Self:
        return msgspec.convert(report, cls, from_attributes=True)


class ToolAnswer(ToolResult, Generic[R], frozen=True):
    """The result is the report of an operation: its fields, and then the message."""

    report: R


class ServerResult(ToolResult, frozen=True, kw_only=True):
    """The result of a tool about the server itself. It has no block `kb`."""


class TextResult(ToolResult, frozen=True, kw_only=True):
    """Plain text of many lines, which is the whole answer of an essential tool.

    Some clients show a model only structured content and others only text, and all cut one long
    line of JSON. These tools therefore answer with text alone.
    """

    text: str = ""
    """The lines above the message. Texts of documents are inside a fence (`fence_text`)."""


_FENCE = re.compile(r"`{3,}")


def fence_text(text: str) -> str:
    """Return a document's text between fences that no line of the text can close."""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{terminal_text.escape_controls(text)}\n{fence}"


MAX_PATHS = 20
"""Maximum length of each list of files in an answer's `kb`."""


class SourcesAnswer(Record, frozen=True):
    """The files that answer next to a knowledge base (`follow.provenance.SourceBlock`).

    Lists have at most `MAX_PATHS` paths.
    """

    commit: str | None
    collections: list[str]
    uncommitted: Annotated[list[str] | UnsetType, Some] = UNSET
    uncommitted_count: Annotated[int | UnsetType, Meta(description="uncommitted is present")] = UNSET
    removed: Annotated[list[str] | UnsetType, Some] = UNSET
    untracked: Annotated[int | UnsetType, Meta(description="git does not track all files")] = UNSET
    missing: Annotated[list[str] | UnsetType, Some] = UNSET
    failed: Annotated[list[str] | UnsetType, Some] = UNSET
    unavailable: Annotated[dict[str, str] | UnsetType, Meta(description="not all collections can be read")] = UNSET

    @classmethod
    def from_block(cls, block: SourceBlock) -> SourcesAnswer:
        return cls(
            block.commit,
            list(block.collections),
            uncommitted=_first_paths(block.uncommitted),
            uncommitted_count=len(block.uncommitted) or UNSET,
            removed=_first_paths(block.removed),
            untracked=block.untracked or UNSET,
            missing=_first_paths(block.missing),
            failed=_first_paths(block.failed),
            unavailable=dict(block.unavailable) or UNSET,
        )


def _first_paths(paths: Sequence[str]) -> list[str] | UnsetType:
    return list(paths[:MAX_PATHS]) or UNSET


class KbAnswer(Record, frozen=True):
    """The origin of an answer in the knowledge base (`follow.provenance.KbBlock`)."""

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
        answer = cls(
            kb.branch,
            kb.commit,
            kb.dirty,
            kb.in_sync,
            versioned=UNSET if kb.versioned else False,
            copies=list(copies) or UNSET,
            sources=SourcesAnswer.from_block(kb.sources) if kb.sources else UNSET,
        )
        if kb.in_sync and not whole:
            return answer
        return structs.replace(answer, worktree=kb.worktree, git_head=kb.git_head)


class ToolWarning(Record, frozen=True):
    """A problem of a call that did not fail."""

    code: str
    message: str

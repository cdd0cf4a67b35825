"""What every successful answer of a tool holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType, structs

from vmrag_link.models import Record

if TYPE_CHECKING:  # a server answers `tools/list` before this is imported
    from vmrag_link.ops.follow.provenance import KbBlock

Where = Meta(description="in_sync is false, or the tool shows the status")
Stale = Meta(description="documents of this answer whose files were changed since they were imported")
Unversioned = Meta(description="false: no revision, what this machine alone holds (system.versioned)")


class ToolResult(Record, frozen=True, kw_only=True):
    """Base of all results. `message`: a sentence for people, after the fields of the subclass."""

    whole_kb: ClassVar[bool] = False
    """Whether the answer says in any case in which work tree it stands."""

    message: str


class ServerResult(ToolResult, frozen=True, kw_only=True):
    """Of a tool about the server itself: it comes from no knowledge, and has no block `kb`."""


class KbAnswer(Record, frozen=True):
    """The knowledge that an answer comes from (`ops.follow.provenance.KbBlock`)."""

    branch: str | None
    commit: str
    dirty: bool
    in_sync: bool
    worktree: Annotated[str | UnsetType, Where] = UNSET
    git_head: Annotated[str | UnsetType | None, Where] = UNSET
    versioned: Annotated[bool | UnsetType, Unversioned] = UNSET
    stale: Annotated[list[str] | UnsetType, Stale] = UNSET

    @classmethod
    def of(cls, kb: KbBlock, *, whole: bool, stale: Sequence[str] = ()) -> KbAnswer:
        versioned, outdated = UNSET if kb.versioned else False, list(stale) or UNSET
        short = cls(kb.branch, kb.commit, kb.dirty, kb.in_sync, versioned=versioned, stale=outdated)
        return structs.replace(short, worktree=kb.worktree, git_head=kb.git_head) if whole or not kb.in_sync else short


class ToolWarning(Record, frozen=True):
    """What was worth saying although nothing failed."""

    code: str
    message: str

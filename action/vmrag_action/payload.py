"""The parts of an event's payload that vmrag uses.

A payload contains untrusted text. It is read up to a size and by types, and hashes are validated.
Titles and texts are never read, and the branch names of heads only to update these branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from vmrag_link import env
from vmrag_link.errors import UsageInvalid
from vmrag_link.file_access import read_regular
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.models import Record

MAX_PAYLOAD_BYTES = 32_000_000
"""Maximum size of a payload. GitHub sends at most 25 MB."""

Hash = Annotated[str, msgspec.Meta(pattern=rf"\A{COMMIT_NAME}\Z")]
Branch = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}\Z")]
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_MEMBER_ASSOCIATIONS = ("OWNER", "MEMBER", "COLLABORATOR")
_Payload = TypeVar("_Payload", bound=Record)


class HostedRepository(Record, frozen=True):
    """A repository on GitHub: `owner/name`."""

    full_name: _Name


class BaseEnd(Record, frozen=True):
    ref: Branch
    sha: Hash
    repo: HostedRepository


class HeadEnd(Record, frozen=True):
    """The head of a pull request.

    A deleted fork has no `repo`. `ref` is its branch, an untrusted text of any form.
    """

    ref: str
    sha: Hash
    repo: HostedRepository | None


class Author(Record, frozen=True):
    """The author of a pull request.

    `type` is `User`, or `Bot` for an App that the repository installed.
    """

    login: str = ""
    type: str = ""


class PullRequest(Record, frozen=True):
    """A pull request.

    `author_association` is the relation of its author to the repository, in GitHub's terms. A
    deleted account has no `user`.
    """

    number: _Number
    base: BaseEnd
    head: HeadEnd
    state: str = ""
    merged: bool | None = None
    merge_commit_sha: Hash | None = None
    author_association: str = ""
    user: Author | None = None

    @property
    def is_by_member(self) -> bool:
        """True if a member of the repository, or its App, opened the pull request.

        Every user with read access can propose to merge two existing branches. GitHub reports
        CONTRIBUTOR for members of the organization whose membership is private; `GitHub.can_write`
        knows them.
        """
        return self.author_association in _MEMBER_ASSOCIATIONS or (self.user is not None and self.user.type == "Bot")


class PullRequestEvent(Record, frozen=True):
    """The payload of `pull_request` and similar events."""

    pull_request: PullRequest
    action: str = ""

    @property
    def landed_commit(self) -> str | None:
        """The commit that a merge, a squash or a rebase added to the base, after it happened."""
        request = self.pull_request
        return request.merge_commit_sha if self.action == "closed" and request.merged else None


class CompletedRun(Record, frozen=True):
    """A run of another workflow, with its head.

    `event` is the event that caused the run.
    """

    id: _Number
    event: str
    head_sha: Hash
    head_repository: HostedRepository | None = None


class WorkflowRunEvent(Record, frozen=True):
    """The payload of `workflow_run`."""

    workflow_run: CompletedRun


class MergeGroup(Record, frozen=True):
    base_sha: Hash
    head_sha: Hash


class MergeGroupEvent(Record, frozen=True):
    """The payload of `merge_group`."""

    merge_group: MergeGroup


class OwnRepository(Record, frozen=True):
    default_branch: Branch
    fork: bool = False


class RepositoryEvent(Record, frozen=True):
    """The part of a payload that nearly all events have."""

    repository: OwnRepository


class PushEvent(Record, frozen=True):
    """The payload of `push`.

    `before` is zeros for a new branch or tag.
    """

    before: Hash
    forced: bool
    repository: OwnRepository


def read_event(environ: Mapping[str, str], kind: type[_Payload]) -> _Payload:
    """Read the payload of this job's event.

    Raises `UsageInvalid` for another form.
    """
    try:
        content = read_regular(Path(environ.get("GITHUB_EVENT_PATH", "")), MAX_PAYLOAD_BYTES + 1)
        if len(content) > MAX_PAYLOAD_BYTES:
            raise payload_error(f"the payload has more than {MAX_PAYLOAD_BYTES // 1_000_000} MB")
        return msgspec.json.decode(content, type=kind)
    except OSError as error:
        raise payload_error(f"GITHUB_EVENT_PATH names no file that can be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise payload_error(f"the payload is not that of such an event ({error})") from error


def is_fork_job(environ: Mapping[str, str]) -> bool:
    """Return whether the job's own repository is a fork, according to its event."""
    try:
        return read_event(environ, RepositoryEvent).repository.fork
    except UsageInvalid:
        return False


def read_repository_name(environ: Mapping[str, str]) -> str:
    """Return `owner/name` of the job's own repository.

    Raises `UsageInvalid`.
    """
    try:
        return msgspec.convert(environ.get("GITHUB_REPOSITORY", ""), _Name)
    except msgspec.ValidationError as error:
        raise payload_error("GITHUB_REPOSITORY is not the name of a repository") from error


def read_run_number(environ: Mapping[str, str]) -> int:
    """Return the number of this job's run.

    Raises `UsageInvalid`.
    """
    try:
        return msgspec.convert(environ.get("GITHUB_RUN_ID", ""), _Number, strict=False)
    except msgspec.ValidationError as error:
        raise payload_error("GITHUB_RUN_ID is not the number of a run") from error


def read_server(environ: Mapping[str, str]) -> str:
    """Return the address of the job's host, which can be a company's own server."""
    return env.read_github_server(environ) or "https://github.com"


def payload_error(reason: str) -> UsageInvalid:
    return UsageInvalid(
        f"could not find the commits of this job: {reason}.",
        hint="run it as a step of a job of GitHub Actions, or run 'vmrag verify --pull-request BASE HEAD' elsewhere",
    )

"""Which commits an event of GitHub's is about, and how far what they bring is trusted.

| event                 | base                       | head           | whose settings count     |
|-----------------------|----------------------------|----------------|--------------------------|
| `pull_request`        | first parent of the merge  | its second one | the base's               |
| `pull_request_target` | tip of the base branch     | the head's     | those of `GITHUB_SHA`    |
| `merge_group`         | `base_sha`                 | `head_sha`     | the base's               |
| `push`                | `before`, if there was one | `GITHUB_SHA`   | its own, if protected    |
| `schedule`, by hand   | none                       | `GITHUB_SHA`   | its own, if protected    |
| any other             | none                       | `GITHUB_SHA`   | nobody's                 |

The payload holds what strangers wrote. It is read up to a size, by types, and a hash is nothing but
a hash. Titles, texts and branch names of heads are never read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from vmrag_action import deepen
from vmrag_link import env
from vmrag_link.errors import HistoryMissing, UsageInvalid
from vmrag_link.git import objects, plumbing, transfer
from vmrag_link.models import Record
from vmrag_link.ops.checks.verify_commits import Fork
from vmrag_link.paths import Places, read_regular

MOST_BYTES = 32_000_000
"""Of a payload; GitHub sends 25 MB at most."""

_Hash = Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}\Z")]
_Branch = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_SERVER = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?")

_BRANCHES = "refs/heads/"
_MERGED = ("pull_request", "pull_request_review", "pull_request_review_comment")
"""The events whose commit is a merge that GitHub made to try it out."""

_OF_WRITERS = ("push", "schedule", "workflow_dispatch")
"""The events that only people cause who may write to the repository."""


class _Repository(Record, frozen=True):
    full_name: _Name


class _Base(Record, frozen=True):
    ref: _Branch
    sha: _Hash
    repo: _Repository


class _Head(Record, frozen=True):
    """`repo` None: the fork was deleted."""

    sha: _Hash
    repo: _Repository | None


class _PullRequest(Record, frozen=True):
    number: _Number
    base: _Base
    head: _Head
    merged: bool | None = None
    merge_commit_sha: _Hash | None = None


class _OfPullRequest(Record, frozen=True):
    pull_request: _PullRequest
    action: str = ""


class _Group(Record, frozen=True):
    base_sha: _Hash
    head_sha: _Hash


class _OfGroup(Record, frozen=True):
    merge_group: _Group


class _Own(Record, frozen=True):
    default_branch: _Branch


class _OfOwn(Record, frozen=True):
    repository: _Own


class _OfPush(Record, frozen=True):
    before: _Hash
    forced: bool
    repository: _Own


class Comparison(Record, frozen=True):
    """What an event is about. `base` None: there is nothing that `head` follows but its parents.

    `base_name`: how people call the base of a pull request; empty for other events. `fork`: from
    where a pull request comes, if not from the same repository.

    `settings_from`: the commit whose `.vmrag.yaml` stands for the person; None: what the workflow
    says is all that counts. It is here. `trusted`: the texts are those of people who may write, so
    secrets and services may be used. `saves`: caches may be written, too. `checked_out`: the work
    tree has the head, or its merge.
    """

    event: str
    base: str | None
    head: str
    base_name: str = ""
    fork: Fork | None = None
    settings_from: str | None = None
    trusted: bool = False
    saves: bool = False
    checked_out: bool = True

    @property
    def environment(self) -> dict[str, str]:
        """What every step of the job has to see. An empty variable counts as absent."""
        found = {env.SETTINGS_FROM: self.settings_from or ""}
        if not self.trusted:
            keys = (env.OPENAI_KEY, env.COHERE_KEY, env.HUGGINGFACE_KEY)
            found |= {env.NO_SERVICES: "1"} | dict.fromkeys(keys, "")
        return found


class _Ends(NamedTuple):
    base: str | None
    head: str
    settings_from: str | None = None
    base_name: str = ""
    fork: Fork | None = None


def comparison(environ: Mapping[str, str], places: Places) -> Comparison:
    """What the event of this job is about, in the checkout at `places`.

    A commit that decides it and is not here is fetched. Raises `UsageInvalid` for an environment or
    a payload that is none of GitHub's, `HistoryMissing`, and `RemoteError`.
    """
    event = environ.get("GITHUB_EVENT_NAME", "")
    if not event:
        raise _unreadable("GITHUB_EVENT_NAME is not set")
    ends = _ends(event, environ, places)
    given = env.settings_from(environ)  # the workflow's word, or that of an earlier step
    if ends.settings_from and not given:
        deepen.bring(places, [ends.settings_from])
    at = plumbing.resolve(places, "HEAD")
    return Comparison(
        event,
        ends.base,
        ends.head,
        ends.base_name,
        ends.fork,
        given or ends.settings_from,
        trusted=event in _OF_WRITERS,
        saves=event in _OF_WRITERS and _is_default(event, environ),
        checked_out=at == ends.head or (event in _MERGED and at == _sha(environ)),
    )


def _ends(event: str, environ: Mapping[str, str], places: Places) -> _Ends:
    if event in _MERGED:
        return _of_merge(environ, places)
    if event == "pull_request_target":
        return _of_target(environ, places)
    if event == "merge_group":
        group = _payload(environ, _OfGroup).merge_group
        return _Ends(group.base_sha, group.head_sha, group.base_sha)
    if event == "push":
        return _of_push(environ, places)
    return _Ends(None, _sha(environ), _own_settings(environ) if event in _OF_WRITERS else None)


# -- pull requests


def _of_merge(environ: Mapping[str, str], places: Places) -> _Ends:
    """The parents of the merge, which fit together. The payload's base may be an older one."""
    payload = _payload(environ, _OfPullRequest)
    request = payload.pull_request
    if payload.action == "closed" and request.merged and request.merge_commit_sha:
        # What was really merged, squashed or rebased, and on top of what.
        landed = request.merge_commit_sha
        deepen.bring(places, [landed])
        return _Ends(request.base.sha, landed, next(iter(objects.parents(places, landed)), None))
    merge = _sha(environ)
    deepen.bring(places, [merge])  # the workflow may have checked out the head instead
    match objects.parents(places, merge):
        case [base, head]:
            pass
        case _:
            base, head = _tip(places, request.base.ref), request.head.sha
    return _Ends(base, head, base, _name(places, request), _fork(environ, request))


def _of_target(environ: Mapping[str, str], places: Places) -> _Ends:
    """Who opens a pull request chooses its base among all branches, old ones with forgotten
    settings included; `GITHUB_SHA`, from which GitHub takes the workflow, nobody chooses.
    """
    request = _payload(environ, _OfPullRequest).pull_request
    base = _tip(places, request.base.ref)
    return _Ends(base, request.head.sha, _sha(environ), _name(places, request), _fork(environ, request))


def _tip(places: Places, branch: str) -> str:
    """Where a branch of the base repository is now."""
    ref = _BRANCHES + branch
    found = transfer.advertised(places, deepen.origin(places), ref) if plumbing.is_ref(places, ref) else None
    if found is None:
        raise _unreadable("the base branch of the pull request is not there")
    return found


def _name(places: Places, request: _PullRequest) -> str:
    return f"{deepen.origin(places).where}/{request.base.ref}"


def _fork(environ: Mapping[str, str], request: _PullRequest) -> Fork | None:
    """None for a branch of the same repository, and for a fork that was deleted."""
    source, base = request.head.repo, request.base.repo
    server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
    if source is None or source.full_name == base.full_name or not _SERVER.fullmatch(server):
        return None
    return Fork(f"{server}/{source.full_name}", f"refs/pull/{request.number}/head")


# -- what people who may write do


def _of_push(environ: Mapping[str, str], places: Places) -> _Ends:
    """A new branch follows the default branch; a tag, and the first push of all, follow nothing.

    A branch that was pushed by force counts as new if nobody has its old commit any more.
    """
    payload = _payload(environ, _OfPush)
    head, settings = _sha(environ), _own_settings(environ)
    if not _ref(environ).startswith(_BRANCHES):
        return _Ends(None, head, settings)
    if payload.before.strip("0"):
        try:
            deepen.bring(places, [payload.before])
            return _Ends(payload.before, head, settings)
        except HistoryMissing as missing:
            if not (payload.forced and deepen.is_gone(missing)):
                raise
    default = payload.repository.default_branch
    return _Ends(None if _ref(environ) == _BRANCHES + default else _tip(places, default), head, settings)


def _own_settings(environ: Mapping[str, str]) -> str | None:
    """The commit itself, if its branch is protected: others than its author agreed to what it says
    then. The payload does not say so, the runner does.
    """
    protected = environ.get("GITHUB_REF_PROTECTED") == "true" and _ref(environ).startswith(_BRANCHES)
    return _sha(environ) if protected else None


def _is_default(event: str, environ: Mapping[str, str]) -> bool:
    """A schedule runs on the default branch alone, and its payload does not always say which."""
    if event == "schedule":
        return True
    return _ref(environ) == _BRANCHES + _payload(environ, _OfOwn).repository.default_branch


# -- what the runner hands over


_T = TypeVar("_T", bound=Record)


def _payload(environ: Mapping[str, str], kind: type[_T]) -> _T:
    path = environ.get("GITHUB_EVENT_PATH", "")
    try:
        content = read_regular(Path(path), MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise _unreadable(f"the payload has more than {MOST_BYTES // 1_000_000} MB")
        return msgspec.json.decode(content, type=kind)
    except OSError as error:
        raise _unreadable(f"GITHUB_EVENT_PATH names no file that can be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(f"the payload is not that of such an event ({error})") from error


def _sha(environ: Mapping[str, str]) -> str:
    found = environ.get("GITHUB_SHA", "")
    try:
        return msgspec.convert(found, _Hash)
    except msgspec.ValidationError as error:
        raise _unreadable("GITHUB_SHA is not the hash of a commit") from error


def _ref(environ: Mapping[str, str]) -> str:
    return environ.get("GITHUB_REF", "")


def _unreadable(reason: str) -> UsageInvalid:
    return UsageInvalid(
        f"It cannot be said which commits this job is about: {reason}.",
        hint="Run it as a step of a job of GitHub Actions; elsewhere: vmrag verify --pull-request BASE HEAD",
    )

"""The commits of a GitHub event, and how far their contents are trusted.

A step compares the commit `head` with the commit `base`. The settings of vmrag are read from a
commit whose contents an untrusted user cannot choose.

| event                 | base                       | head           | trusted settings         |
|-----------------------|----------------------------|----------------|--------------------------|
| `pull_request`        | first parent of the merge  | its second one | the base's               |
| closed and merged     | the payload's base         | its commit     | the base's               |
| `pull_request_target` | tip of the base branch     | the head's     | those of `GITHUB_SHA`    |
| `merge_group`         | `base_sha`                 | `head_sha`     | the base's               |
| `push`                | `before`, if there was one | `GITHUB_SHA`   | its own, if protected    |
| `schedule`, by hand   | none                       | `GITHUB_SHA`   | its own, if protected    |
| `release`             | none                       | `GITHUB_SHA`   | none: it is a tag        |
| any other             | none                       | `GITHUB_SHA`   | none                     |

An untrusted user decides the contents of a pull request, and chooses its base among the existing
branches. A user with write access decides what is pushed, and with which workflow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from vmrag_action import payload
from vmrag_action.payload import MergeGroupEvent, PullRequest, PullRequestEvent, PushEvent, RepositoryEvent
from vmrag_link import env
from vmrag_link.errors import HistoryMissing, UsageInvalid
from vmrag_link.git import objects, plumbing, remotes, transfer
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import Record
from vmrag_link.ops.verify.verify_commits import Fork
from vmrag_link.paths import CONFIG_NAME, Places
from vmrag_link.settings.entries import MAX_BYTES
from vmrag_link.workspace.commits import deepen

_SERVER = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?")
_HOSTED_URL = re.compile(r"(?:[a-z]+://[^/]+/|[^/:]+@[^/:]+:)(?:.*/)?(?P<name>[^/]+/[^/]+?)(?:\.git)?/?")
"""The URL of a repository on a server. A repository on this machine has no host."""

_MERGE_EVENTS = ("pull_request", "pull_request_review", "pull_request_review_comment")
"""Events whose commit is a merge that GitHub made for a test."""

_WRITER_EVENTS = ("push", "schedule", "workflow_dispatch", "release")
"""Events that only users with write access can cause."""


class Comparison(Record, frozen=True):
    """The commits of an event, and how far vmrag trusts them."""

    event: str
    base: str | None
    """The commit that `head` follows; None if only its parents are known."""
    head: str
    base_name: str = ""
    """The name of a pull request's base; empty for other events."""
    fork: Fork | None = None
    """The fork of a pull request; None if it comes from the same repository."""
    proposed: str | None = None
    """The last commit of a pull request that was merged as `head`."""
    settings_from: str | None = None
    """The commit whose `.vmrag.yaml` is trusted, which exists in the clone. With None, only the
    settings of the workflow apply.
    """
    trusted: bool = False
    """True if the texts come from users with write access, so that secrets and services can be
    used.
    """
    saves: bool = False
    """True if caches can be written."""
    checked_out: bool = True
    """True if the work tree has the head, or its merge."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables for each step of the job. An empty variable counts as missing."""
        services = {} if self.trusted else {env.NO_SERVICES: "1"}
        return {env.SETTINGS_FROM: self.settings_from or "", **services}


class _EventCommits(NamedTuple):
    """The fields of `Comparison` that depend on the kind of event."""

    base: str | None
    head: str
    settings_from: str | None = None
    base_name: str = ""
    fork: Fork | None = None
    proposed: str | None = None


def read_comparison(environ: Mapping[str, str], places: Places) -> Comparison:
    """Return what the event of this job is about, in the checkout at `places`.

    A missing commit that decides it is fetched. If the checkout is of another repository, such as a
    submodule, only the checked-out commit is known. Raises `UsageInvalid` if the environment or the
    payload is not GitHub's, `HistoryMissing`, and `RemoteError`.
    """
    event = environ.get("GITHUB_EVENT_NAME", "")
    if not event:
        raise payload.payload_error("GITHUB_EVENT_NAME is not set")
    checked_out = plumbing.resolve_commit(places, "HEAD")
    commits = _find_commits(event, environ, places, checked_out=checked_out)
    settings_commit = env.read_variable(env.SETTINGS_FROM, environ)  # set by the workflow, or by an earlier step
    if commits.settings_from and not settings_commit:
        deepen.fetch_commits(places, [commits.settings_from], files=True)
        # A partial clone fetches the file now, because later steps may have no credentials.
        plumbing.read_blob(places, f"{commits.settings_from}:{CONFIG_NAME}", limit=MAX_BYTES)
    return Comparison(
        event=event,
        base=commits.base,
        head=commits.head,
        base_name=commits.base_name,
        fork=commits.fork,
        proposed=commits.proposed,
        settings_from=settings_commit or commits.settings_from,
        trusted=event in _WRITER_EVENTS,
        saves=event in _WRITER_EVENTS and _is_default(event, environ),
        checked_out=checked_out == commits.head or (event in _MERGE_EVENTS and checked_out == _read_sha(environ)),
    )


def read_pushed_branch(environ: Mapping[str, str]) -> str | None:
    """Return the pushed branch; None for a tag, and for other events."""
    ref = _read_ref(environ)
    is_push = environ.get("GITHUB_EVENT_NAME") == "push"
    return ref.removeprefix(BRANCHES) if is_push and ref.startswith(BRANCHES) else None


def read_default_branch(environ: Mapping[str, str]) -> str:
    """Return the default branch.

    Raises `UsageInvalid` if the payload has another form.
    """
    return payload.read_event(environ, RepositoryEvent).repository.default_branch


def is_own_checkout(environ: Mapping[str, str], places: Places) -> bool:
    """Return whether the checkout is of the job's own repository. A job pushes to no other one."""
    return _hosted_name(places) in (None, environ.get("GITHUB_REPOSITORY", "").lower())


def _find_commits(event: str, environ: Mapping[str, str], places: Places, *, checked_out: str) -> _EventCommits:
    if _is_other_repository(event, environ, places):
        return _EventCommits(None, checked_out)
    if event in _MERGE_EVENTS:
        return _find_merge_commits(environ, places)
    if event == "pull_request_target":
        return _find_target_commits(environ, places)
    if event == "merge_group":
        group = payload.read_event(environ, MergeGroupEvent).merge_group
        return _EventCommits(group.base_sha, group.head_sha, settings_from=group.base_sha)
    if event == "push":
        return _find_push_commits(environ, places)
    settings_from = _find_own_settings(environ) if event in _WRITER_EVENTS else None
    return _EventCommits(None, _read_sha(environ), settings_from)


def _is_other_repository(event: str, environ: Mapping[str, str], places: Places) -> bool:
    """Return whether the checkout is of another repository than that of the event, whose commit it
    lacks.

    Raises `UsageInvalid` for the fork of a pull request. Its base branch and its knowledge base are
    untrusted.
    """
    if is_own_checkout(environ, places):
        return False
    name = _hosted_name(places)
    if event in (*_MERGE_EVENTS, "pull_request_target"):
        source = payload.read_event(environ, PullRequestEvent).pull_request.head.repo
        if source and source.full_name.lower() == name:
            raise UsageInvalid(
                f"the checkout is of the fork {name}, which does not have the base.",
                hint="remove `repository:` from the step actions/checkout",
            )
    return bool(objects.find_missing_commits(places, [_read_sha(environ)]))


def _hosted_name(places: Places) -> str | None:
    """Return `owner/name` of the checked-out repository; None for one on this machine."""
    names = remotes.list_for_reading(places, None)
    match = _HOSTED_URL.fullmatch(remotes.read_url(places, names[0])) if names else None
    return match["name"].lower() if match else None


# -- pull requests


def _find_merge_commits(environ: Mapping[str, str], places: Places) -> _EventCommits:
    """Return the parents of the merge, which fit together.

    The base in the payload can be older.
    """
    event = payload.read_event(environ, PullRequestEvent)
    request = event.pull_request
    if landed := event.landed_commit:
        deepen.fetch_commits(places, [landed])
        parent = next(iter(objects.read_parents(places, landed)), None)
        return _EventCommits(request.base.sha, landed, settings_from=parent, proposed=request.head.sha)
    merge = _read_sha(environ)
    deepen.fetch_commits(places, [merge])  # the workflow may have checked out the head instead
    parents = objects.read_parents(places, merge)
    if len(parents) != 2:  # noqa: PLR2004  not a merge
        parents = [_fetch_tip(places, request.base.ref), request.head.sha]
    base, head = parents
    return _EventCommits(base, head, base, f"origin/{request.base.ref}", _find_fork(environ, request))


def _find_target_commits(environ: Mapping[str, str], places: Places) -> _EventCommits:
    """Return the commits of a `pull_request_target` event.

    An untrusted user chooses the base among all branches, also old ones with forgotten settings.
    Only `GITHUB_SHA`, from which GitHub takes the workflow, is not their choice.
    """
    request = payload.read_event(environ, PullRequestEvent).pull_request
    base = _fetch_tip(places, request.base.ref)
    return _EventCommits(
        base, request.head.sha, _read_sha(environ), f"origin/{request.base.ref}", _find_fork(environ, request)
    )


def _fetch_tip(places: Places, branch: str) -> str:
    """Return the current commit of a branch in the base repository."""
    ref = BRANCHES + branch
    tip = None
    if plumbing.is_ref_name(places, ref):
        tip = transfer.read_remote_ref(places, deepen.find_code_remote(places), ref)
    if tip is None:
        raise payload.payload_error("the base branch of the pull request is not there")
    return tip


def _find_fork(environ: Mapping[str, str], request: PullRequest) -> Fork | None:
    """Return the fork of a pull request; None for a branch of the same repository, and for a
    deleted fork.
    """
    source, base = request.head.repo, request.base.repo
    server = payload.read_server(environ)
    if source is None or source.full_name == base.full_name or not _SERVER.fullmatch(server):
        return None
    return Fork(f"{server}/{source.full_name}", f"refs/pull/{request.number}/head")


# -- events of users with write access


def _find_push_commits(environ: Mapping[str, str], places: Places) -> _EventCommits:
    """Return the commits of a push.

    A new branch follows the default branch. A tag and the very first push follow nothing. A branch
    that was pushed by force counts as new if its old commit no longer exists.
    """
    event = payload.read_event(environ, PushEvent)
    head = _read_sha(environ)
    settings = _find_own_settings(environ)
    if not _read_ref(environ).startswith(BRANCHES):
        return _EventCommits(None, head, settings)
    if event.before.strip("0"):
        try:
            deepen.fetch_commits(places, [event.before])
            return _EventCommits(event.before, head, settings)
        except HistoryMissing as missing:
            if not (event.forced and deepen.is_gone(missing)):
                raise
    default = event.repository.default_branch
    base = None if _read_ref(environ) == BRANCHES + default else _fetch_tip(places, default)
    return _EventCommits(base, head, settings)


def _find_own_settings(environ: Mapping[str, str]) -> str | None:
    """Return the commit itself if its branch is protected, because others have then approved its
    settings.

    The runner knows that, and the payload does not.
    """
    protected = environ.get("GITHUB_REF_PROTECTED") == "true" and _read_ref(environ).startswith(BRANCHES)
    return _read_sha(environ) if protected else None


def _is_default(event: str, environ: Mapping[str, str]) -> bool:
    """Return whether an event is on the default branch.

    A schedule always is, and its payload does not always name the branch.
    """
    if event == "schedule":
        return True
    return _read_ref(environ) == BRANCHES + read_default_branch(environ)


# -- variables of the runner


def _read_sha(environ: Mapping[str, str]) -> str:
    commit = environ.get("GITHUB_SHA", "")
    try:
        return msgspec.convert(commit, payload.Hash)
    except msgspec.ValidationError as error:
        raise payload.payload_error("GITHUB_SHA is not the hash of a commit") from error


def _read_ref(environ: Mapping[str, str]) -> str:
    return environ.get("GITHUB_REF", "")

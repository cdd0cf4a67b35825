"""Which commits an event of GitHub's is about, and how far what they bring is trusted.

| event                 | base                       | head           | whose settings count     |
|-----------------------|----------------------------|----------------|--------------------------|
| `pull_request`        | first parent of the merge  | its second one | the base's               |
| closed and merged     | the payload's base         | its commit     | the base's               |
| `pull_request_target` | tip of the base branch     | the head's     | those of `GITHUB_SHA`    |
| `merge_group`         | `base_sha`                 | `head_sha`     | the base's               |
| `push`                | `before`, if there was one | `GITHUB_SHA`   | its own, if protected    |
| `schedule`, by hand   | none                       | `GITHUB_SHA`   | its own, if protected    |
| `release`             | none                       | `GITHUB_SHA`   | nobody's: it is a tag    |
| any other             | none                       | `GITHUB_SHA`   | nobody's                 |

A stranger decides what a pull request holds, and, among the branches that there are, on what it is
based. A person who may write decides what is pushed, and with which workflow.
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
_HOSTED = re.compile(r"(?:[a-z]+://[^/]+/|[^/:]+@[^/:]+:)(?:.*/)?(?P<name>[^/]+/[^/]+?)(?:\.git)?/?")
"""The URL of a repository on a server; one of this machine has no host."""

_MERGED = ("pull_request", "pull_request_review", "pull_request_review_comment")
"""The events whose commit is a merge that GitHub made to try it out."""

_OF_WRITERS = ("push", "schedule", "workflow_dispatch", "release")
"""The events that only people with write access cause."""


class Comparison(Record, frozen=True):
    """What an event is about. `base` None: there is nothing that `head` follows but its parents.

    `base_name`: how people call the base of a pull request; empty for other events. `fork`: from
    where a pull request comes, if not from the same repository. `proposed`: the last commit of one
    that was merged as `head`.

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
    proposed: str | None = None
    settings_from: str | None = None
    trusted: bool = False
    saves: bool = False
    checked_out: bool = True

    @property
    def environment(self) -> dict[str, str]:
        """What every step of the job has to see. An empty variable counts as absent."""
        services = {} if self.trusted else {env.NO_SERVICES: "1"}
        return {env.SETTINGS_FROM: self.settings_from or "", **services}


class _Ends(NamedTuple):
    base: str | None
    head: str
    settings_from: str | None = None
    base_name: str = ""
    fork: Fork | None = None
    proposed: str | None = None


def read_comparison(environ: Mapping[str, str], places: Places) -> Comparison:
    """What the event of this job is about, in the checkout at `places`.

    A commit that decides it and is not here is fetched. Of another repository than the event's, a
    submodule say, nothing is known but what is checked out. Raises `UsageInvalid` for an
    environment or a payload that is not GitHub's, `HistoryMissing`, and `RemoteError`.
    """
    event = environ.get("GITHUB_EVENT_NAME", "")
    if not event:
        raise payload.payload_error("GITHUB_EVENT_NAME is not set")
    at = plumbing.resolve_commit(places, "HEAD")
    ends = _Ends(None, at) if _is_another(event, environ, places) else _ends(event, environ, places)
    given = env.read_variable(env.SETTINGS_FROM, environ)  # the workflow's word, or that of an earlier step
    if ends.settings_from and not given:
        deepen.fetch_commits(places, [ends.settings_from], files=True)
        # A partial clone fetches the file itself now: later steps may have no way in.
        plumbing.read_blob(places, f"{ends.settings_from}:{CONFIG_NAME}", limit=MAX_BYTES)
    return Comparison(
        event,
        ends.base,
        ends.head,
        ends.base_name,
        ends.fork,
        ends.proposed,
        given or ends.settings_from,
        trusted=event in _OF_WRITERS,
        saves=event in _OF_WRITERS and _is_default(event, environ),
        checked_out=at == ends.head or (event in _MERGED and at == _sha(environ)),
    )


def _is_another(event: str, environ: Mapping[str, str], places: Places) -> bool:
    """Whether the checkout is of another repository than the event's, whose commit it lacks.

    Raises `UsageInvalid` for the fork that a pull request comes from: what it calls its base, and
    its knowledge, are a stranger's.
    """
    if is_own_checkout(environ, places):
        return False
    name = _hosted_name(places)
    if event in (*_MERGED, "pull_request_target"):
        source = payload.read_event(environ, PullRequestEvent).pull_request.head.repo
        if source and source.full_name.lower() == name:
            raise UsageInvalid(
                f"The checkout is of the fork {name}, which cannot say what the base has.",
                hint="Leave out `repository:` of the step actions/checkout.",
            )
    return bool(objects.find_missing_commits(places, [_sha(environ)]))


def read_pushed_branch(environ: Mapping[str, str]) -> str | None:
    """The branch that was pushed; None for tags, and where no push is what happened."""
    ref = _ref(environ)
    is_push = environ.get("GITHUB_EVENT_NAME") == "push"
    return ref.removeprefix(BRANCHES) if is_push and ref.startswith(BRANCHES) else None


def read_default_branch(environ: Mapping[str, str]) -> str:
    """Raises as `payload.read`."""
    return payload.read_event(environ, RepositoryEvent).repository.default_branch


def is_own_checkout(environ: Mapping[str, str], places: Places) -> bool:
    """Whether the checkout is of the job's own repository, the only one that a job pushes to."""
    return _hosted_name(places) in (None, environ.get("GITHUB_REPOSITORY", "").lower())


def _hosted_name(places: Places) -> str | None:
    """`owner/name` of the repository that was checked out; None for one of this machine."""
    names = remotes.list_for_reading(places, None)
    found = _HOSTED.fullmatch(remotes.read_url(places, names[0])) if names else None
    return found["name"].lower() if found else None


def _ends(event: str, environ: Mapping[str, str], places: Places) -> _Ends:
    if event in _MERGED:
        return _of_merge(environ, places)
    if event == "pull_request_target":
        return _of_target(environ, places)
    if event == "merge_group":
        group = payload.read_event(environ, MergeGroupEvent).merge_group
        return _Ends(group.base_sha, group.head_sha, group.base_sha)
    if event == "push":
        return _of_push(environ, places)
    return _Ends(None, _sha(environ), _own_settings(environ) if event in _OF_WRITERS else None)


# -- pull requests


def _of_merge(environ: Mapping[str, str], places: Places) -> _Ends:
    """The parents of the merge, which fit together. The payload's base may be an older one."""
    event = payload.read_event(environ, PullRequestEvent)
    request = event.pull_request
    if landed := event.landed_commit:
        deepen.fetch_commits(places, [landed])
        settings = next(iter(objects.read_parents(places, landed)), None)
        return _Ends(request.base.sha, landed, settings, proposed=request.head.sha)
    merge = _sha(environ)
    deepen.fetch_commits(places, [merge])  # the workflow may have checked out the head instead
    match objects.read_parents(places, merge):
        case [base, head]:
            pass
        case _:
            base, head = _tip(places, request.base.ref), request.head.sha
    return _Ends(base, head, base, f"origin/{request.base.ref}", _fork(environ, request))


def _of_target(environ: Mapping[str, str], places: Places) -> _Ends:
    """A stranger chooses the base of a pull request among all branches, old ones with forgotten
    settings included. Nobody chooses `GITHUB_SHA`, from which GitHub takes the workflow.
    """
    request = payload.read_event(environ, PullRequestEvent).pull_request
    base = _tip(places, request.base.ref)
    return _Ends(base, request.head.sha, _sha(environ), f"origin/{request.base.ref}", _fork(environ, request))


def _tip(places: Places, branch: str) -> str:
    """Where a branch of the base repository is now."""
    ref = BRANCHES + branch
    found = (
        transfer.read_remote_ref(places, deepen.find_code_remote(places), ref)
        if plumbing.is_ref_name(places, ref)
        else None
    )
    if found is None:
        raise payload.payload_error("the base branch of the pull request is not there")
    return found


def _fork(environ: Mapping[str, str], request: PullRequest) -> Fork | None:
    """None for a branch of the same repository, and for a fork that was deleted."""
    source, base = request.head.repo, request.base.repo
    server = payload.read_server(environ)
    if source is None or source.full_name == base.full_name or not _SERVER.fullmatch(server):
        return None
    return Fork(f"{server}/{source.full_name}", f"refs/pull/{request.number}/head")


# -- events of people with write access


def _of_push(environ: Mapping[str, str], places: Places) -> _Ends:
    """A new branch follows the default branch; a tag, and the first push of all, follow nothing.

    A branch that was pushed by force counts as new if nobody has its old commit any more.
    """
    event = payload.read_event(environ, PushEvent)
    head, settings = _sha(environ), _own_settings(environ)
    if not _ref(environ).startswith(BRANCHES):
        return _Ends(None, head, settings)
    if event.before.strip("0"):
        try:
            deepen.fetch_commits(places, [event.before])
            return _Ends(event.before, head, settings)
        except HistoryMissing as missing:
            if not (event.forced and deepen.is_gone(missing)):
                raise
    default = event.repository.default_branch
    return _Ends(None if _ref(environ) == BRANCHES + default else _tip(places, default), head, settings)


def _own_settings(environ: Mapping[str, str]) -> str | None:
    """The commit itself, if its branch is protected: others than its author agreed to what it says
    then. The payload does not say so, the runner does.
    """
    protected = environ.get("GITHUB_REF_PROTECTED") == "true" and _ref(environ).startswith(BRANCHES)
    return _sha(environ) if protected else None


def _is_default(event: str, environ: Mapping[str, str]) -> bool:
    """A schedule runs on the default branch alone, and its payload does not always say which."""
    if event == "schedule":
        return True
    return _ref(environ) == BRANCHES + read_default_branch(environ)


# -- what the runner hands over


def _sha(environ: Mapping[str, str]) -> str:
    found = environ.get("GITHUB_SHA", "")
    try:
        return msgspec.convert(found, payload.Hash)
    except msgspec.ValidationError as error:
        raise payload.payload_error("GITHUB_SHA is not the hash of a commit") from error


def _ref(environ: Mapping[str, str]) -> str:
    return environ.get("GITHUB_REF", "")

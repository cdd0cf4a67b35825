"""The calls of GitHub's API behind the one comment on a pull request.

The comment is known by its hidden first line and by its author. Without the first, another comment
of the same robot would be overwritten; without the second, that of a stranger who copied the line,
because who may write here may edit everybody's.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec

from vmrag_action.github_api import HEADERS, GitHub
from vmrag_action.payload import PullRequest
from vmrag_link import endpoint
from vmrag_link.endpoint import NoAnswer
from vmrag_link.errors import RemoteUnreachable, UsageInvalid, VmragError
from vmrag_link.models import Record

PATIENCE = 120.0
"""Seconds that GitHub may ask a job to wait; it asks for 60 where somebody writes too fast."""

_PAGE, _MOST_PAGES = 100, 50
_MOST_BYTES = 8_000_000
"""Of an answer: a page of comments has up to 6.5 MB."""

_GONE = 404
_FOUND = 302
_WRITE = "permissions: pull-requests: write"
_READ = "permissions: actions: read"
_Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]

Outcome = Literal["silent", "unchanged", "edited", "created"]


class CommentAuthor(Record, frozen=True):
    login: str


class PostedComment(Record, frozen=True):
    """`user` None: the account was deleted."""

    id: _Id
    user: CommentAuthor | None = None
    body: str | None = None


class StoredArtifact(Record, frozen=True):
    id: _Id
    name: str
    size_in_bytes: int
    expired: bool = False


class _Artifacts(Record, frozen=True):
    artifacts: list[StoredArtifact]


class _Viewed(Record, frozen=True):
    viewer: CommentAuthor


class _Viewer(Record, frozen=True):
    data: _Viewed


class CommentApi(NamedTuple):
    """`graphql`: the address of the one question that the other API does not answer to an App."""

    github: GitHub
    graphql: str

    @classmethod
    def from_job(cls, token: str, environ: Mapping[str, str] = os.environ) -> CommentApi:
        """Raises as `GitHub.of`."""
        github, graphql = GitHub.from_job(token, environ), environ.get("GITHUB_GRAPHQL_URL", "")
        if not graphql or not endpoint.is_private(graphql):
            raise UsageInvalid(
                "GITHUB_GRAPHQL_URL names no address to which a token may go.", hint="Run it as a step of a job."
            )
        return cls(github, graphql)

    def update_comment(self, number: int, marker: str, text: str, *, speaks: bool) -> Outcome:
        """See that the pull request has one comment of ours, which says `text`; none is begun
        unless it `speaks`.

        Raises `AuthenticationFailed`, `RemoteRejected`, `RemoteUnreachable`.
        """
        me = self._login()
        for pause in (*endpoint.PAUSES, math.inf):
            ours = self._ours(number, marker, me)
            try:
                return self._change(ours, number, text, speaks=speaks)
            except NoAnswer as why:
                # Looking again shows a comment that was made and not confirmed, and one that is
                # gone because somebody has deleted it.
                wait = 0.0 if why.status == _GONE and ours else why.wait
                if wait is None or wait > PATIENCE or pause == math.inf:
                    raise self._failure(why) from why
                time.sleep(max(wait, pause))
        raise AssertionError  # the last attempt returns or raises

    def _change(self, ours: list[PostedComment], number: int, text: str, *, speaks: bool) -> Outcome:
        if not ours:
            if not speaks:
                return "silent"
            # Once: what looks like a failure may have made it.
            self._ask("POST", f"/issues/{number}/comments", {"body": text}, once=True)
            return "created"
        first, *others = ours
        for each in others:  # two jobs began at once
            self._ask("DELETE", f"/issues/comments/{each.id}")
        if _lines(first.body) == _lines(text):
            return "unchanged"
        self._ask("PATCH", f"/issues/comments/{first.id}", {"body": text})
        return "edited"

    def read_pull_request(self, number: int) -> PullRequest | None:
        """None if there is none of this number."""
        try:
            return self.github.decode_answer(self._ask("GET", f"/pulls/{number}"), PullRequest)
        except NoAnswer as why:
            if why.status == _GONE:
                return None
            raise self._failure(why) from why

    def download_artifact(self, run: int, name: str, most: int) -> bytes | None:
        """The archive of an artifact of a run; None if that has none, or one with more bytes."""
        try:
            asked = urlencode({"name": name, "per_page": _PAGE})
            answer = self._ask("GET", f"/actions/runs/{run}/artifacts?{asked}")
            found = self.github.decode_answer(answer, _Artifacts).artifacts
            fitting = [each for each in found if each.name == name and not each.expired and each.size_in_bytes <= most]
            if not fitting:
                return None
            return self._download(f"/actions/artifacts/{max(each.id for each in fitting)}/zip", most)
        except NoAnswer as why:
            raise self._failure(why, f"The artifact {name} of run {run} was not read", _READ) from why

    def _download(self, path: str, most: int) -> bytes:
        """From where the API says, which gets no token of ours."""
        try:
            return self._ask("GET", path, once=True, most=most)
        except NoAnswer as why:
            if why.status != _FOUND:
                raise
            if not endpoint.is_private(why.location):
                raise RemoteUnreachable("The artifact lies where it cannot be read in private.", hint=_READ) from why
            return endpoint.send_request("GET", why.location, headers={}, circuit=self.github.url, most=most)

    def _login(self) -> str:
        """Who this token is. Of an App the other API does not say it."""
        asked = {"query": "{viewer{login}}"}
        try:
            answer = endpoint.send_request("POST", self.graphql, asked, **self._request)
        except NoAnswer as why:
            raise self._failure(why) from why
        return self.github.decode_answer(answer, _Viewer).data.viewer.login

    def _ours(self, number: int, marker: str, me: str) -> list[PostedComment]:
        """The oldest first."""
        found: list[PostedComment] = []
        for page in range(1, _MOST_PAGES + 1):
            asked = urlencode({"per_page": _PAGE, "page": page})
            try:
                answer = self._ask("GET", f"/issues/{number}/comments?{asked}")
            except NoAnswer as why:
                raise self._failure(why) from why
            some = self.github.decode_answer(answer, list[PostedComment])
            found += [
                each for each in some if each.user and each.user.login == me and _lines(each.body)[:1] == [marker]
            ]
            if len(some) < _PAGE:
                break
        return sorted(found, key=lambda each: each.id)

    def _ask(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
        return endpoint.send_request(method, f"{self.github.repository_url}{path}", body, **self._request | more)

    @property
    def _request(self) -> dict[str, Any]:
        token = self.github.token
        return {
            "headers": HEADERS | {"Authorization": f"Bearer {token}"},
            "secrets": (token,),
            "circuit": self.github.url,
            "most": _MOST_BYTES,
            "patience": PATIENCE,
        }

    def _failure(self, why: NoAnswer, what: str = "The comment was not written", allowed: str = _WRITE) -> VmragError:
        return self.github.convert_failure(why, what, allowed)


def _lines(body: str | None) -> list[str]:
    """A comment's, however it ends them."""
    return (body or "").strip().splitlines()

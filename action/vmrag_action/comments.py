"""The calls of GitHub's API for the comment on a pull request.

vmrag recognizes its comment by a hidden first line and by its author. Without the first line, it
would overwrite another comment of the same bot. Without the author, it would overwrite the comment
of a user who copied the line, because a token with write access can edit all comments.
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
"""Seconds that GitHub can ask a job to wait. It asks for 60 after too many comments."""

_PAGE_ITEMS = 100
_MAX_PAGES = 50
_MAX_ANSWER_BYTES = 8_000_000
"""Maximum size of an answer. A page of comments has up to 6.5 MB."""

_REDIRECTED = 302
_NOT_FOUND = 404
_WRITE_PERMISSIONS = "permissions: pull-requests: write"
_READ_HINT = "set 'permissions: actions: read' for the job"
_Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]

Outcome = Literal["silent", "unchanged", "edited", "created"]


class CommentAuthor(Record, frozen=True):
    login: str


class PostedComment(Record, frozen=True):
    """A comment. A deleted account has no `user`."""

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


class _ViewerData(Record, frozen=True):
    viewer: CommentAuthor


class _ViewerAnswer(Record, frozen=True):
    data: _ViewerData


class CommentApi(NamedTuple):
    """GitHub's API for comments.

    `graphql` is the address for the one question that the REST API does not answer to an App.
    """

    github: GitHub
    graphql: str

    @classmethod
    def from_job(cls, token: str, environ: Mapping[str, str] = os.environ) -> CommentApi:
        """Return the API for this job.

        Raises `UsageInvalid` if the runner does not name the repository.
        """
        github, graphql = GitHub.from_job(token, environ), environ.get("GITHUB_GRAPHQL_URL", "")
        if not graphql or not endpoint.is_private(graphql):
            raise UsageInvalid(
                "cannot send a token to GITHUB_GRAPHQL_URL: it is not an https address.",
                hint="run it as a step of a job",
            )
        return cls(github, graphql)

    def update_comment(self, number: int, marker: str, text: str, *, speaks: bool) -> Outcome:
        """Give the pull request one comment with this text.

        `marker` is the hidden first line. An existing comment is changed. A new one is only written
        if `speaks` is True. Raises
        `AuthenticationFailed`, `RemoteRejected` and `RemoteUnreachable`.
        """
        me = self._read_login()
        for pause in (*endpoint.PAUSES, math.inf):
            own_comments = self._list_own_comments(number, marker, me)
            try:
                return self._write_comment(own_comments, number, text, speaks=speaks)
            except NoAnswer as error:
                # The next attempt reads the comments again. It finds a comment that was written but
                # not confirmed, and misses a comment that a user has deleted.
                was_deleted = error.status == _NOT_FOUND and bool(own_comments)
                wait = 0.0 if was_deleted else error.wait
                if wait is None or wait > PATIENCE or pause == math.inf:
                    raise self._convert_failure(error) from error
                time.sleep(max(wait, pause))
        raise AssertionError  # the last attempt returns or raises

    def _write_comment(self, own_comments: list[PostedComment], number: int, text: str, *, speaks: bool) -> Outcome:
        if not own_comments:
            if not speaks:
                return "silent"
            # Only once, because a request that seems to fail can have created the comment.
            self._send_request("POST", f"/issues/{number}/comments", {"body": text}, once=True)
            return "created"
        first, *others = own_comments
        for duplicate in others:  # two jobs began at once
            self._send_request("DELETE", f"/issues/comments/{duplicate.id}")
        if _split_lines(first.body) == _split_lines(text):
            return "unchanged"
        self._send_request("PATCH", f"/issues/comments/{first.id}", {"body": text})
        return "edited"

    def read_pull_request(self, number: int) -> PullRequest | None:
        """Return a pull request, or None if it does not exist."""
        try:
            return self.github.decode_answer(self._send_request("GET", f"/pulls/{number}"), PullRequest)
        except NoAnswer as error:
            if error.status == _NOT_FOUND:
                return None
            raise self._convert_failure(error) from error

    def download_artifact(self, run: int, name: str, max_bytes: int) -> bytes | None:
        """Return the archive of an artifact of a run; None if it does not exist or is larger than
        `max_bytes`.
        """
        try:
            parameters = urlencode({"name": name, "per_page": _PAGE_ITEMS})
            answer = self._send_request("GET", f"/actions/runs/{run}/artifacts?{parameters}")
            artifacts = self.github.decode_answer(answer, _Artifacts).artifacts
            fitting_ids = [
                artifact.id
                for artifact in artifacts
                if artifact.name == name and not artifact.expired and artifact.size_in_bytes <= max_bytes
            ]
            if not fitting_ids:
                return None
            return self._download_file(f"/actions/artifacts/{max(fitting_ids)}/zip", max_bytes)
        except NoAnswer as error:
            raise self._convert_failure(error, f"The artifact {name} of run {run} was not read", _READ_HINT) from error

    def _download_file(self, path: str, max_bytes: int) -> bytes:
        """Download from the address that the API names, without the token."""
        try:
            return self._send_request("GET", path, once=True, max_bytes=max_bytes)
        except NoAnswer as error:
            if error.status != _REDIRECTED:
                raise
            if not endpoint.is_private(error.location):
                raise RemoteUnreachable(
                    "cannot read the artifact: its address is not https.", hint=_READ_HINT
                ) from error
            return endpoint.send_request(
                "GET", error.location, headers={}, circuit=self.github.url, max_bytes=max_bytes
            )

    def _read_login(self) -> str:
        """Return the user of this token. The REST API does not tell it to an App."""
        query = {"query": "{viewer{login}}"}
        try:
            answer = endpoint.send_request("POST", self.graphql, query, **self._request)
        except NoAnswer as error:
            raise self._convert_failure(error) from error
        return self.github.decode_answer(answer, _ViewerAnswer).data.viewer.login

    def _list_own_comments(self, number: int, marker: str, me: str) -> list[PostedComment]:
        """Return the comments of vmrag, the oldest first."""
        comments: list[PostedComment] = []
        for page in range(1, _MAX_PAGES + 1):
            parameters = urlencode({"per_page": _PAGE_ITEMS, "page": page})
            try:
                answer = self._send_request("GET", f"/issues/{number}/comments?{parameters}")
            except NoAnswer as error:
                raise self._convert_failure(error) from error
            page_comments = self.github.decode_answer(answer, list[PostedComment])
            comments += [
                comment
                for comment in page_comments
                if comment.user and comment.user.login == me and _split_lines(comment.body)[:1] == [marker]
            ]
            if len(page_comments) < _PAGE_ITEMS:
                break
        return sorted(comments, key=lambda comment: comment.id)

    def _send_request(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
        return endpoint.send_request(method, f"{self.github.repository_url}{path}", body, **self._request | more)

    @property
    def _request(self) -> dict[str, Any]:
        token = self.github.token
        return {
            "headers": HEADERS | {"Authorization": f"Bearer {token}"},
            "secrets": (token,),
            "circuit": self.github.url,
            "max_bytes": _MAX_ANSWER_BYTES,
            "patience": PATIENCE,
        }

    def _convert_failure(
        self, error: NoAnswer, message: str = "The comment was not written", permission_hint: str = _WRITE_PERMISSIONS
    ) -> VmragError:
        return self.github.convert_failure(error, message, permission_hint)


def _split_lines(body: str | None) -> list[str]:
    """Return the lines of a comment, whatever its line ends are."""
    return (body or "").strip().splitlines()

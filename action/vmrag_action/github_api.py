"""The few calls of GitHub's REST API, with the input `token`.

The API is at `GITHUB_API_URL`, which can be a company's own server. Its answers are read by types.
The token is sent to that address only, never unencrypted, and is in no message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from vmrag_action import payload
from vmrag_action.payload import PullRequest
from vmrag_link import endpoint
from vmrag_link.endpoint import NoAnswer
from vmrag_link.errors import AuthenticationFailed, RemoteRejected, RemoteUnreachable, UsageInvalid, VmragError
from vmrag_link.models import Record

HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_NOT_FOUND = 404
_VALIDATION_FAILED = 422
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_Answer = TypeVar("_Answer")

_WRITE_HINT = (
    "set 'permissions: pull-requests: write' for the job, and allow GitHub Actions to create pull requests in the "
    "repository's settings (Actions, General)"
)
_READ_HINT = "set 'permissions: pull-requests: read' for the job"
_METADATA_HINT = "use the job's own token, or give the other one the permission 'metadata: read'"

_PAGE_REQUESTS = 100
"""Maximum number of pull requests in an answer of GitHub."""

_MAX_PAGES = 50


class OpenRequest(Record, frozen=True):
    """An open pull request."""

    number: Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class RepositoryRole(Record, frozen=True):
    """The role of a user in a repository.

    `permission` is `admin`, `write`, `read` or `none`.
    """

    permission: str


class Proposal(NamedTuple):
    """A pull request of the repository's branch `head` into its branch `base`."""

    head: str
    base: str
    title: str
    body: str


class GitHub(NamedTuple):
    """The API at `url` for a `repository` (`owner/name`)."""

    url: str
    repository: str
    token: str

    @classmethod
    def from_job(cls, token: str, environ: Mapping[str, str] = os.environ) -> GitHub:
        """Return the API for this job.

        Raises `UsageInvalid` if the runner does not name the repository.
        """
        url = environ.get("GITHUB_API_URL", "").rstrip("/")
        repository = payload.read_repository_name(environ)
        if not url or not endpoint.is_private(url):
            raise UsageInvalid(
                "cannot send a token to GITHUB_API_URL: it is not an https address.", hint="run it as a step of a job"
            )
        if not token.strip():
            raise UsageInvalid(
                "missing input 'token', which GitHub's API needs.", hint="set the input 'token: ${{ github.token }}'"
            )
        return cls(url, repository, token.strip())

    def ensure_pull_request(self, proposal: Proposal) -> tuple[int, bool]:
        """Open a pull request of these branches, unless one is open.

        Returns its number, and whether it was opened now. Raises `AuthenticationFailed`,
        `RemoteRejected` and `RemoteUnreachable`.
        """
        if number := self._find_open_request(proposal):
            return number, False
        body = {"title": proposal.title, "body": proposal.body, "head": proposal.head, "base": proposal.base}
        try:
            answer = endpoint.post_json(self._pulls, body, key=self.token, headers=HEADERS)
        except NoAnswer as error:
            # Another job was faster.
            if error.status == _VALIDATION_FAILED and (number := self._find_open_request(proposal)):
                return number, False
            raise self.convert_failure(error) from error
        return self.decode_answer(answer, OpenRequest).number, True

    def list_pull_requests(self, *, base: str = "", head: str = "") -> list[PullRequest]:
        """Return the open pull requests into the branch `base`, or from the branch `head`.

        Raises `AuthenticationFailed`, `RemoteRejected` and `RemoteUnreachable`.
        """
        owner = self.repository.partition("/")[0]
        filters = {"base": base} if base else {}
        if head:
            filters["head"] = f"{owner}:{head}"
        requests: list[PullRequest] = []
        for page in range(1, _MAX_PAGES + 1):
            parameters = urlencode({"state": "open", "per_page": _PAGE_REQUESTS, "page": page, **filters})
            try:
                answer = endpoint.get(f"{self._pulls}?{parameters}", key=self.token, headers=HEADERS)
            except NoAnswer as error:
                raise self.convert_failure(error, "Could not list the open pull requests", _READ_HINT) from error
            page_requests = self.decode_answer(answer, list[PullRequest])
            requests += page_requests
            if len(page_requests) < _PAGE_REQUESTS:
                break
        return requests

    def can_write(self, login: str) -> bool:
        """Return whether a user can push to the repository. It is False for an invalid name.

        Raises `AuthenticationFailed`, `RemoteRejected` and `RemoteUnreachable`.
        """
        if not _LOGIN.fullmatch(login):
            return False
        try:
            answer = endpoint.get(
                f"{self.repository_url}/collaborators/{login}/permission", key=self.token, headers=HEADERS
            )
        except NoAnswer as error:
            if error.status == _NOT_FOUND:
                return False
            raise self.convert_failure(error, "Could not read who has write access", _METADATA_HINT) from error
        return self.decode_answer(answer, RepositoryRole).permission in ("admin", "write")

    @property
    def repository_url(self) -> str:
        return f"{self.url}/repos/{self.repository}"

    @property
    def _pulls(self) -> str:
        return f"{self.repository_url}/pulls"

    def _find_open_request(self, proposal: Proposal) -> int | None:
        owner = self.repository.partition("/")[0]
        parameters = urlencode({"state": "open", "head": f"{owner}:{proposal.head}", "base": proposal.base})
        try:
            answer = endpoint.get(f"{self._pulls}?{parameters}", key=self.token, headers=HEADERS)
        except NoAnswer as error:
            raise self.convert_failure(error) from error
        requests = self.decode_answer(answer, list[OpenRequest])
        return requests[0].number if requests else None

    def decode_answer(self, answer: bytes, kind: type[_Answer]) -> _Answer:
        """Decode an answer by its types.

        Raises `RemoteUnreachable` for an answer of another form.
        """
        who = f"{self.url} does not answer like GitHub's API"
        return endpoint.decode_answer(answer, kind, who=who, hint="check GITHUB_API_URL of the runner")

    def convert_failure(
        self, error: NoAnswer, action: str = "No pull request was opened", permission_hint: str = _WRITE_HINT
    ) -> VmragError:
        """Return the error for a failed call. `action` is the beginning of its message."""
        message = f"{action}: {self.url} {error.reason}."
        if error.status in endpoint.REFUSALS:
            return AuthenticationFailed(message, hint=permission_hint)
        if error.status is not None and error.status < endpoint.SERVER_ERRORS:
            return RemoteRejected(message, hint=permission_hint)
        return RemoteUnreachable(message, hint="run the job again")

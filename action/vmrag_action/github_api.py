"""The few calls of GitHub's REST API, and the input `token`, with which git gets in, too.

`GITHUB_API_URL` says where the API is, a company's own server included. What it answers is read by
types. The token goes to that address alone, never in the clear, and into no message.

actions/checkout keeps its token for git in the work tree, unless `persist-credentials: false` says
otherwise. Only then git uses the input. It reaches git in the environment of a step's processes:
no file and no command line holds it.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from vmrag_action import payload
from vmrag_action.payload import PullRequest
from vmrag_link import endpoint, env
from vmrag_link.endpoint import NoAnswer
from vmrag_link.errors import AuthenticationFailed, RemoteRejected, RemoteUnreachable, UsageInvalid, VmragError
from vmrag_link.git import credentials
from vmrag_link.models import Record
from vmrag_link.paths import Places


def list_secret_forms(secret: str) -> tuple[str, ...]:
    """Everything that the log must mask: the token, and what stands for it in a header."""
    secret = secret.strip()
    return (secret, _basic(secret)) if secret else ()


def build_git_environment(places: Places, secret: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables with which git gets in at GITHUB_SERVER_URL.

    Empty where it does already, where there is no token, and for a server to which the token would
    travel in the clear.
    """
    secret, server = secret.strip(), env.read_github_server(environ)
    if (
        not secret
        or not _is_origin(server)
        or not endpoint.is_private(server)
        or credentials.has_credentials(places, server)
    ):
        return {}
    header = f"AUTHORIZATION: basic {_basic(secret)}"  # as actions/checkout says it
    return env.git_settings(above=[(f"http.{server}/.extraheader", header)], environ=environ)


def allow_directory(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables with which git works in the repository around a folder, and in no other one,
    although another user owns it: a container's workspace is the runner's.
    """
    folder = folder.resolve()
    top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    return env.git_settings(above=[("safe.directory", str(top))], environ=environ)


def _is_origin(server: str) -> bool:
    try:
        parts = urlsplit(server)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and server == f"{parts.scheme}://{parts.netloc}" and "@" not in server


def _basic(secret: str) -> str:
    return base64.b64encode(f"x-access-token:{secret}".encode()).decode()


HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_NOT_FOUND = 404
_VALIDATION_FAILED = 422
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_Answer = TypeVar("_Answer")

_ALLOWED = (
    "permissions: pull-requests: write; and in the repository's Settings, Actions, General: Allow GitHub Actions to create "
    "and approve pull requests"
)

_READABLE = "permissions: pull-requests: read"
_METADATA = "Every job's own token may ask that; another one needs the permission: metadata: read"
_PAGE = 100
"""Pull requests in an answer, of which GitHub gives no more."""

_MOST_PAGES = 50


class OpenRequest(Record, frozen=True):
    """An open pull request."""

    number: Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class RepositoryRole(Record, frozen=True):
    """Of somebody in a repository: `admin`, `write`, `read` or `none`."""

    permission: str


class Proposal(NamedTuple):
    """A pull request of the repository's branch `head` into its branch `base`."""

    head: str
    base: str
    title: str
    body: str


class GitHub(NamedTuple):
    """The API at `url`, for a `repository` (`owner/name`)."""

    url: str
    repository: str
    token: str

    @classmethod
    def from_job(cls, token: str, environ: Mapping[str, str] = os.environ) -> GitHub:
        """Raises `UsageInvalid` where the runner does not say which repository is meant."""
        url = environ.get("GITHUB_API_URL", "").rstrip("/")
        repository = payload.read_repository_name(environ)
        if not url or not endpoint.is_private(url):
            raise UsageInvalid(
                "GITHUB_API_URL names no address to which a token may go.", hint="Run it as a step of a job."
            )
        if not token.strip():
            raise UsageInvalid("GitHub's API needs the input token.", hint="with: token: ${{ github.token }}")
        return cls(url, repository, token.strip())

    def ensure_pull_request(self, wanted: Proposal) -> tuple[int, bool]:
        """The number of the open pull request of these branches, and whether it was opened now.

        Raises `AuthenticationFailed`, `RemoteRejected`, `RemoteUnreachable`.
        """
        if known := self._open(wanted):
            return known, False
        asked = {"title": wanted.title, "body": wanted.body, "head": wanted.head, "base": wanted.base}
        try:
            answer = endpoint.post_json(self._pulls, asked, key=self.token, headers=HEADERS)
        except NoAnswer as why:
            # Somebody was faster.
            if why.status == _VALIDATION_FAILED and (known := self._open(wanted)):
                return known, False
            raise self.convert_failure(why) from why
        return self.decode_answer(answer, OpenRequest).number, True

    def list_pull_requests(self, *, base: str = "", head: str = "") -> list[PullRequest]:
        """The open pull requests onto the branch `base`, or from the repository's branch `head`.

        Raises as `pull_request`.
        """
        owner = self.repository.partition("/")[0]
        wanted = ({"base": base} if base else {}) | ({"head": f"{owner}:{head}"} if head else {})
        found: list[PullRequest] = []
        for page in range(1, _MOST_PAGES + 1):
            asked = urlencode({"state": "open", "per_page": _PAGE, "page": page, **wanted})
            try:
                answer = endpoint.get(f"{self._pulls}?{asked}", key=self.token, headers=HEADERS)
            except NoAnswer as why:
                raise self.convert_failure(why, "The open pull requests could not be listed", _READABLE) from why
            some = self.decode_answer(answer, list[PullRequest])
            found += some
            if len(some) < _PAGE:
                break
        return found

    def can_write(self, login: str) -> bool:
        """Whether somebody may push to the repository; nobody knows it of a name that is none.

        Raises as `pull_request`.
        """
        if not _LOGIN.fullmatch(login):
            return False
        try:
            answer = endpoint.get(
                f"{self.repository_url}/collaborators/{login}/permission", key=self.token, headers=HEADERS
            )
        except NoAnswer as why:
            if why.status == _NOT_FOUND:
                return False
            raise self.convert_failure(why, "Who may write could not be asked", _METADATA) from why
        return self.decode_answer(answer, RepositoryRole).permission in ("admin", "write")

    @property
    def repository_url(self) -> str:
        return f"{self.url}/repos/{self.repository}"

    @property
    def _pulls(self) -> str:
        return f"{self.repository_url}/pulls"

    def _open(self, wanted: Proposal) -> int | None:
        owner = self.repository.partition("/")[0]
        asked = urlencode({"state": "open", "head": f"{owner}:{wanted.head}", "base": wanted.base})
        try:
            answer = endpoint.get(f"{self._pulls}?{asked}", key=self.token, headers=HEADERS)
        except NoAnswer as why:
            raise self.convert_failure(why) from why
        found = self.decode_answer(answer, list[OpenRequest])
        return found[0].number if found else None

    def decode_answer(self, answer: bytes, kind: type[_Answer]) -> _Answer:
        """Raises `RemoteUnreachable` for what is no such answer."""
        who = f"{self.url} does not answer as GitHub's API"
        return endpoint.decode_answer(answer, kind, who=who, hint="See GITHUB_API_URL of the runner.")

    def convert_failure(
        self, why: NoAnswer, what: str = "No pull request was opened", allowed: str = _ALLOWED
    ) -> VmragError:
        message = f"{what}: {self.url} {why.reason}."
        if why.status in endpoint.REFUSALS:
            return AuthenticationFailed(message, hint=allowed)
        if why.status is not None and why.status < endpoint.SERVER_ERRORS:
            return RemoteRejected(message, hint=allowed)
        return RemoteUnreachable(message, hint="Run the job again.")

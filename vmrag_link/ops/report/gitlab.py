"""Write the comment on a report as the only note of vmrag on a GitLab merge request. (A *note* is
GitLab's word for a comment.)

The note is identified by its first line, which is not displayed, and by its author. Without the
line, another note of the same user would be overwritten; without the author, the note of another
person who copied the line. This uses Python's standard library for the API, so a job needs no
extra.
"""

from __future__ import annotations

import http.client
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from vmrag_link import endpoint, env
from vmrag_link.errors import AuthenticationFailed, RemoteRejected, RemoteUnreachable, UsageInvalid, VmragError
from vmrag_link.models import Record
from vmrag_link.ops.report.comment import MARKER

RETRY_PAUSES = (1.0, 5.0)
"""Seconds before the second and the third attempt."""

_MAX_PAUSE_SECONDS = 60.0
_TIMEOUT_SECONDS = 30.0
_MAX_BYTES = 110_000_000
"""Maximum size of a response: a page of a hundred notes of maximum length."""

_NOTES_PER_PAGE = 100
_MAX_PAGES = 100
_NOT_FOUND = 404
_REFERENCE = re.compile(r"[#!~%$&^*](?=\w)")

_ACCESS_HINT = "set GITLAB_TOKEN to a project access token with the scope api and the role Reporter (a job token cannot write notes)"
_Kind = TypeVar("_Kind")

NoteOutcome = Literal["none", "created", "edited", "unchanged"]


class NoteAuthor(Record, frozen=True):
    id: int


class Note(Record, frozen=True):
    """A note on the merge request."""

    id: int
    author: NoteAuthor
    body: str = ""
    system: bool = False
    """True if GitLab wrote it for a user's action."""


class _TransientFailure(Exception):
    """A failed attempt that can be repeated, after `wait` seconds at the earliest."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, because urllib would send the token to their target."""

    def redirect_request(self, *_: Any) -> None:
        return None


def escape_references(markdown: str) -> str:
    """Return the comment without texts that other programs take for references.

    GitLab ignores references in code spans when it renders the page, and all untrusted texts are in
    code spans. Other programs search the raw text for `#1` and `~label`. A word joiner, which has
    no width, separates these here, like `code` separates `@all`.
    """
    return _REFERENCE.sub("\\g<0>\u2060", markdown)


class MergeRequest(NamedTuple):
    """A merge request on GitLab, and how to reach its notes."""

    api: str
    """The URL of GitLab's API."""
    url: str
    """The URL of the notes."""
    token: str
    number: int
    job_page: str
    """The page of this job."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> MergeRequest:
        """Return the merge request of this job. Raises `UsageInvalid`."""
        api, project, number, token, job_page = env.read_gitlab_job(environ)
        if not (project.isdecimal() and number.isdecimal() and endpoint.is_private(api)):
            raise UsageInvalid(
                "this is not a job of a GitLab merge request with an https API.",
                hint="add to the job: 'rules: - if: $CI_PIPELINE_SOURCE == \"merge_request_event\"'",
            )
        if not token or not token.isascii() or not token.isprintable():
            raise UsageInvalid("the variable GITLAB_TOKEN has no token.", hint=_ACCESS_HINT)
        return cls(api, f"{api}/projects/{project}/merge_requests/{number}/notes", token, int(number), job_page)

    def update_note(self, markdown: str, *, speaks: bool) -> NoteOutcome:
        """Create or update vmrag's note, and delete further ones.

        `markdown` begins with `MARKER`. `speaks`: there is something to report. Otherwise only an
        existing note is updated. Raises
        `AuthenticationFailed`, `RemoteRejected` and `RemoteUnreachable`.
        """
        text = escape_references(markdown)
        for pause in (*RETRY_PAUSES, None):
            try:
                return self._update_once(text, speaks=speaks)  # reads the notes again, so that none is written twice
            except _TransientFailure as failure:
                if pause is None or failure.wait > _MAX_PAUSE_SECONDS:
                    raise RemoteUnreachable(f"{self._error_prefix} {failure}.", hint="run the job again") from failure
                time.sleep(max(pause, failure.wait))
        raise AssertionError  # the last attempt returns or raises

    def _update_once(self, text: str, *, speaks: bool) -> NoteOutcome:
        user_id = self._decode_answer(self._send_request("GET", f"{self.api}/user"), NoteAuthor).id
        own_notes = [note for note in self._list_notes() if _is_ours(note, user_id)]
        if not own_notes:
            if not speaks:
                return "none"
            self._send_request("POST", self.url, {"body": text})
            return "created"
        first, *others = own_notes
        for note in others:  # two jobs started at the same time
            self._send_request("DELETE", f"{self.url}/{note.id}")
        if first.body.split() == text.split():  # GitLab trims a note and changes its line ends
            return "unchanged"
        self._send_request("PUT", f"{self.url}/{first.id}", {"body": text})
        return "edited"

    def _list_notes(self) -> Iterator[Note]:
        """Yield the notes, the oldest first. The last page is the first one that is not full."""
        for page in range(1, _MAX_PAGES + 1):
            url = f"{self.url}?order_by=created_at&sort=asc&per_page={_NOTES_PER_PAGE}&page={page}"
            notes = self._decode_answer(self._send_request("GET", url), list[Note])
            yield from notes
            if len(notes) < _NOTES_PER_PAGE:
                return

    def _send_request(self, method: str, url: str, body: object = None) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"PRIVATE-TOKEN": self.token, "Content-Type": "application/json"}
        request = Request(url, content, headers, method=method)  # noqa: S310  `from_environment` checked the URL
        try:
            with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_SECONDS) as answer:
                body_read: bytes = answer.read(_MAX_BYTES)
                return body_read
        except HTTPError as refused:
            with refused:
                raise self._build_failure(refused) from None
        except (OSError, http.client.HTTPException) as error:
            raise _TransientFailure(f"cannot be reached ({type(error).__name__})") from error

    def _build_failure(self, refused: HTTPError) -> VmragError | _TransientFailure:
        """Return the error of a response. It contains only the status, because bodies may contain
        tokens.
        """
        if refused.code == endpoint.TOO_MANY or refused.code >= endpoint.SERVER_ERRORS:
            wait = refused.headers.get("Retry-After", "")
            return _TransientFailure(f"answered {refused.code}", float(wait) if wait.isdecimal() else 0.0)
        message = f"{self._error_prefix} answered {refused.code}."
        if refused.code in endpoint.REFUSALS:
            return AuthenticationFailed(message, hint=_ACCESS_HINT)
        hint = _ACCESS_HINT
        if refused.code == _NOT_FOUND:
            hint = f"check the permissions, because GitLab also answers so without access, and {_ACCESS_HINT}"
        return RemoteRejected(message, hint=hint)

    def _decode_answer(self, answer: bytes, kind: type[_Kind]) -> _Kind:
        who = f"{self._error_prefix} does not answer as GitLab's API"
        return endpoint.decode_answer(answer, kind, who=who, hint="check CI_API_V4_URL of the job")

    @property
    def _error_prefix(self) -> str:
        return f"the note was not written: {self.api}"


def _is_ours(note: Note, user_id: int) -> bool:
    return note.author.id == user_id and not note.system and note.body.splitlines()[:1] == [MARKER]

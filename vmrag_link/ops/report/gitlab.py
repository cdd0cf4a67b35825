"""The comment on a report as the one note of ours on a merge request of GitLab.

The note is known by its first line, which nobody sees, and by its author. Without the first,
another note of the same user would be overwritten; without the second, that of a stranger who
copied the line. The API is asked by Python's own library: a job needs no extra for it.
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
_LONGEST_PAUSE = 60.0
_SECONDS = 30.0
_MOST_BYTES = 110_000_000
"""Of an answer: a page of a hundred notes, each as long as one may be."""

_PAGE, _MOST_PAGES = 100, 100
_NOT_FOUND = 404
_REFERENCE = re.compile(r"[#!~%$&^*](?=\w)")

_ALLOWED = (
    "GITLAB_TOKEN: a project access token with the scope api and the role Reporter; a job's own may write no notes"
)
_Kind = TypeVar("_Kind")

NoteOutcome = Literal["none", "created", "edited", "unchanged"]


class NoteAuthor(Record, frozen=True):
    id: int


class Note(Record, frozen=True):
    """`system`: written by GitLab itself, in the name of whoever did something."""

    id: int
    author: NoteAuthor
    body: str = ""
    system: bool = False


class _Again(Exception):
    """An attempt that failed, and the next one may not, after `wait` seconds at the earliest."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class _NoRedirect(HTTPRedirectHandler):
    """urllib would send the token along to wherever an answer leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


def escape_references(markdown: str) -> str:
    """The comment with nothing in strangers' texts that GitLab takes for a reference.

    It minds none in a code span, as all of them are, when it has rendered the page. Other programs
    look for `#1` and `~label` in what is raw, as for `@all`, which `code` keeps apart: a word
    joiner, which has no width, does so here.
    """
    return _REFERENCE.sub("\\g<0>\u2060", markdown)


class MergeRequest(NamedTuple):
    """The merge request at `url`, in GitLab's API at `api`. `job_page`: that of this job."""

    api: str
    url: str
    token: str
    number: int
    job_page: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> MergeRequest:
        """The one of this job. Raises `UsageInvalid`."""
        api, project, number, token, job_page = env.read_gitlab_job(environ)
        if not (project.isdecimal() and number.isdecimal() and endpoint.is_private(api)):
            raise UsageInvalid(
                "This is no job of a GitLab merge request, whose API can be asked by https.",
                hint='rules: - if: $CI_PIPELINE_SOURCE == "merge_request_event"',
            )
        if not token or not token.isascii() or not token.isprintable():
            raise UsageInvalid("The variable GITLAB_TOKEN holds no token.", hint=_ALLOWED)
        return cls(api, f"{api}/projects/{project}/merge_requests/{number}/notes", token, int(number), job_page)

    def update_note(self, markdown: str, *, speaks: bool) -> NoteOutcome:
        """See that there is one note of ours, with this text, which begins with `MARKER`; none is
        begun unless it `speaks`.

        Raises `AuthenticationFailed`, `RemoteRejected`, `RemoteUnreachable`.
        """
        text = escape_references(markdown)
        for pause in (*RETRY_PAUSES, None):
            try:
                return self._settle(text, speaks=speaks)  # looks again, so that a note is not written twice
            except _Again as why:
                if pause is None or why.wait > _LONGEST_PAUSE:
                    raise RemoteUnreachable(f"{self._what} {why}.", hint="Run the job again.") from why
                time.sleep(max(pause, why.wait))
        raise AssertionError  # the last attempt returns or raises

    def _settle(self, text: str, *, speaks: bool) -> NoteOutcome:
        me = self._read(self._ask("GET", f"{self.api}/user"), NoteAuthor).id
        ours = [note for note in self._notes() if _is_ours(note, me)]
        if not ours:
            if not speaks:
                return "none"
            self._ask("POST", self.url, {"body": text})
            return "created"
        first, *others = ours
        for each in others:  # two jobs began at once
            self._ask("DELETE", f"{self.url}/{each.id}")
        if first.body.split() == text.split():  # GitLab trims a note, and has its own ends of lines
            return "unchanged"
        self._ask("PUT", f"{self.url}/{first.id}", {"body": text})
        return "edited"

    def _notes(self) -> Iterator[Note]:
        """The oldest first. The last page is one that is not full."""
        for page in range(1, _MOST_PAGES + 1):
            asked = f"{self.url}?order_by=created_at&sort=asc&per_page={_PAGE}&page={page}"
            some = self._read(self._ask("GET", asked), list[Note])
            yield from some
            if len(some) < _PAGE:
                return

    def _ask(self, method: str, url: str, body: object = None) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"PRIVATE-TOKEN": self.token, "Content-Type": "application/json"}
        request = Request(url, content, headers, method=method)  # noqa: S310  `of` looked at the address
        try:
            with build_opener(_NoRedirect).open(request, timeout=_SECONDS) as answer:
                found: bytes = answer.read(_MOST_BYTES)
                return found
        except HTTPError as refused:
            with refused:
                raise self._failure(refused) from None
        except (OSError, http.client.HTTPException) as error:
            raise _Again(f"cannot be reached ({type(error).__name__})") from error

    def _failure(self, refused: HTTPError) -> VmragError | _Again:
        """What is said of an answer is its number: bodies quote tokens."""
        if refused.code == endpoint.TOO_MANY or refused.code >= endpoint.SERVER_ERRORS:
            wait = refused.headers.get("Retry-After", "")
            return _Again(f"answered {refused.code}", float(wait) if wait.isdecimal() else 0.0)
        message = f"{self._what} answered {refused.code}."
        if refused.code in endpoint.REFUSALS:
            return AuthenticationFailed(message, hint=_ALLOWED)
        hint = f"It says so to whom it does not let in, too. {_ALLOWED}" if refused.code == _NOT_FOUND else _ALLOWED
        return RemoteRejected(message, hint=hint)

    def _read(self, answer: bytes, kind: type[_Kind]) -> _Kind:
        who = f"{self._what} does not answer as GitLab's API"
        return endpoint.decode_answer(answer, kind, who=who, hint="See CI_API_V4_URL of the job.")

    @property
    def _what(self) -> str:
        return f"The note was not written: {self.api}"


def _is_ours(note: Note, me: int) -> bool:
    return note.author.id == me and not note.system and note.body.splitlines()[:1] == [MARKER]

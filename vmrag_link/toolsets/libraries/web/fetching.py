"""Fetch a page, from checked addresses only, and within limits of size, time and redirections.

This module follows redirections, and checks each target like the first URL. `asking` sends the
single requests, and needs packages that the base installation leaves out.
"""

from __future__ import annotations

import http
from typing import TYPE_CHECKING

from vmrag_link import extras
from vmrag_link.errors import AccessDenied, FetchFailed, RemoteNotTrusted, UsageInvalid
from vmrag_link.models import Record
from vmrag_link.toolsets.libraries.web import urls
from vmrag_link.toolsets.libraries.web.addresses import Deadline, FetchLimits
from vmrag_link.toolsets.libraries.web.urls import PageUrl, next_url, parse_url

if TYPE_CHECKING:
    from vmrag_link.toolsets.libraries.web.asking import Response

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_NOT_MODIFIED = 304
_LOGIN = (401, 403)
_GONE = (404, 410)


class Fetched(Record, frozen=True):
    """A page, or the fact that it is `unchanged`: then there is no `data`.

    `url` is the final URL without credentials. `charset` is Python's name of an encoding.
    `last_modified` is ISO 8601 in UTC. Values that the server does not send are empty.
    """

    url: str
    unchanged: bool = False
    data: bytes = b""
    media_type: str = ""
    charset: str = ""
    etag: str = ""
    last_modified: str = ""


def fetch_page(url: str, *, limits: FetchLimits, etag: str = "", last_modified: str = "") -> Fetched:
    """Fetch the page at a URL.

    With an earlier `etag` and `last_modified`, only a changed page is sent.

    Raises `UsageInvalid` for an invalid URL, the errors of `limits.admit` for the URL and its
    redirections, `AccessDenied` for a private address, `FetchFailed`, and `IndexExtraMissing`
    without httpcore.
    """
    first = parse_url(url)
    page = first
    conditions = urls.build_conditions(etag, last_modified)
    deadline = Deadline(limits.timeout_s)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            limits.resolver.check_address(page.host)  # first, because consent to the host would not help
            limits.admit(page)
            answer = _send_checked(page, conditions, limits, deadline)
        except (AccessDenied, RemoteNotTrusted) as denied:
            if page == first:
                raise
            message = f"{first} redirects to {page}. {denied.message}"
            raise type(denied)(message, hint=denied.hint, **denied.details) from denied
        location = answer.headers.get("location")
        if answer.status not in _REDIRECTS or location is None:
            if answer.status == _NOT_MODIFIED and conditions:
                return _build_unchanged(page, answer, etag, last_modified)
            return _build_page(page, answer)
        page = _follow_redirection(page, location)
    raise FetchFailed(f"{first} redirects more than {MAX_REDIRECTS} times.", hint=_AS_IN_A_BROWSER, url=first.text)


def _send_checked(page: PageUrl, conditions: dict[str, str], limits: FetchLimits, deadline: Deadline) -> Response:
    try:
        from vmrag_link.toolsets.libraries.web.asking import send_request  # with what the base installation leaves out
    except ModuleNotFoundError as error:
        raise extras.missing_extra_error(
            "web", f"Fetching pages needs {error.name}, which is not installed."
        ) from error
    return send_request(page, conditions, limits, deadline)


_AS_IN_A_BROWSER = "use the address that a browser shows for the page"


def _follow_redirection(page: PageUrl, location: str) -> PageUrl:
    try:
        return next_url(page, location)
    except UsageInvalid as error:
        raise FetchFailed(
            f"{page} redirects to what cannot be fetched: {error.message}", hint=_AS_IN_A_BROWSER, url=page.text
        ) from error


def _build_unchanged(page: PageUrl, answer: Response, etag: str, last_modified: str) -> Fetched:
    return Fetched(
        page.text,
        unchanged=True,
        etag=urls.etag_of(answer.headers) or etag,
        last_modified=urls.last_modified_of(answer.headers) or last_modified,
    )


def _build_page(page: PageUrl, answer: Response) -> Fetched:
    """Return the page of an answer. Raises `FetchFailed` for an answer without one."""
    if not answer.is_complete:
        raise _build_refusal(page, answer)
    return Fetched(
        page.text,
        data=answer.body,
        media_type=urls.media_type_of(answer.headers),
        charset=urls.charset_of(answer.headers, answer.body),
        etag=urls.etag_of(answer.headers),
        last_modified=urls.last_modified_of(answer.headers),
    )


def _build_refusal(page: PageUrl, answer: Response) -> FetchFailed:
    try:
        phrase = f"{answer.status} {http.HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = str(answer.status)
    wait = urls.retry_after_of(answer.headers)
    if answer.status in _LOGIN:
        hint = "save it in a browser and import the file if it needs a login"
    elif answer.status in _GONE:
        hint = "look in a browser where the page is now"
    else:
        hint = f"try again in {wait} s" if wait else "try again later"
    return FetchFailed(
        f"{page} cannot be fetched: its server answered {phrase}.",
        hint=hint,
        http_status=answer.status,
        url=page.text,
        retry_after_s=wait,
    )

"""Services that answer JSON over HTTP: three attempts with growing pauses, then a pause for the
address.

A silent address is remembered in the whole process: a thousand texts do not wait for it a thousand
times.
"""

from __future__ import annotations

import datetime as dt
import functools
import ipaddress
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from vmrag_link import terminal_text

if TYPE_CHECKING:
    import httpx  # 0.1 s, only where a service is asked

ATTEMPTS = 3
PAUSES = (0.5, 2.0)
"""Seconds between the attempts, unless the service says otherwise."""

LONGEST_PAUSE = 15.0
"""The longest wait that a service may ask for (`Retry-After`), in seconds.

For a longer one there is no second attempt.
"""

OPEN_SECONDS = 30.0
"""Seconds for which a silent address is not asked again."""

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
LONGEST_SENTENCE = 300
TOO_MANY, SERVER_ERRORS = 429, 500
REFUSALS = (401, 403)

_open_until: dict[str, float] = {}


class NoAnswer(Exception):
    """The reason for no answer, as the end of a sentence about the service.

    `status`: HTTP's, if it came. The reply to a refused key is never part of it, because it quotes
    the key.
    """

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class _Again(Exception):
    """An attempt that failed, and the next one may not; not before `wait` seconds."""

    def __init__(self, reason: str, *, status: int | None = None, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.status, self.wait = reason, status, wait


def ask(
    url: str,
    body: object,
    *,
    key: str | None = None,
    seconds: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The answer to a POST of `body` as JSON, for which each attempt waits `seconds`.

    Raises `NoAnswer`, and `ModuleNotFoundError` without httpx.
    """
    return _ask(url, msgspec.json.encode(body), key, seconds, headers)


def read(url: str, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The answer to a GET. Raises as `ask`."""
    return _ask(url, None, key, None, headers)


def _ask(
    url: str, content: bytes | None, key: str | None, seconds: float | None, headers: Mapping[str, str] | None
) -> bytes:
    """A POST of `content`, or (None) a GET."""
    pause = _open_until.get(url, 0.0) - time.monotonic()
    if pause > 0:
        raise NoAnswer(f"did not answer a moment ago, and is asked again in {math.ceil(pause)} s")
    sent = dict(headers or {}) | ({"Authorization": f"Bearer {key}"} if key else {})
    for attempt in range(ATTEMPTS):
        try:
            return _attempt(url, content, key, sent, ANSWER_SECONDS if seconds is None else seconds)
        except _Again as failed:
            if attempt == len(PAUSES) or failed.wait > LONGEST_PAUSE:
                _open_until[url] = time.monotonic() + OPEN_SECONDS
                raise NoAnswer(failed.reason, status=failed.status) from failed
            time.sleep(max(failed.wait, PAUSES[attempt]))
    raise AssertionError  # the last attempt returns or raises


def _attempt(url: str, content: bytes | None, key: str | None, headers: Mapping[str, str], seconds: float) -> bytes:
    import httpx

    method, typed = ("GET", {}) if content is None else ("POST", {"Content-Type": "application/json"})
    timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
    try:
        answer = _client(direct=_is_here(url)).request(
            method, url, content=content, headers={**typed, **headers}, timeout=timeout, follow_redirects=False
        )
    except httpx.TimeoutException as error:
        raise _Again("did not answer in time") from error
    except httpx.RequestError as error:
        raise _Again(f"cannot be reached ({str(error) or type(error).__name__})") from error
    if answer.status_code == TOO_MANY or answer.status_code >= SERVER_ERRORS:
        raise _Again(
            _failure(answer, key), status=answer.status_code, wait=_retry_seconds(answer.headers.get("Retry-After"))
        )
    if not answer.is_success:
        raise NoAnswer(_failure(answer, key), status=answer.status_code)
    return answer.content


@functools.cache
def _client(*, direct: bool) -> httpx.Client:
    """One client per process keeps connections open.

    `direct`: past any proxy of the environment.
    """
    import httpx

    try:
        return httpx.Client(trust_env=not direct)
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise NoAnswer(f"cannot be asked through the proxy that the environment names ({error})") from error


def is_private(url: str) -> bool:
    """Whether requests to it are private: by https, or because it is this machine."""
    return urlsplit(url).scheme == "https" or _is_here(url)


def _is_here(url: str) -> bool:
    """Whether a URL names this machine, to which no proxy leads.

    `127.example.org` is another one's name.
    """
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _retry_seconds(retry_after: str | None) -> float:
    """Seconds of the header `Retry-After`, a number or a date; 0 for anything else."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    from email.utils import parsedate_to_datetime  # rarely needed, and it imports sockets

    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    aware = until if until.tzinfo else until.replace(tzinfo=dt.UTC)
    return max(0.0, (aware - dt.datetime.now(dt.UTC)).total_seconds())


def _failure(answer: httpx.Response, key: str | None) -> str:
    said = "" if answer.status_code in REFUSALS else _sentence(answer.content, key)
    return f"answered {answer.status_code} {answer.reason_phrase}".rstrip() + (f": {said}" if said else "")


def _sentence(content: bytes, key: str | None) -> str:
    """What a service says about an error, wherever in its JSON it does; empty if nowhere."""
    try:
        found = msgspec.json.decode(content)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return ""
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    if not isinstance(found, str):
        return ""
    hidden = found.replace(key, "…") if key else found
    return terminal_text.one_line(" ".join(hidden.split()))[:LONGEST_SENTENCE]

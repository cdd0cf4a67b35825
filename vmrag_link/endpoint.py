"""Services that answer JSON over HTTP: three attempts with growing pauses, then a pause for the
address.

A silent address is remembered in the whole process: a thousand texts do not wait for it a thousand
times.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from vmrag_link import hosts, terminal_text

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
    return request("POST", url, body, headers=_keyed(headers, key), secrets=_secret(key), seconds=seconds, circuit=url)


def read(url: str, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The answer to a GET. Raises as `ask`."""
    return request("GET", url, headers=_keyed(headers, key), secrets=_secret(key), circuit=url)


def _keyed(headers: Mapping[str, str] | None, key: str | None) -> dict[str, str]:
    return dict(headers or {}) | ({"Authorization": f"Bearer {key}"} if key else {})


def _secret(key: str | None) -> tuple[str, ...]:
    return (key,) if key else ()


def request(
    method: str,
    url: str,
    body: object = None,
    *,
    headers: Mapping[str, str],
    circuit: str,
    secrets: Sequence[str] = (),
    seconds: float | None = None,
    most: int | None = None,
    once: bool = False,
) -> bytes:
    """As `ask`, with any method. `circuit`: the name under which a silent service is remembered.

    `secrets` are left out of messages. `most`: bytes of an answer, which then has to be there whole
    within `seconds`. `once`: a refusal is expected, so nothing is tried again, and a silent service
    is asked, too.
    """
    pause = _open_until.get(circuit, 0.0) - time.monotonic()
    if pause > 0 and not once:
        raise NoAnswer(f"did not answer a moment ago, and is asked again in {math.ceil(pause)} s")
    asked = _Asked(
        method,
        url,
        None if body is None else msgspec.json.encode(body),
        headers if body is None else {"Content-Type": "application/json", **headers},
        ANSWER_SECONDS if seconds is None else seconds,
        secrets,
        most,
    )
    for attempt in range(ATTEMPTS):
        try:
            return _attempt(asked)
        except _Again as failed:
            if once:
                raise NoAnswer(failed.reason, status=failed.status) from failed
            if attempt == len(PAUSES) or failed.wait > LONGEST_PAUSE:
                _open_until[circuit] = time.monotonic() + OPEN_SECONDS
                raise NoAnswer(failed.reason, status=failed.status) from failed
            time.sleep(max(failed.wait, PAUSES[attempt]))
    raise AssertionError  # the last attempt returns or raises


class _Asked(NamedTuple):
    method: str
    url: str
    content: bytes | None
    headers: Mapping[str, str]
    seconds: float
    secrets: Sequence[str]
    most: int | None


def _attempt(asked: _Asked) -> bytes:
    import httpx

    timeout = httpx.Timeout(asked.seconds, connect=min(CONNECT_SECONDS, asked.seconds))
    try:
        with _client(direct=_is_here(asked.url)).stream(
            asked.method,
            asked.url,
            content=asked.content,
            headers=asked.headers,
            timeout=timeout,
            follow_redirects=False,
        ) as answer:
            content = _content(answer, asked)
    except httpx.TimeoutException as error:
        raise _Again("did not answer in time") from error
    except httpx.RequestError as error:
        raise _Again(f"cannot be reached ({str(error) or type(error).__name__})") from error
    if answer.status_code == TOO_MANY or answer.status_code >= SERVER_ERRORS:
        wait = _retry_seconds(answer.headers.get("Retry-After"))
        raise _Again(_failure(answer, content, asked.secrets), status=answer.status_code, wait=wait)
    if not answer.is_success:
        raise NoAnswer(_failure(answer, content, asked.secrets), status=answer.status_code)
    return content


def _content(answer: httpx.Response, asked: _Asked) -> bytes:
    """The whole answer, as long as it is neither larger nor slower than what was asked for."""
    deadline = time.monotonic() + asked.seconds
    pieces, size = list[bytes](), 0
    for piece in answer.iter_bytes():
        pieces.append(piece)
        size += len(piece)
        if asked.most is not None and size > asked.most:
            raise NoAnswer(f"answered with more than the {asked.most} bytes that it was asked for")
        if asked.most is not None and time.monotonic() > deadline:
            raise _Again("did not answer in time")
    return b"".join(pieces)


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
    return hosts.is_loopback(urlsplit(url).hostname or "")


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


def _failure(answer: httpx.Response, content: bytes, secrets: Sequence[str]) -> str:
    said = "" if answer.status_code in REFUSALS else _sentence(content, secrets)
    return f"answered {answer.status_code} {answer.reason_phrase}".rstrip() + (f": {said}" if said else "")


def _sentence(content: bytes, secrets: Sequence[str]) -> str:
    """What a service says about an error, wherever in its JSON it does; empty if nowhere."""
    try:
        found = msgspec.json.decode(content)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return ""
    if isinstance(found, dict) and isinstance(found.get("error"), str) and isinstance(found.get("message"), str):
        found = found["message"]  # Chroma's `error` is a class of errors
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    if not isinstance(found, str):
        return ""
    for secret in secrets:
        found = found.replace(secret, "…")
    return terminal_text.one_line(" ".join(found.split()))[:LONGEST_SENTENCE]

"""Services that answer JSON over HTTP: three attempts with growing pauses, then a pause for the
address.

A silent address is remembered in the whole process: a thousand texts do not wait for it a thousand
times. Every answer is a stranger's, so it is bounded in bytes, packed and unpacked, and an attempt
in time: from its beginning to the last byte, however slowly they drip.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from vmrag_link import hosts, terminal_text
from vmrag_link.errors import RemoteUnreachable
from vmrag_link.http_body import GZIP, BodyDamaged, BodyTooLarge, gunzip, read_body

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

MOST_BYTES = 100_000_000
"""Of an answer, unless the caller says fewer: 256 vectors of 16,384 numbers take 90 million."""

LONGEST_SENTENCE = 300
TOO_MANY, SERVER_ERRORS = 429, 500
FORBIDDEN = 403
"""With a `Retry-After` it is how GitHub says that somebody asks too often."""

REFUSALS = (401, FORBIDDEN)

_open_until: dict[str, float] = {}
_Answer = TypeVar("_Answer")


class NoAnswer(Exception):
    """The reason for no answer, as the end of a sentence about the service.

    `status`: HTTP's, if it came. `wait`: of what was asked once, the seconds after which it may be
    otherwise; None where nothing says so, or enough attempts were made. `location`: where a
    redirection leads, which nobody follows here. The reply to a refused key is never part of it,
    because it quotes the key.
    """

    def __init__(
        self, reason: str, *, status: int | None = None, wait: float | None = None, location: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.wait = wait
        self.location = location


def decode_answer(content: bytes, kind: type[_Answer], *, who: str, hint: str) -> _Answer:
    """What an API says, by its types. Raises `RemoteUnreachable` for what is no such answer."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteUnreachable(f"{who}: {error}", hint=hint) from error


class _Again(Exception):
    """An attempt that failed, and the next one may not; not before `wait` seconds."""

    def __init__(self, reason: str, *, status: int | None = None, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.status, self.wait = reason, status, wait


def post_json(
    url: str,
    body: object,
    *,
    key: str | None = None,
    seconds: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The answer to a POST of `body` as JSON, which has to be there whole within `seconds` of each
    attempt.

    Raises `NoAnswer`, and `ModuleNotFoundError` without httpx.
    """
    return send_request(
        "POST", url, body, headers=_keyed(headers, key), secrets=_secret(key), seconds=seconds, circuit=url
    )


def get(url: str, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The answer to a GET. Raises as `ask`."""
    return send_request("GET", url, headers=_keyed(headers, key), secrets=_secret(key), circuit=url)


def _keyed(headers: Mapping[str, str] | None, key: str | None) -> dict[str, str]:
    return dict(headers or {}) | ({"Authorization": f"Bearer {key}"} if key else {})


def _secret(key: str | None) -> tuple[str, ...]:
    return (key,) if key else ()


def send_request(
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
    patience: float = LONGEST_PAUSE,
) -> bytes:
    """As `ask`, with any method. `circuit`: the name under which a silent service is remembered.

    `secrets` are left out of messages. `most`: bytes of an answer. `once`: a refusal is expected,
    so nothing is tried again, and a silent service is asked, too. `patience`: the longest wait that
    the service may ask for.
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
        MOST_BYTES if most is None else most,
    )
    for attempt in range(ATTEMPTS):
        try:
            return _attempt(asked)
        except _Again as failed:
            if once:
                raise NoAnswer(failed.reason, status=failed.status, wait=failed.wait) from failed
            if attempt == len(PAUSES) or failed.wait > patience:
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
    most: int


class _Line:
    """A client that one request at a time uses: it keeps its connection open for the next one.

    httpx limits each read of a socket, not all of them together. What takes too long is cut off by
    shutting down the sockets, which ends a read that waits.
    """

    def __init__(self, *, direct: bool) -> None:
        """`direct`: past any proxy of the environment."""
        import httpx

        self._sockets = weakref.WeakSet[socket.socket]()
        self._lock = threading.Lock()
        self._request: object = None
        self.cut_off = False
        try:
            self.client = httpx.Client(trust_env=not direct)
        except (ValueError, ImportError, httpx.InvalidURL) as error:
            raise NoAnswer(f"cannot be asked through the proxy that the environment names ({error})") from error

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """End the block's request after so many seconds; `cut_off` says whether that happened."""
        request, self.cut_off = object(), False
        self._request = request
        timer = threading.Timer(seconds, self._cut, (request,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:  # a timer that has just run out finds another request, and leaves it
                self._request = None

    def trace(self, event: str, details: Mapping[str, Any]) -> None:
        """Remember each socket that is opened: httpx's extension of this name calls it."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._sockets.add(details["return_value"].get_extra_info("socket"))
            if self.cut_off:
                self._cut(self._request)

    def _cut(self, request: object) -> None:
        with self._lock:
            if request is None or request is not self._request:
                return
            self.cut_off = True
            for each in list(self._sockets):
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)  # TLS is left to the thread that reads it


_idle: dict[bool, list[_Line]] = {True: [], False: []}


@contextlib.contextmanager
def _line(*, direct: bool) -> Iterator[_Line]:
    """One that nobody uses, or a new one."""
    try:
        line = _idle[direct].pop()
    except IndexError:
        line = _Line(direct=direct)
    try:
        yield line
    finally:
        _idle[direct].append(line)


def _attempt(asked: _Asked) -> bytes:
    import httpx

    timeout = httpx.Timeout(asked.seconds, connect=min(CONNECT_SECONDS, asked.seconds))
    try:
        with (
            _line(direct=_is_here(asked.url)) as line,
            line.limited(asked.seconds),
            line.client.stream(
                asked.method,
                asked.url,
                content=asked.content,
                headers={"Accept-Encoding": GZIP[0], **asked.headers},
                timeout=timeout,
                follow_redirects=False,
                extensions={"trace": line.trace},
            ) as answer,
        ):
            content = _content(answer, asked.most)
    except httpx.TimeoutException as error:
        raise _Again("did not answer in time") from error
    except httpx.RequestError as error:
        if line.cut_off:
            raise _Again("did not answer in time") from error
        raise _Again(f"cannot be reached ({str(error) or type(error).__name__})") from error
    if line.cut_off:
        raise _Again("did not answer in time")  # the end of what came may be ours
    later = answer.headers.get("Retry-After")
    if answer.status_code in (TOO_MANY, *([FORBIDDEN] if later else [])) or answer.status_code >= SERVER_ERRORS:
        raise _Again(_failure(answer, content, asked.secrets), status=answer.status_code, wait=_retry_seconds(later))
    if not answer.is_success:
        reason, location = _failure(answer, content, asked.secrets), answer.headers.get("Location", "")
        raise NoAnswer(reason, status=answer.status_code, location=location)
    return content


def _content(answer: httpx.Response, most: int) -> bytes:
    """The whole answer, unpacked here: httpx unpacks any number of bytes."""
    try:
        body = read_body(answer.iter_raw(), most)
        encoding = answer.headers.get("Content-Encoding", "identity").lower()
        if encoding in GZIP:
            return gunzip(body, most)
    except BodyTooLarge:
        raise NoAnswer(f"answered with more than the {most} bytes that it was asked for") from None
    except BodyDamaged:
        raise NoAnswer("answered with something packed that cannot be unpacked") from None
    if encoding not in ("identity", ""):
        raise NoAnswer("answered with something packed as nobody asked for")
    return body


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
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
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
    return terminal_text.escape_line(" ".join(found.split()))[:LONGEST_SENTENCE]

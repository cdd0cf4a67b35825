"""Requests to services that answer JSON over HTTP, with three attempts and growing pauses.

If a service does not answer, the whole process remembers its address for a while. A thousand texts
then do not wait a thousand times. Answers are untrusted, so their size is limited, packed and
unpacked. An attempt has a time limit from its beginning to the last byte, even if the bytes arrive
slowly.
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
    import httpx  # 0.1 s, only if a service is contacted

ATTEMPTS = 3
PAUSES = (0.5, 2.0)
"""Seconds between the attempts, unless the service asks for another pause."""

MAX_PAUSE_SECONDS = 15.0
"""The longest pause in seconds that a service can ask for (`Retry-After`). If it asks for a longer
one, there is no second attempt.
"""

OPEN_SECONDS = 30.0
"""Seconds for which vmrag does not contact an address that did not answer."""

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0

MAX_ANSWER_BYTES = 100_000_000
"""Maximum size of an answer, unless the caller sets a lower one. 256 vectors of 16,384 numbers take
90 million bytes.
"""

MAX_MESSAGE_LENGTH = 300
TOO_MANY, SERVER_ERRORS = 429, 500
FORBIDDEN = 403
"""With a `Retry-After`, GitHub reports that a client sends too many requests."""

REFUSALS = (401, FORBIDDEN)

_open_until: dict[str, float] = {}
_Answer = TypeVar("_Answer")


class NoAnswer(Exception):
    """The reason why there is no answer, as the end of a sentence about the service.

    The reason never contains the reply to a refused key, because that reply quotes the key.
    """

    def __init__(
        self, reason: str, *, status: int | None = None, wait: float | None = None, location: str = ""
    ) -> None:
        """Store the reason and its details.

        `status` is the HTTP status, if one arrived. `wait` is the number of seconds after which
        another attempt can succeed, or None if the service names none or all attempts were made.
        `location` is the target of a redirection, which is not followed.
        """
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.wait = wait
        self.location = location


def decode_answer(content: bytes, kind: type[_Answer], *, who: str, hint: str) -> _Answer:
    """Decode the answer of an API by its types.

    Raises `RemoteUnreachable` if the answer has other types.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteUnreachable(f"{who}: {error}", hint=hint) from error


class _RetryableError(Exception):
    """A failed attempt that is worth another one, after `wait` seconds."""

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
    """Send `body` as JSON by POST, and return the answer.

    The whole answer must arrive within `seconds` of each attempt. Raises `NoAnswer`, and
    `ModuleNotFoundError` without httpx.
    """
    return send_request(
        "POST", url, body, headers=_add_key(headers, key), secrets=_list_secrets(key), seconds=seconds, circuit=url
    )


def get(url: str, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """Send a GET request, and return the answer.

    Raises `NoAnswer`, and `ModuleNotFoundError` without httpx.
    """
    return send_request("GET", url, headers=_add_key(headers, key), secrets=_list_secrets(key), circuit=url)


def _add_key(headers: Mapping[str, str] | None, key: str | None) -> dict[str, str]:
    return dict(headers or {}) | ({"Authorization": f"Bearer {key}"} if key else {})


def _list_secrets(key: str | None) -> tuple[str, ...]:
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
    max_bytes: int | None = None,
    once: bool = False,
    patience: float = MAX_PAUSE_SECONDS,
) -> bytes:
    """Send a request with any method, and return the answer.

    A service that does not answer is remembered under the name `circuit`. Messages do not contain
    `secrets`. `max_bytes` limits the bytes of the answer. With `once`, a refusal is expected: there
    is only one attempt, and a silent service is contacted too. `patience` is the longest pause in
    seconds that the service can ask for.

    Raises `NoAnswer`, and `ModuleNotFoundError` without httpx.
    """
    pause = _open_until.get(circuit, 0.0) - time.monotonic()
    if pause > 0 and not once:
        raise NoAnswer(f"did not answer recently, and is not contacted for {math.ceil(pause)} s")
    details = _Request(
        method=method,
        url=url,
        content=None if body is None else msgspec.json.encode(body),
        headers=headers if body is None else {"Content-Type": "application/json", **headers},
        seconds=ANSWER_SECONDS if seconds is None else seconds,
        secrets=secrets,
        max_bytes=MAX_ANSWER_BYTES if max_bytes is None else max_bytes,
    )
    for attempt in range(ATTEMPTS):
        try:
            return _attempt_request(details)
        except _RetryableError as failed:
            if once:
                raise NoAnswer(failed.reason, status=failed.status, wait=failed.wait) from failed
            if attempt == len(PAUSES) or failed.wait > patience:
                _open_until[circuit] = time.monotonic() + OPEN_SECONDS
                raise NoAnswer(failed.reason, status=failed.status) from failed
            time.sleep(max(failed.wait, PAUSES[attempt]))
    raise AssertionError  # the last attempt returns or raises


class _Request(NamedTuple):
    method: str
    url: str
    content: bytes | None
    headers: Mapping[str, str]
    seconds: float
    secrets: Sequence[str]
    max_bytes: int


class _Connection:
    """An HTTP client for one request at a time, which keeps its connection open.

    httpx limits the time of each read of a socket, but not of all reads together. A request that
    takes too long is cut off by shutting down its sockets, which ends a pending read.
    """

    def __init__(self, *, direct: bool) -> None:
        """Create a client. With `direct`, it ignores the proxies of the environment."""
        import httpx

        self._sockets = weakref.WeakSet[socket.socket]()
        self._lock = threading.Lock()
        self._request: object = None
        self.is_cut_off = False
        try:
            self.client = httpx.Client(trust_env=not direct)
        except (ValueError, ImportError, httpx.InvalidURL) as error:
            raise NoAnswer(f"cannot be reached through the proxy of the environment ({error})") from error

    @contextlib.contextmanager
    def limit_time(self, seconds: float) -> Iterator[None]:
        """Cut the request of the block off after this many seconds, and record that in
        `is_cut_off`.
        """
        request, self.is_cut_off = object(), False
        self._request = request
        timer = threading.Timer(seconds, self._cut_connection, (request,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:  # a timer that has just run out finds another request, and leaves it
                self._request = None

    def trace(self, event: str, details: Mapping[str, Any]) -> None:
        """Record each opened socket. httpx calls its extension of this name."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._sockets.add(details["return_value"].get_extra_info("socket"))
            if self.is_cut_off:
                self._cut_connection(self._request)

    def _cut_connection(self, request: object) -> None:
        with self._lock:
            if request is None or request is not self._request:
                return
            self.is_cut_off = True
            for sock in list(self._sockets):
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS is left to the thread that reads it


_idle: dict[bool, list[_Connection]] = {True: [], False: []}


@contextlib.contextmanager
def _open_connection(*, direct: bool) -> Iterator[_Connection]:
    """Yield an idle connection, or a new one."""
    try:
        line = _idle[direct].pop()
    except IndexError:
        line = _Connection(direct=direct)
    try:
        yield line
    finally:
        _idle[direct].append(line)


def _attempt_request(details: _Request) -> bytes:
    import httpx

    timeout = httpx.Timeout(details.seconds, connect=min(CONNECT_SECONDS, details.seconds))
    try:
        with (
            _open_connection(direct=_is_here(details.url)) as line,
            line.limit_time(details.seconds),
            line.client.stream(
                details.method,
                details.url,
                content=details.content,
                headers={"Accept-Encoding": GZIP[0], **details.headers},
                timeout=timeout,
                follow_redirects=False,
                extensions={"trace": line.trace},
            ) as answer,
        ):
            content = _read_content(answer, details.max_bytes)
    except httpx.TimeoutException as error:
        raise _RetryableError("did not answer in time") from error
    except httpx.RequestError as error:
        if line.is_cut_off:
            raise _RetryableError("did not answer in time") from error
        raise _RetryableError(f"cannot be reached ({str(error) or type(error).__name__})") from error
    if line.is_cut_off:
        raise _RetryableError("did not answer in time")  # the connection may have been cut off here
    later = answer.headers.get("Retry-After")
    if answer.status_code in (TOO_MANY, *([FORBIDDEN] if later else [])) or answer.status_code >= SERVER_ERRORS:
        raise _RetryableError(
            _describe_failure(answer, content, details.secrets), status=answer.status_code, wait=_retry_seconds(later)
        )
    if not answer.is_success:
        reason = _describe_failure(answer, content, details.secrets)
        location = answer.headers.get("Location", "")
        raise NoAnswer(reason, status=answer.status_code, location=location)
    return content


def _read_content(answer: httpx.Response, max_bytes: int) -> bytes:
    """Return the whole answer, unpacked. httpx would unpack any number of bytes."""
    try:
        body = read_body(answer.iter_raw(), max_bytes)
        encoding = answer.headers.get("Content-Encoding", "identity").lower()
        if encoding in GZIP:
            return gunzip(body, max_bytes)
    except BodyTooLarge:
        raise NoAnswer(f"answered with more than {max_bytes} bytes") from None
    except BodyDamaged:
        raise NoAnswer("answered with damaged compressed data") from None
    if encoding not in ("identity", ""):
        raise NoAnswer("answered with an unsupported compression")
    return body


def is_private(url: str) -> bool:
    """Return whether requests to a URL are private: they use https, or stay on this machine."""
    return urlsplit(url).scheme == "https" or _is_here(url)


def _is_here(url: str) -> bool:
    """Return whether a URL names this machine, to which no proxy leads.

    `127.example.org` is another machine.
    """
    return hosts.is_loopback(urlsplit(url).hostname or "")


def _retry_seconds(retry_after: str | None) -> float:
    """Return the seconds of a `Retry-After` header, which is a number or a date; 0 for other
    values.
    """
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


def _describe_failure(answer: httpx.Response, content: bytes, secrets: Sequence[str]) -> str:
    message = "" if answer.status_code in REFUSALS else _find_message(content, secrets)
    return f"answered {answer.status_code} {answer.reason_phrase}".rstrip() + (f": {message}" if message else "")


def _find_message(content: bytes, secrets: Sequence[str]) -> str:
    """Return the error message in a service's JSON, wherever it is; an empty text if there is
    none.
    """
    try:
        value = msgspec.json.decode(content)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return ""
    if isinstance(value, dict) and isinstance(value.get("error"), str) and isinstance(value.get("message"), str):
        value = value["message"]  # Chroma's `error` is a class of errors
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    if not isinstance(value, str):
        return ""
    for secret in secrets:
        value = value.replace(secret, "…")
    return terminal_text.escape_line(" ".join(value.split()))[:MAX_MESSAGE_LENGTH]

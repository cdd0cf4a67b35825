"""Answers of services are bounded in size and in total time for each client: a language model, an
embedding service, GitHub's API.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.pace import slack
from vmrag_action.github_api import GitHub
from vmrag_link import endpoint
from vmrag_link.embedding import registry
from vmrag_link.errors import EmbeddingFailed, RemoteUnreachable
from vmrag_link.settings import EmbeddingSettings
from vmrag_link.toolsets.compounding.chat_model import ChatFailed, ChatModel, LlmSettings, Message

SECONDS = 1
MOST = 1_000_000
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PACKED = gzip.compress(b'"' + b"x" * (50 * MOST) + b'"')

Sent = Iterator[bytes]


def slowly(pieces: Sent) -> Sent:
    for piece in pieces:
        time.sleep(0.2)
        yield piece


def endless(piece: bytes) -> Sent:
    while True:
        yield piece


def dripping_headers() -> Sent:
    yield b"HTTP/1.1 200 OK\r\nX: "
    yield from slowly(endless(b"x"))


def dripping_body() -> Sent:
    yield OK + b"Content-Length: 100000\r\n\r\n"
    yield from slowly(endless(b" "))


def dripping_without_a_length() -> Sent:
    yield OK + b"Connection: close\r\n\r\n"
    yield from slowly(endless(b" "))


def continuing() -> Sent:
    yield from slowly(endless(b"HTTP/1.1 100 Continue\r\n\r\n"))


def without_an_end() -> Sent:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    yield from endless(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def said_to_be_huge() -> Sent:
    yield OK + b"Content-Length: 10000000000\r\n\r\n"
    yield from endless(b" " * 0x10000)


def a_bomb() -> Sent:
    yield OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED


def headers_without_an_end() -> Sent:
    yield OK
    yield from endless(b"X: " + b"x" * 1000 + b"\r\n")


def nesting() -> Sent:
    body = b"[" * 100_000
    yield b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@contextlib.contextmanager
def serving(sent: Callable[[], Sent]) -> Iterator[str]:
    """Serve these bytes on each connection as long as the client reads them."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(taken: socket.socket) -> None:
            with taken, contextlib.suppress(OSError):
                taken.recv(100_000)
                for piece in sent():
                    taken.sendall(piece)
                taken.shutdown(socket.SHUT_WR)
                taken.recv(1)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def ask_a_model(url: str) -> str:
    settings = LlmSettings(provider="openai", model="m", base_url=url, timeout_s=SECONDS)
    with pytest.raises(ChatFailed) as failed:
        ChatModel(settings, sends_key=False).request_answer([Message("user", "hello")])
    return failed.value.reason


def ask_for_vectors(url: str) -> str:
    allowed = registry.Permission(frozenset(["ollama"]), frozenset(["ollama"]))
    with pytest.raises(EmbeddingFailed) as failed:
        registry.load_model("ollama", EmbeddingSettings(ollama_url=url), allowed).embed(["a text"])
    return failed.value.message


def ask_github(url: str) -> str:
    with pytest.raises(RemoteUnreachable) as failed:
        GitHub(url, "them/project", "ghs_0").list_pull_requests()
    return failed.value.message


ASKING = (ask_a_model, ask_for_vectors, ask_github)


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(endpoint, "_open_until", {})
    monkeypatch.setattr(endpoint, "ANSWER_SECONDS", float(SECONDS))
    monkeypatch.setattr(endpoint, "MAX_ANSWER_BYTES", MOST)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sent", [dripping_headers, dripping_body, dripping_without_a_length, continuing])
@pytest.mark.parametrize("ask", ASKING)
@pytest.mark.sample(4)
def test_answer_that_drips_is_given_up_when_its_time_is_over(ask, sent):
    started = time.monotonic()
    with serving(sent) as url:
        assert "did not answer in time" in ask(url)
    assert time.monotonic() - started < endpoint.ATTEMPTS * (SECONDS + 4) * slack()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sent", [without_an_end, said_to_be_huge, a_bomb])
@pytest.mark.parametrize("ask", ASKING)
def test_endless_answer_is_cut_off_also_if_compressed(ask, sent):
    with serving(sent) as url:
        assert f"more than {MOST} bytes" in ask(url)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ask", ASKING)
def test_endless_headers_are_reported_as_unreachable(ask):
    with serving(headers_without_an_end) as url:
        assert "cannot be reached" in ask(url)


@pytest.mark.parametrize("ask", ASKING[:2])
def test_deeply_nested_answer_is_reported_without_message(ask):
    with serving(nesting) as url:
        assert "answered 400 Bad" in ask(url)


def test_request_after_a_cut_off_answer_succeeds():
    with serving(dripping_body) as url:
        ask_for_vectors(url)
    body = b'{"embeddings": [[3.0, 4.0]]}'
    with serving(lambda: iter([OK + b"Content-Length: %d\r\n\r\n" % len(body) + body])) as url:
        allowed = registry.Permission(frozenset(["ollama"]), frozenset(["ollama"]))
        model = registry.load_model("ollama", EmbeddingSettings(ollama_url=url), allowed)
        assert len(model.embed(["a text"])[0]) == 8

"""Models that a service computes: requests, use of the answers, and errors without an answer.

The services are one local server with the same protocols (tests/support/services.py): the real ones
need keys and a network.
"""

from __future__ import annotations

import logging
import math
import struct
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import services as support
from tests.support.services import KEY, KEYS, NAMES, Services
from vmrag_link import endpoint
from vmrag_link.embedding import registry
from vmrag_link.embedding import services as speaking
from vmrag_link.embedding.base import Model, make_uniform_vector
from vmrag_link.embedding.cache import EmbeddingCache, embed_texts
from vmrag_link.errors import EmbeddingFailed, EmbeddingMismatch, ServiceNotTrusted, UsageInvalid
from vmrag_link.models import Collection
from vmrag_link.settings import EmbeddingSettings

services = support.services
TEXTS = ["a checkout moves the knowledge base", "a recipe for apple pie", "日本語 \U0001f600"]
MODELS = {"openai": "text-embedding-3-small", "cohere": "embed-v4.0", "huggingface": "BAAI/bge-m3", "ollama": "bge-m3"}


def settings(services: Services, name: str, **others: str) -> EmbeddingSettings:
    return EmbeddingSettings(**{f"{name}_url": services.base(name), **others})


ALLOWED = registry.Permission(frozenset(NAMES), frozenset(NAMES))
"""Agreement of this machine's user to all services, with their addresses."""


def load(services: Services, name: str, **others: str) -> Model:
    return registry.load_model(name, settings(services, name, **others), ALLOWED)


def failure(model: Model, kind: type[EmbeddingFailed | EmbeddingMismatch] = EmbeddingFailed) -> Any:
    with pytest.raises(kind) as caught:
        model.embed(TEXTS)
    said = f"{caught.value.message} {caught.value.hint} {caught.value.details}"
    assert KEY not in said
    assert caught.value.details["embedding_function"] == model.name
    return caught.value


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEYS.values():
        monkeypatch.setenv(variable, KEY)


# -- what is sent, and what comes back


@pytest.mark.parametrize("name", NAMES)
def test_service_vectors_equal_those_of_its_texts_at_unit_length(services, key, name):
    model = load(services, name)
    same = registry.load_model("hash").embed(TEXTS)
    assert all(close(*pair) for pair in zip(model.embed(TEXTS), same, strict=True))
    assert model.dimensions == 256
    assert model.fingerprint == f"{name} {MODELS[name]} 256 unit v1"
    assert model.local is False
    assert len(services.requests) == 1


def close(one: bytes, other: bytes) -> bool:
    pairs = zip(struct.unpack("<256f", one), struct.unpack("<256f", other), strict=True)
    return all(math.isclose(a, b, abs_tol=1e-6) for a, b in pairs)


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("openai", "/v1/embeddings", {"model": "text-embedding-3-small", "input": ["x"]}),
        (
            "cohere",
            "/v2/embed",
            {
                "model": "embed-v4.0",
                "texts": ["x"],
                "input_type": "search_document",
                "embedding_types": ["float"],
                "truncate": "NONE",
            },
        ),
        (
            "huggingface",
            "/models/BAAI/bge-m3/pipeline/feature-extraction",
            {"inputs": ["x"], "normalize": True, "truncate": False},
        ),
        ("ollama", "/api/embed", {"model": "bge-m3", "input": ["x"], "truncate": False}),
    ],
)
def test_each_service_gets_its_own_request_format_and_key(services, key, name, path, body):
    load(services, name).embed(["x"])
    (request,) = services.requests
    assert (request.path, request.body) == (path, body)
    assert request.key == (None if name == "ollama" else KEY)


def test_only_cohere_gets_the_kind_of_input(services, key):
    for name in NAMES:
        load(services, name).embed_queries(["x"])
    assert [request.body.get("input_type") for request in services.requests] == [None, "search_query", None, None]


def test_server_that_is_not_the_services_own_needs_no_key(services):
    load(services, "openai").embed(TEXTS)
    assert services.requests[0].key is None


def test_many_texts_are_sent_in_batches_and_keep_their_order(services, key):
    texts = [f"text number {number}" for number in range(200)]
    assert load(services, "cohere").embed(texts) == [load(services, "cohere").embed([text])[0] for text in texts]
    assert [len(request.texts) for request in services.requests[:3]] == [96, 96, 8]


def test_long_texts_share_fewer_requests(services):
    load(services, "ollama").embed(["word " * 790] * 30)
    assert [len(request.texts) for request in services.requests] == [25, 5]


def test_text_beyond_the_window_is_embedded_in_whole_pieces(services):
    model = load(services, "ollama")
    text = "one " * 1000 + "two " * 1000 + "three"
    (vector,) = model.embed([text])
    assert "".join(services.requests[0].texts) == text
    assert max(map(len, services.requests[0].texts)) == model.window
    assert math.isclose(math.hypot(*struct.unpack("<256f", vector)), 1, abs_tol=1e-6)


def test_empty_text_is_not_sent(services):
    model = load(services, "openai")
    assert model.embed(["", "  \n", "x"])[:2] == [make_uniform_vector(256)] * 2
    assert [request.texts for request in services.requests] == [["x"]]
    assert model.embed([]) == []


def test_half_a_surrogate_pair_is_refused_before_anything_is_sent(services):
    with pytest.raises(EmbeddingFailed, match="offset 2"):
        load(services, "openai").embed(["ab\ud800"])
    assert services.requests == []


def test_dimensions_of_a_new_model_are_requested_once(services):
    model = load(services, "openai")
    assert services.requests == []
    assert (model.dimensions, model.fingerprint, model.dimensions) == (
        256,
        "openai text-embedding-3-small 256 unit v1",
        256,
    )
    assert len(services.requests) == 1


def test_text_is_never_sent_twice_to_a_service(services, tmp_path):
    cache, texts = EmbeddingCache(tmp_path / "vectors.sqlite"), {"a" * 64: "one", "b" * 64: "two"}
    first, _ = embed_texts(cache, load(services, "ollama"), texts)
    model = registry.choose_stored_model(made(services, "ollama"), settings(services, "ollama"), ALLOWED).load()
    services.requests.clear()
    again, counts = embed_texts(cache, model, texts | {"c" * 64: "three"})
    assert [request.texts for request in services.requests] == [["three"]]
    assert (counts.embedded, counts.cached) == (1, 2)
    assert {name: again[name] for name in texts} == first


# -- the model of a collection


def made(services: Services, name: str, **others: Any) -> Collection:
    model = load(services, name)
    row = Collection(
        "notes",
        embedding_function=name,
        embedding_model=model.fingerprint,
        embedding_dimensions=model.dimensions,
    )
    return Collection(**({struct_field: getattr(row, struct_field) for struct_field in row.__struct_fields__} | others))


@pytest.mark.parametrize("name", NAMES)
def test_collection_is_read_with_its_own_model_despite_the_settings(services, key, name):
    collection = made(services, name)
    services.requests.clear()
    other = {f"{name}_model": "another", "model": "hash"}
    model = registry.choose_stored_model(collection, settings(services, name, **other), ALLOWED).load()
    assert (model.fingerprint, model.dimensions) == (collection.embedding_model, 256)
    assert services.requests == []
    model.embed(["x"])
    assert MODELS[name] in (services.requests[0].body.get("model"), services.requests[0].path.split("/pipeline")[0][8:])


@pytest.mark.parametrize(
    "fingerprint",
    [
        "",
        "openai text-embedding-3-small 256 unit v2",
        "cohere text-embedding-3-small 256 unit v1",
        "openai text-embedding-3-small 0 unit v1",
        "openai text-embedding-3-small 99999 unit v1",
        "openai ../../v1/files 256 unit v1",
        "openai a//b 256 unit v1",
        "openai a/.b 256 unit v1",
        "openai a?b 256 unit v1",
        "openai a b 256 unit v1",
        "openai text-embedding-3-small 256 unit v1\n",
    ],
)
def test_fingerprint_that_this_version_does_not_write_is_a_mismatch(services, fingerprint):
    row = made(services, "openai", embedding_model=fingerprint)
    with pytest.raises(EmbeddingMismatch):
        registry.choose_stored_model(row, EmbeddingSettings())


def test_collection_with_other_dimensions_than_its_model_is_a_mismatch(services):
    with pytest.raises(EmbeddingMismatch):
        registry.choose_stored_model(made(services, "openai", embedding_dimensions=7), EmbeddingSettings())


def test_different_model_of_the_same_name_is_a_mismatch(services):
    model = registry.choose_stored_model(made(services, "openai"), settings(services, "openai"), ALLOWED).load()
    services.dimensions = 128
    error = failure(model, EmbeddingMismatch)
    assert "128 dimensions, but existing vectors have 256" in error.message
    assert "embedding.openai-url" in error.hint


# -- what goes wrong


@pytest.mark.parametrize("name", KEYS)
def test_service_without_its_key_is_not_contacted(services, monkeypatch, name):
    monkeypatch.setattr(endpoint, "post_json", None)
    error = failure(registry.load_model(name, permission=ALLOWED))
    assert error.message.endswith(f" requires a key, but {KEYS[name]} is not set.")
    assert error.hint == f"run 'export {KEYS[name]}=KEY' to set the key in the environment of this program"
    assert error.details["variable"] == KEYS[name]
    assert error.code == "EMBEDDING_SERVICE_ERROR"


@pytest.mark.parametrize("value", ["two words", "ключ", "line\nbreak"])
def test_invalid_api_key_is_neither_sent_nor_shown(services, monkeypatch, value):
    monkeypatch.setenv("OPENAI_API_KEY", value)
    error = failure(load(services, "openai"))
    assert "OPENAI_API_KEY is not a valid key" in error.message
    assert value not in error.message
    assert services.requests == []


def test_spaces_around_a_key_are_not_part_of_it(services, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    load(services, "openai").embed(["x"])
    assert services.requests[0].key == KEY


@pytest.mark.parametrize("name", KEYS)
def test_refused_key_is_named_by_its_variable_and_never_shown(services, monkeypatch, caplog, name):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(KEYS[name], "sk-wrong-0123")
    error = failure(load(services, name))
    assert f"rejected the key in {KEYS[name]}" in error.message
    assert error.details["status"] == 401
    assert "sk-wrong" not in f"{error.message}{error.hint}{error.details}{caplog.text}"
    assert len(services.requests) == 1


def test_key_is_hidden_in_all_messages_of_a_service(services, key):
    services.script = [(400, {}, {"error": {"message": f"Not with {KEY}\nhere"}})]
    assert failure(load(services, "openai")).message.endswith("answered 400 Bad Request: Not with … here.")


@pytest.mark.parametrize("name", NAMES)
def test_unknown_model_of_a_service_leads_to_a_hint(services, key, name):
    error = failure(load(services, name, **{f"{name}_model": "no/such-model"}))
    assert error.details["status"] == 404
    assert error.hint == (
        "run 'ollama pull no/such-model'"
        if name == "ollama"
        else f"check that it has the model no/such-model, or run 'git config vmrag.embedding.{name}-model MODEL' to set another one for new collections"
    )
    assert len(services.requests) == 1


def test_rate_limited_requests_are_repeated_after_the_given_time(services, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    services.script = [
        (429, {"Retry-After": "7"}, {"error": {"message": "Rate limit reached"}}),
        (503, {"Retry-After": formatdate(time.time() + 14, usegmt=True)}, {}),
    ]
    load(services, "openai").embed(TEXTS)
    assert len(services.requests) == 3
    assert slept[0] == 7
    assert 3 < slept[1] <= 14


def test_service_with_long_retry_after_fails_without_waiting(services, monkeypatch):
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(sleep=None, monotonic=time.monotonic))
    services.script = [(429, {"Retry-After": "3600"}, {"message": "slow down"})]
    assert "answered 429 Too Many Requests: slow down" in failure(load(services, "cohere")).message


@pytest.mark.parametrize("wait", ["", "soon", "-1", "9" * 400])
def test_invalid_retry_after_is_harmless(services, wait):
    services.script = [(429, {"Retry-After": wait}, {})]
    if wait.isdecimal():
        failure(load(services, "openai"))
    else:
        load(services, "openai").embed(["x"])


def test_three_failures_stop_requests_for_half_a_minute(services, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(sleep=lambda _: None, monotonic=lambda: now[0]))
    services.script = [(500, {}, b"<html>")] * 3
    assert "answered 500 Internal Server Error" in failure(load(services, "openai")).message
    assert len(services.requests) == 3
    now[0] += 29.5
    assert "did not answer recently, and is not contacted for 1 s" in failure(load(services, "openai")).message
    load(services, "ollama").embed(["x"])  # another address
    assert len(services.requests) == 4
    now[0] += 1
    load(services, "openai").embed(["x"])


def test_service_that_hangs_is_given_up(services, monkeypatch):
    monkeypatch.setattr(endpoint, "ANSWER_SECONDS", 0.05)
    services.hang = 0.1
    failure(load(services, "openai"))
    assert len(services.requests) == 3


@pytest.mark.parametrize(("name", "hint"), [("openai", "run the command again later"), ("ollama", "ollama serve")])
def test_unreachable_service_is_reported_with_a_hint(services, name, hint):
    error = failure(registry.load_model(name, EmbeddingSettings(**{f"{name}_url": "http://127.0.0.1:9"}), ALLOWED))
    assert "(127.0.0.1:9) cannot be reached" in error.message
    assert hint in error.hint


def test_proxy_is_not_used_for_local_services(services, monkeypatch):
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setattr(endpoint, "_idle", {True: [], False: []})
    load(services, "ollama").embed(["x"])


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        {},
        [],
        {"data": [{"index": 0}]},
        {"data": [{"index": 0, "embedding": "AAAA"}]},
        {"data": [{"index": 0, "embedding": [1.0]}]},
        {"data": [{"index": at, "embedding": []} for at in range(3)]},
        {"data": [{"index": at, "embedding": [1.0] * (at + 1)} for at in range(3)]},
        {"data": [{"index": at, "embedding": [1.0, None]} for at in range(3)]},
        {"data": [{"index": at, "embedding": [0.0] * 20_000} for at in range(3)]},
        b'{"data": [{"index": 0, "embedding": [NaN]}]}',
        {"data": [{"index": at, "embedding": [1.7e308, 1.7e308]} for at in range(3)]},
    ],
)
def test_answer_without_a_vector_for_each_text_is_an_error(services, answer):
    services.script = [(200, {}, answer)]
    error = failure(load(services, "openai"))
    assert len(error.message) < 500


def test_undecodable_error_of_a_service_is_reported_by_status(services):
    services.script = [(422, {}, b'{"error": "\xff"}')]
    assert "answered 422" in failure(load(services, "openai")).message


def test_redirection_is_not_followed(services):
    services.script = [(307, {"Location": f"{services.url}/elsewhere"}, {})]
    assert "answered 307" in failure(load(services, "openai")).message
    assert len(services.requests) == 1


def test_unknown_function_error_lists_the_known_ones():
    with pytest.raises(UsageInvalid) as caught:
        registry.load_model("sentence_transformer")
    assert "default, hash, minilm, openai, cohere, huggingface, ollama" in caught.value.hint


def test_httpx_is_imported_only_for_requests():
    program = (
        "import sys; from vmrag_link.embedding import registry\n"
        "for name in registry.MODEL_NAMES: registry.load_model(name)\n"
        "print('httpx' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_every_service_has_its_settings():
    assert set(speaking.SERVICES) == set(NAMES)
    for name in NAMES:
        assert registry.choose_model(name, EmbeddingSettings()).url.startswith("http")


# -- selection of the service and its key


@pytest.mark.parametrize("name", KEYS)
def test_untrusted_service_is_not_contacted(services, key, name):
    model = registry.load_model(name, settings(services, name), registry.Permission(frozenset(), frozenset(NAMES)))
    error = failure(model, ServiceNotTrusted)
    assert error.hint == f"run 'vmrag trust --service {name}'"
    assert services.requests == []


@pytest.mark.parametrize("name", KEYS)
def test_address_that_only_the_file_names_gets_texts_without_the_key(services, key, name):
    model = registry.load_model(name, settings(services, name), registry.Permission(frozenset(NAMES)))
    model.embed(TEXTS)
    assert [request.key for request in services.requests] == [None]
    services.script = [(401, {}, {})]
    error = failure(model)
    assert f"{KEYS[name]} was not sent, because only .vmrag.yaml sets this address" in error.message
    assert error.hint == f"run 'git config vmrag.embedding.{name}-url {services.base(name)}' to use that address"


def test_key_is_not_sent_in_the_clear_beyond_this_machine(services, key, monkeypatch):
    monkeypatch.setattr(endpoint, "post_json", lambda url, body, *, key: pytest.fail("a key") if key else b"{}")
    model = registry.load_model("openai", EmbeddingSettings(openai_url="http://kb.example/v1"), ALLOWED)
    with pytest.raises(EmbeddingFailed):
        model.embed(["x"])


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("https://api.example/v1", True),
        ("http://localhost:1/", True),
        ("http://127.9.9.9/", True),
        ("http://[::1]:2/", True),
        ("http://127.example.org/", False),
        ("http://127.0.0.1.example.org/", False),
        ("http://localhost.example.org/", False),
        ("http://10.0.0.1/", False),
    ],
)
def test_only_https_and_this_machine_are_private(url, private):
    assert endpoint.is_private(url) is private


def test_redirection_carries_the_key_nowhere(services, key):
    keys: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST  # noqa: N815  the name is given

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        for status in (301, 302, 303, 307, 308):
            services.script = [(status, {"Location": f"http://127.0.0.1:{other.server_port}/v1/embeddings"}, {})]
            failure(load(services, "openai"))
        other.shutdown()
    assert keys == []

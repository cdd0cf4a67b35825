"""A language model at an address, and its settings: a server with OpenAI's `/chat/completions`, or
Ollama.

Documents are sent only to the address in the settings. An untrusted repository cannot set its
section `llm`. The key is sent there only if this machine's user named the address, or if it is the
provider's own, and never without encryption to another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from vmrag_link import endpoint, env, extras
from vmrag_link.models import Record
from vmrag_link.settings import keep_narrowest, needs_trust
from vmrag_link.settings.flaws import optional_model_flaw, optional_url_flaw, variable_flaw


class LlmSettings(Record, frozen=True):
    provider: Annotated[
        Literal["none", "openai", "ollama"],
        needs_trust(
            "The language model that writes answers: none (the answer quotes the documents), any server with "
            "OpenAI's `/chat/completions`, or Ollama. vmrag sends passages of documents to the model.",
            keep_narrowest("none", "openai", "ollama"),
            free=("none",),
        ),
    ] = "none"
    model: Annotated[str, needs_trust("Name of the language model.", flaw=optional_model_flaw)] = ""
    base_url: Annotated[
        str,
        needs_trust("Address of the language model. Default: the provider's own address.", flaw=optional_url_flaw),
    ] = ""
    api_key_env: Annotated[
        str,
        needs_trust(
            "Environment variable with the key of the language model. Default: `OPENAI_API_KEY` for `openai`. `.vmrag.yaml`"
            " cannot set it.",
            flaw=variable_flaw,
        ),
    ] = ""
    timeout_s: Annotated[
        int, needs_trust("Seconds that an answer of the language model may take.", min, ge=1, le=3600)
    ] = 60


MAX_ANSWER_CHARS = 100_000
"""Maximum number of characters of an answer."""


class ChatFailed(Exception):
    """The language model failed. `reason` is a sentence without the key."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Message(Record, frozen=True):
    role: str
    content: str


class Provider(NamedTuple):
    """A protocol.

    `key` is the variable of its key, if it has one. `path` is appended to the address. `text` reads
    the answer and raises `msgspec.DecodeError`.
    """

    url: str
    key: str
    path: str
    body: Callable[[str, Sequence[Message]], dict[str, Any]]
    text: Callable[[bytes], str]


class _Content(Record, frozen=True):
    content: str


class _Choice(Record, frozen=True):
    message: _Content


class _OpenAi(Record, frozen=True):
    choices: list[_Choice]


class _Ollama(Record, frozen=True):
    message: _Content


def _read_first_choice(answer: bytes) -> str:
    choices = msgspec.json.decode(answer, type=_OpenAi).choices
    if not choices:
        raise msgspec.DecodeError("no choice")
    return choices[0].message.content


PROVIDERS = {
    "openai": Provider(
        "https://api.openai.com/v1",
        env.OPENAI_KEY,
        "/chat/completions",
        lambda model, messages: {"model": model, "messages": messages, "temperature": 0},
        _read_first_choice,
    ),
    "ollama": Provider(
        "http://localhost:11434",
        "",
        "/api/chat",
        lambda model, messages: {"model": model, "messages": messages, "stream": False, "options": {"temperature": 0}},
        lambda answer: msgspec.json.decode(answer, type=_Ollama).message.content,
    ),
}


class ChatModel:
    """A model of trusted settings.

    With `sends_key`, the key may be sent to an address in the settings. `key_variable` is the
    variable of the key, if it is not the provider's default.
    """

    def __init__(self, settings: LlmSettings, *, sends_key: bool, key_variable: str = "") -> None:
        self._provider = PROVIDERS[settings.provider]
        self._settings = settings
        self._base = settings.base_url or self._provider.url
        self._variable = key_variable or self._provider.key
        self._sends_key = (sends_key or not settings.base_url) and endpoint.is_private(self._base)

    @property
    def name(self) -> str:
        return self._settings.model

    def request_answer(self, messages: Sequence[Message]) -> str:
        """Return the answer to messages. Raises `ChatFailed`."""
        if not self._settings.model:
            raise ChatFailed(
                f"{self._described} needs the name of a model; run 'git config vmrag.llm.model NAME' to set it"
            )
        url = self._base.rstrip("/") + self._provider.path
        body = self._provider.body(self._settings.model, messages)
        try:
            answer = endpoint.post_json(url, body, key=self._find_key(), seconds=self._settings.timeout_s)
            text = self._provider.text(answer)
        except ModuleNotFoundError:
            raise ChatFailed(f"language models need httpx: {extras.format_install_command('web')}") from None
        except endpoint.NoAnswer as error:
            raise ChatFailed(f"{self._described} {self._explain_failure(error)}") from error
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            raise ChatFailed(f"{self._described} answered with something else than a message.") from error
        if not text.strip():
            raise ChatFailed(f"{self._described} answered with nothing.")
        return text[:MAX_ANSWER_CHARS]

    def _find_key(self) -> str | None:
        key = (env.read_variable(self._variable) or "").strip() if self._variable and self._sends_key else ""
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ChatFailed(f"{self._described} cannot be used: {self._variable} does not contain a key.")
        return key or None

    def _explain_failure(self, error: endpoint.NoAnswer) -> str:
        if error.status not in endpoint.REFUSALS or not self._variable:
            return f"{error.reason.rstrip('.')}."
        if not self._sends_key:
            return f"wants a key, and {self._variable} was not sent: {self._key_refusal}"
        if env.read_variable(self._variable):
            return f"refuses the key in {self._variable}."
        return f"wants a key, and {self._variable} is not set."

    @property
    def _key_refusal(self) -> str:
        if not endpoint.is_private(self._base):
            return "everybody on the way could read it."
        return "only .vmrag.yaml names this address (git config vmrag.llm.base-url URL)."

    @property
    def _described(self) -> str:
        return f"The language model at {urlsplit(self._base).netloc}"

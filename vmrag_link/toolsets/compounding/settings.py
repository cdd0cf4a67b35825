"""Settings of the language model that writes answers."""

from typing import Annotated, Literal

from msgspec import Meta

from vmrag_link.models import Record
from vmrag_link.settings import agreed_setting, first_of
from vmrag_link.settings_flaws import optional_model_flaw, optional_url_flaw, variable_flaw


class LlmSettings(Record, frozen=True):
    provider: Annotated[
        Literal["none", "openai", "ollama"],
        Meta(
            description="What writes answers of a project's documents: no language model (their own sentences are quoted), any server with "
            "OpenAI's `/chat/completions`, or Ollama. To a model, passages are sent.",
            extra=agreed_setting(first_of("none", "openai", "ollama"), free=("none",)),
        ),
    ] = "none"
    model: Annotated[
        str,
        Meta(description="The language model, as its server calls it.", extra=agreed_setting(flaw=optional_model_flaw)),
    ] = ""
    base_url: Annotated[
        str,
        Meta(
            description="Where the language model is asked; empty: the provider's own address.",
            extra=agreed_setting(flaw=optional_url_flaw),
        ),
    ] = ""
    api_key_env: Annotated[
        str,
        Meta(
            description="The environment variable that holds the language model's key; empty: `OPENAI_API_KEY` for `openai`. "
            "It counts from git config and the environment alone.",
            extra=agreed_setting(flaw=variable_flaw),
        ),
    ] = ""
    timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3600,
            description="How many seconds an answer of the language model may take.",
            extra=agreed_setting(min),
        ),
    ] = 60

"""Which language model may be asked here, and whether it gets a key."""

from __future__ import annotations

from vmrag_link import env
from vmrag_link.toolsets.compounding.chat_model import ChatModel
from vmrag_link.toolsets.compounding.settings import LlmSettings
from vmrag_link.workspace import Workspace


def chat_model(ws: Workspace) -> ChatModel | None:
    """The model that the settings name; None where none is configured, or the environment says that
    no service is asked.

    The settings of `llm` count only if this machine's person stated or agreed to them. Which
    variable holds a key, and that it goes to an address, the person says outside of any file of a
    repository.
    """
    loaded = ws.settings.section("llm", LlmSettings)
    settings: LlmSettings = loaded.config.llm
    if settings.provider == "none" or env.without_services():
        return None
    variable = settings.api_key_env if "llm.api_key_env" in loaded.machine else ""
    return ChatModel(settings, keyed="llm.base_url" in loaded.machine, key_variable=variable)

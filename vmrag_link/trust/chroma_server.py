"""Which Chroma server may be asked here, and whether it gets a key."""

from __future__ import annotations

import base64

from vmrag_link import endpoint, env
from vmrag_link.chroma_server.server import CLOUD_URL, LOCAL_URL, ServerAddress
from vmrag_link.config import Loaded
from vmrag_link.settings import Config


def server(loaded: Loaded[Config]) -> ServerAddress | None:
    """The server that the settings name; None where indexes are not shared, or the environment says
    that no service is asked.

    The settings of `chroma` count only if this machine's person stated or agreed to them. A key of
    the environment goes to Chroma Cloud's own address, or to one that the environment or git config
    names, and never unencrypted beyond this machine.
    """
    settings = loaded.config.chroma
    if settings.mode == "embedded" or env.without_services():
        return None
    own = CLOUD_URL if settings.mode == "cloud" else LOCAL_URL
    url = settings.url or own
    keyed = (url == own or "chroma.url" in loaded.machine) and endpoint.is_private(url)
    given = {name: _secret(name) for name in (env.CHROMA_CREDENTIALS, env.CHROMA_KEY)} if keyed else {}
    flaws = [name for name, text in given.items() if not text.isascii() or not text.isprintable()]
    return ServerAddress(
        settings.mode,
        url,
        settings.tenant,
        settings.database,
        float(settings.timeout_s),
        {} if flaws else _headers(*given.values()),
        tuple(text for text in given.values() if text),
        f"what {flaws[0]} holds is no key" if flaws else "",
    )


def _secret(variable: str) -> str:
    return (env.secret(variable) or "").strip()


def _headers(credentials: str = "", key: str = "") -> dict[str, str]:
    """The headers that say who asks."""
    headers = {}
    if credentials:
        basic = base64.b64encode(credentials.encode()).decode()
        headers["Authorization"] = f"Basic {basic}" if ":" in credentials else f"Bearer {credentials}"
    if key:
        headers["X-Chroma-Token"] = key
    return headers

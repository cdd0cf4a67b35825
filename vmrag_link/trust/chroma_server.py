"""Which Chroma server may be asked here, and whether it gets a key."""

from __future__ import annotations

import base64

from vmrag_link import endpoint, env
from vmrag_link.chroma_server.address import CLOUD_URL, LOCAL_URL, ServerAddress
from vmrag_link.config import Loaded
from vmrag_link.errors import UsageInvalid


def server(loaded: Loaded) -> ServerAddress | None:
    """The server that the settings name; None where indexes are not shared, or the environment says
    that no service is asked.

    The settings of `chroma` count only if this machine's person stated or agreed to them. A key of
    the environment goes to Chroma Cloud's own address, or to one that the environment or git config
    names, and never unencrypted beyond this machine. Raises `UsageInvalid` for what is no key.
    """
    settings = loaded.config.chroma
    if settings.mode == "embedded" or env.without_services():
        return None
    own = CLOUD_URL if settings.mode == "cloud" else LOCAL_URL
    url = settings.url or own
    keyed = (url == own or "chroma.url" in loaded.machine) and endpoint.is_private(url)
    headers, secrets = _credentials() if keyed else ({}, ())
    return ServerAddress(
        settings.mode, url, settings.tenant, settings.database, float(settings.timeout_s), headers, secrets
    )


def _credentials() -> tuple[dict[str, str], tuple[str, ...]]:
    """The headers that say who asks, and what of them no message may show."""
    headers, given, key = dict[str, str](), _secret(env.CHROMA_CREDENTIALS), _secret(env.CHROMA_KEY)
    if given:
        basic = base64.b64encode(given.encode()).decode()
        headers["Authorization"] = f"Basic {basic}" if ":" in given else f"Bearer {given}"
    if key:
        headers["X-Chroma-Token"] = key
    return headers, tuple(each for each in (given, key) if each)


def _secret(variable: str) -> str:
    found = (env.secret(variable) or "").strip()
    if not found.isascii() or not found.isprintable():
        raise UsageInvalid(
            f"The Chroma server cannot be asked: what {variable} holds is no key.",
            hint=f"Set it for whoever runs this: export {variable}=KEY",
            variable=variable,
        )
    return found

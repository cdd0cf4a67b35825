"""Which services may be asked here, and which of them get a key: those that embed texts, and the
Chroma server.
"""

from __future__ import annotations

import base64

from vmrag_link import endpoint, env
from vmrag_link.chroma_server.server import CLOUD_URL, LOCAL_URL, ServerAddress
from vmrag_link.config import Loaded
from vmrag_link.embedding.base import SERVICES
from vmrag_link.embedding.registry import NOTHING, Permission
from vmrag_link.git.configuration import config_values
from vmrag_link.paths import Places
from vmrag_link.settings import Config
from vmrag_link.trust import agreements

TRUSTED_KEY = "vmrag.trustedService"
"""Key in git config: a service that collections may ask. In the user's own configuration it holds
for every repository.
"""


def permitted(places: Places, loaded: Loaded[Config]) -> Permission:
    """Which services may be asked, and which of them at an address of this machine's own.

    A collection names its service and comes with the knowledge base, so a stranger's row could
    spend this person's money. A service is asked only where this person chose it
    (`embedding.model`), said where it is (`embedding.<service>_*`), or agreed to it by name. A
    service without keys is this person's own server. Where the environment says so, none is asked.
    """
    if env.without_services():
        return NOTHING
    said = loaded.machine | loaded.agreed
    agreed = {name for name, service in SERVICES.items() if service.key is None}
    agreed |= {name for name in SERVICES if any(key.startswith(f"embedding.{name}_") for key in said)}
    if "embedding.model" in said:
        agreed.add(loaded.config.embedding.model)
    if any(name not in agreed for name in SERVICES):
        agreed |= {*agreements.read(places).services, *config_values(places, TRUSTED_KEY)}
    addresses = frozenset(name for name in SERVICES if f"embedding.{name}_url" in loaded.machine)
    return Permission(frozenset(agreed), addresses)


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

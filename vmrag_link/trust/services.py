"""Which embedding services may be asked here, and which of them get a key."""

from __future__ import annotations

from vmrag_link import env
from vmrag_link.config import Loaded
from vmrag_link.embedding.protocols import SERVICES
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

"""The settings that apply in a work tree, as far as the user trusts them (`agreements`).

These settings include the embedding services and the Chroma server that vmrag can contact, and
their keys.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from vmrag_link import agreements, config, env
from vmrag_link.config import LoadedSettings
from vmrag_link.errors import ConfigInvalid, GitReferenceMissing, shortened
from vmrag_link.git import plumbing
from vmrag_link.git.configuration import read_config_values, read_section
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.paths import CONFIG_NAME, Places
from vmrag_link.settings import Config
from vmrag_link.settings.entries import MAX_BYTES
from vmrag_link.settings.keys import CORE, Schema

if TYPE_CHECKING:
    from vmrag_link.chroma_server.server import ServerAddress
    from vmrag_link.embedding.registry import Permission

TRUSTED_KEY = "vmrag.trustedService"
"""Key in git config with a service that collections can use. In the user's own configuration it is
for every repository.
"""


def load_settings(places: Places) -> LoadedSettings[Config]:
    """Return the settings of the environment and of git config, and those of `.vmrag.yaml` as far
    as they are trusted.

    Raises `ConfigInvalid`.
    """
    return _load_settings(places, config.read_settings_file(places.config), CONFIG_NAME)


def load_without_file(places: Places) -> LoadedSettings[Config]:
    """Return the settings of the environment and of git config.

    Raises `ConfigInvalid`.
    """
    return _load_settings(places, None, CONFIG_NAME)


def load_sections(places: Places, schema: Schema) -> LoadedSettings[Any]:
    """Return the settings of sections that toolsets bring, as far as they are trusted.

    Raises `ConfigInvalid`.
    """
    return _load_settings(places, config.read_settings_file(places.config), CONFIG_NAME, schema)


def load_at(places: Places, ref: str) -> LoadedSettings[Config]:
    """Return the settings with the `.vmrag.yaml` of a git ref's commit.

    Raises `ConfigInvalid`, and `GitReferenceMissing` for an unknown ref.
    """
    spec = f"{plumbing.resolve_commit(places, ref)}:{CONFIG_NAME}"
    return _load_settings(places, plumbing.read_blob(places, spec, limit=MAX_BYTES), f"{ref}:{CONFIG_NAME}")


def _load_settings(places: Places, text: bytes | None, label: str, schema: Schema = CORE) -> LoadedSettings[Any]:
    def known(remote: str) -> bool:
        from vmrag_link.transport import address

        return address.is_configured_here(places, remote)

    return config.resolve_settings(
        text,
        path_label=label,
        overrides=read_section(places, "vmrag"),
        environ=os.environ,
        agreed=list_trusted_settings(places, schema),
        known_remote=known,
        stand_in=env.read_variable(env.SETTINGS_FROM),
        schema=schema,
        record=places.settings_record if label == CONFIG_NAME else None,
    )


def list_trusted_settings(places: Places, schema: Schema = CORE) -> dict[str, Any] | None:
    """Return the trusted settings of this repository, by name; None if nothing was trusted.

    If `VMRAG_SETTINGS_FROM` names a commit, its settings are trusted in place of the user's
    decision. The file is read as a blob of that commit, and no other file is used instead. Raises
    `ConfigInvalid` if the commit is missing.
    """
    commit = env.read_variable(env.SETTINGS_FROM)
    if commit is None:
        return agreements.read_agreements(places).settings
    label = f"{commit[:12]}:{CONFIG_NAME}"
    return {
        setting.name: setting.value
        for setting in config.list_trust_settings(_read_committed(places, commit), label, schema)
    }


def _read_committed(places: Places, commit: str) -> bytes | None:
    if not re.fullmatch(COMMIT_NAME, commit):  # an untrusted user could move a name
        raise ConfigInvalid(
            f"{env.SETTINGS_FROM} must be the full hash of a commit; found {shortened(commit)!r}.",
            hint=f"run 'unset {env.SETTINGS_FROM}', or 'git rev-parse BRANCH'",
            variable=env.SETTINGS_FROM,
        )
    try:
        return plumbing.read_blob(places, f"{commit}:{CONFIG_NAME}", limit=MAX_BYTES)
    except GitReferenceMissing as missing:
        raise ConfigInvalid(
            f"{env.SETTINGS_FROM} names commit {commit[:12]}, which is missing in this clone, so no settings are trusted.",
            hint=f"run 'git fetch origin {commit}' to fetch it",
            variable=env.SETTINGS_FROM,
        ) from missing


def permit_services(places: Places, loaded: LoadedSettings[Config]) -> Permission:
    """Return the services that can be contacted, and those with an address that this machine set.

    A collection names its service and comes with the knowledge base. An untrusted row could thus
    spend the user's money. So a service is only contacted if the user chose it (`embedding.model`),
    set its address (`embedding.<service>_*`), or trusted it by name. A service without keys is the
    user's own server. `VMRAG_NO_SERVICES` forbids all of them.
    """
    from vmrag_link.embedding.base import SERVICES
    from vmrag_link.embedding.registry import NO_PERMISSION, Permission

    if env.forbids_services():
        return NO_PERMISSION
    own_names = loaded.machine | loaded.trusted
    agreed = {name for name, service in SERVICES.items() if service.key is None}
    agreed |= {name for name in SERVICES if any(key.startswith(f"embedding.{name}_") for key in own_names)}
    if "embedding.model" in own_names:
        agreed.add(loaded.config.embedding.model)
    if any(name not in agreed for name in SERVICES):
        agreed |= {*agreements.read_agreements(places).services, *read_config_values(places, TRUSTED_KEY)}
    addresses = frozenset(name for name in SERVICES if f"embedding.{name}_url" in loaded.machine)
    return Permission(frozenset(agreed), addresses)


def choose_server(loaded: LoadedSettings[Config]) -> ServerAddress | None:
    """Return the Chroma server of the settings; None if indexes are not shared, or
    `VMRAG_NO_SERVICES` is set.

    The settings of `chroma` apply only if the user set or trusted them. A key of the environment is
    only sent to Chroma Cloud, or to an address from the environment or git config. It is never sent
    unencrypted to another machine.
    """
    settings = loaded.config.chroma
    if settings.mode == "embedded" or env.forbids_services():
        return None
    from vmrag_link import endpoint  # few share their indexes
    from vmrag_link.chroma_server.server import CLOUD_URL, LOCAL_URL, ServerAddress

    usual_url = CLOUD_URL if settings.mode == "cloud" else LOCAL_URL
    url = settings.url or usual_url
    sends_keys = (url == usual_url or "chroma.url" in loaded.machine) and endpoint.is_private(url)
    variables = (env.CHROMA_CREDENTIALS, env.CHROMA_KEY) if sends_keys else ()
    keys = {name: (env.read_variable(name) or "").strip() for name in variables}
    flaws = [name for name, text in keys.items() if not text.isascii() or not text.isprintable()]
    return ServerAddress(
        mode=settings.mode,
        url=url,
        tenant=settings.tenant,
        database=settings.database,
        seconds=float(settings.timeout_s),
        headers={} if flaws else _format_headers(*keys.values()),
        secrets=tuple(text for text in keys.values() if text),
        flaw=f"the value of {flaws[0]} is not a key" if flaws else "",
    )


def _format_headers(credentials: str = "", key: str = "") -> dict[str, str]:
    """Return the headers with the credentials."""
    headers = {}
    if credentials:
        import base64

        basic = base64.b64encode(credentials.encode()).decode()
        headers["Authorization"] = f"Basic {basic}" if ":" in credentials else f"Bearer {credentials}"
    if key:
        headers["X-Chroma-Token"] = key
    return headers

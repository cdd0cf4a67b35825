"""The decisions of the user to trust settings and services, and the settings that follow from them.

These settings include the embedding services and the Chroma server that vmrag can contact, and
their keys.

The decisions are stored per repository, in a folder outside all work trees. A random id in
`.git/vmrag`, which clones do not copy, distinguishes a repository from another one at the same
path. Without an id, nothing is trusted, and nothing outside the repository is read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link import clock, config, env
from vmrag_link.config import LoadedSettings
from vmrag_link.errors import ConfigInvalid, FileFailed, GitReferenceMissing, quoted, shortened, system_failure
from vmrag_link.file_access import read_regular, write_atomically
from vmrag_link.formats import require_known_format
from vmrag_link.git import plumbing
from vmrag_link.git.configuration import read_config_values, read_section
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME, Places
from vmrag_link.settings import Config
from vmrag_link.settings.entries import MAX_BYTES
from vmrag_link.settings.keys import CORE, Schema

if TYPE_CHECKING:
    from vmrag_link.chroma_server.server import ServerAddress
    from vmrag_link.embedding.registry import Permission

FORMAT = 1
"""The format of a file. Files of newer programs have a higher one."""

_MAX_BYTES = 4_000_000
_ID = rb"[0-9a-f]{32}"


class Agreement(Record, frozen=True):
    """The settings of `.vmrag.yaml` that need trust, by name, when the user trusted them."""

    settings: dict[str, str | int | bool]
    date: str


class Agreements(Record, frozen=True):
    """The decisions for one repository (its common git directory), and the embedding services that
    it can contact.
    """

    repository: str
    agreed: tuple[Agreement, ...] = ()
    """Only the last decision applies.

    Files of older programs also contain earlier ones. If they applied, a branch with an older file
    would bring back what the user has revoked.
    """
    services: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def settings(self) -> dict[str, str | int | bool] | None:
        """The trusted settings, or None if nothing was trusted."""
        return self.agreed[-1].settings if self.agreed else None


def read_agreements(places: Places) -> Agreements:
    """Return the decisions for this repository.

    Raises `ConfigInvalid` for a damaged file, which can have contained restrictions, and
    `FormatTooNew`.
    """
    path = _find_file(places)
    return (_read_file(path) if path else None) or Agreements(_name_repository(places))


def list_files(places: Places) -> tuple[Path, ...]:
    """Return the files on which `read_agreements` depends, existing or not."""
    path = _find_file(places)
    return (places.trust_id, path) if path else (places.trust_id,)


def read_all_agreements() -> list[Agreements]:
    """Return the decisions for every repository on this machine, by path."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        decisions = [_read_file(path) for path in _agreements_folder().iterdir() if path.suffix == ".json"]
        return sorted((decision for decision in decisions if decision), key=lambda decision: decision.repository)
    return []


def add_agreement(places: Places, settings: Mapping[str, Any]) -> None:
    """Record that the user trusts these settings, in place of the earlier decision.

    Raises `FileFailed`.
    """
    _write_file(
        places, msgspec.structs.replace(read_agreements(places), agreed=(Agreement(dict(settings), clock.now()),))
    )


def add_service(places: Places, name: str) -> None:
    """Record that the collections of this repository can use an embedding service.

    Raises `FileFailed`.
    """
    before = read_agreements(places)
    _write_file(places, msgspec.structs.replace(before, services=tuple(sorted({*before.services, name}))))


def has_agreement(places: Places) -> bool:
    """Return True if the user trusted something in this repository."""
    path = _find_file(places)
    return path is not None and path.exists()


def revoke_agreements(places: Places) -> bool:
    """Delete the decisions for this repository, and return whether there were any."""
    path = _find_file(places)
    if path is None or not path.exists():
        return False
    path.unlink()
    return True


def _read_file(path: Path) -> Agreements | None:
    try:
        content = read_regular(path, _MAX_BYTES)
        require_known_format(content, FORMAT, what="The record of trusted settings", path=path)
        return msgspec.json.decode(content, type=Agreements)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # this user did not write a file that is unreadable
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigInvalid(
            f"cannot read the trusted settings: {path} is damaged.",
            hint=f"run 'rm {quoted(path)}', then 'vmrag trust' to trust them again",
            file=str(path),
        ) from error


def _write_file(places: Places, agreements: Agreements) -> None:
    path = _find_file(places) or _make_id(places)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(agreements)) + b"\n")
    except OSError as error:
        reason = system_failure(error)
        raise FileFailed(
            f"cannot record the trusted settings: {reason.message if reason else error}",
            hint=f"run 'export {env.DATA_HOME}=DIR' with a folder that you can write",
            path=str(path),
        ) from error


def _make_id(places: Places) -> Path:
    write_atomically(places.trust_id, os.urandom(16).hex().encode())
    path = _find_file(places)
    assert path is not None  # noqa: S101  it has an id now
    return path


def _find_file(places: Places) -> Path | None:
    """Return the file with the decisions for this repository; None if it has no id, and thus no
    decisions.
    """
    try:
        repository_id = read_regular(places.trust_id, 64)
    except OSError:
        return None
    if not re.fullmatch(_ID, repository_id):
        return None
    import hashlib  # without an id, no file is looked for

    name = hashlib.sha256(os.fsencode(_name_repository(places)) + b"\0" + repository_id).hexdigest()
    return _agreements_folder() / f"{name}.json"


def _name_repository(places: Places) -> str:
    return os.path.realpath(places.common)


def _agreements_folder() -> Path:
    return env.data_home() / "vmrag" / "trust"


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
        return read_agreements(places).settings
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


TRUSTED_KEY = "vmrag.trustedService"
"""Key in git config with a service that collections can use. In the user's own configuration it is
for every repository.
"""


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
        agreed |= {*read_agreements(places).services, *read_config_values(places, TRUSTED_KEY)}
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
    keys = {name: _read_secret(name) for name in (env.CHROMA_CREDENTIALS, env.CHROMA_KEY)} if sends_keys else {}
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


def _read_secret(variable: str) -> str:
    return (env.read_variable(variable) or "").strip()


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

"""What this person agreed to, the settings that count in a work tree by that, and which services
may be asked there and get a key: those that embed texts, and the Chroma server.

Agreements are kept repository by repository, in a folder outside of every work tree. A random id
below `.git/vmrag`, which no clone carries, tells a repository from another one at the same path.
Without an id nothing was agreed to, and nothing outside of the repository is read.
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
from vmrag_link.formats import require_known_format
from vmrag_link.git import plumbing
from vmrag_link.git.configuration import read_config_values, read_section
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME, Places, read_regular, write_atomically
from vmrag_link.settings import Config
from vmrag_link.settings.entries import MAX_BYTES
from vmrag_link.settings.keys import CORE, Schema

if TYPE_CHECKING:
    from vmrag_link.chroma_server.server import ServerAddress
    from vmrag_link.embedding.registry import Permission

FORMAT = 1
"""The format of a file, which a newer program's exceeds."""

_MAX_BYTES = 4_000_000
_ID = rb"[0-9a-f]{32}"


class Agreement(Record, frozen=True):
    """What `.vmrag.yaml` stated of the settings that need agreement, by name, when a person agreed
    to it.
    """

    settings: dict[str, str | int | bool]
    date: str


class Agreements(Record, frozen=True):
    """What was agreed to for one repository (its common git directory), and the embedding services
    that it may ask.

    `agreed` is the latest agreement alone. Files of older programs hold earlier ones before it,
    which do not count: a branch with an older file would bring back what was given up since.
    """

    repository: str
    agreed: tuple[Agreement, ...] = ()
    services: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def settings(self) -> dict[str, str | int | bool] | None:
        """What counts as agreed to; None: nobody has agreed to anything."""
        return self.agreed[-1].settings if self.agreed else None


def read_agreements(places: Places) -> Agreements:
    """The agreements of this repository.

    Raises `ConfigInvalid` for a damaged file, which may have held restrictions, and `FormatTooNew`.
    """
    path = _file(places)
    return (_read(path) if path else None) or Agreements(_repository(places))


def list_files(places: Places) -> tuple[Path, ...]:
    """The files that `read` depends on, existing or not."""
    path = _file(places)
    return (places.trust_id, path) if path else (places.trust_id,)


def read_all_agreements() -> list[Agreements]:
    """The agreements of every repository on this machine, by path."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = [_read(path) for path in _folder().iterdir() if path.suffix == ".json"]
        return sorted((each for each in found if each), key=lambda each: each.repository)
    return []


def add_agreement(places: Places, settings: Mapping[str, Any]) -> None:
    """Remember that a person agreed to this, in place of what they agreed to before.

    Raises `FileFailed`.
    """
    _write(places, msgspec.structs.replace(read_agreements(places), agreed=(Agreement(dict(settings), clock.now()),)))


def add_service(places: Places, name: str) -> None:
    """Remember that a person lets this repository's collections ask an embedding service.

    Raises `FileFailed`.
    """
    before = read_agreements(places)
    _write(places, msgspec.structs.replace(before, services=tuple(sorted({*before.services, name}))))


def has_agreement(places: Places) -> bool:
    """Return True if the user agreed to something in this repository."""
    path = _file(places)
    return path is not None and path.exists()


def revoke_agreements(places: Places) -> bool:
    """Forget what was agreed to for this repository; whether there was anything."""
    path = _file(places)
    if path is None or not path.exists():
        return False
    path.unlink()
    return True


def _read(path: Path) -> Agreements | None:
    try:
        content = read_regular(path, _MAX_BYTES)
        require_known_format(content, FORMAT, what="What you agreed to", path=path)
        return msgspec.json.decode(content, type=Agreements)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # what this user cannot read, this user did not write
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigInvalid(
            f"What you agreed to cannot be read: {path} is damaged.",
            hint=f"rm {quoted(path)}   (then agree again: vmrag trust)",
            file=str(path),
        ) from error


def _write(places: Places, agreements: Agreements) -> None:
    path = _file(places) or _make_id(places)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(agreements)) + b"\n")
    except OSError as error:
        reason = system_failure(error)
        raise FileFailed(
            f"What you agree to cannot be remembered: {reason.message if reason else error}",
            hint=f"export {env.DATA_HOME}=DIR   (a folder that you may write)",
            path=str(path),
        ) from error


def _make_id(places: Places) -> Path:
    write_atomically(places.trust_id, os.urandom(16).hex().encode())
    path = _file(places)
    assert path is not None  # noqa: S101  it has an id now
    return path


def _file(places: Places) -> Path | None:
    """Where this repository's agreements are; None: it has no id, so there are none."""
    try:
        own = read_regular(places.trust_id, 64)
    except OSError:
        return None
    if not re.fullmatch(_ID, own):
        return None
    import hashlib  # where nothing was agreed to, no file is looked for

    name = hashlib.sha256(os.fsencode(_repository(places)) + b"\0" + own).hexdigest()
    return _folder() / f"{name}.json"


def _repository(places: Places) -> str:
    return os.path.realpath(places.common)


def _folder() -> Path:
    return env.data_home() / "vmrag" / "trust"


def load_settings(places: Places) -> LoadedSettings[Config]:
    """The settings of the environment, git config, and `.vmrag.yaml` as far as this person agreed
    to it.

    Raises `ConfigInvalid`.
    """
    return _load(places, config.read_settings_file(places.config), CONFIG_NAME)


def load_without_file(places: Places) -> LoadedSettings[Config]:
    """Return the settings of the environment and of git config. Raises `ConfigInvalid`."""
    return _load(places, None, CONFIG_NAME)


def load_sections(places: Places, schema: Schema) -> LoadedSettings[Any]:
    """As `load`, of sections that toolsets bring. Raises `ConfigInvalid`."""
    return _load(places, config.read_settings_file(places.config), CONFIG_NAME, schema)


def load_at(places: Places, ref: str) -> LoadedSettings[Config]:
    """As `load`, with the `.vmrag.yaml` in the commit that a git ref names.

    Raises `ConfigInvalid`, `GitReferenceMissing`.
    """
    spec = f"{plumbing.resolve_commit(places, ref)}:{CONFIG_NAME}"
    return _load(places, plumbing.read_blob(places, spec, limit=MAX_BYTES), f"{ref}:{CONFIG_NAME}")


def _load(places: Places, text: bytes | None, label: str, schema: Schema = CORE) -> LoadedSettings[Any]:
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
    """What counts as agreed to in this repository, by name; None: nobody has agreed to anything.

    In place of a person's agreement, what the commit of `VMRAG_SETTINGS_FROM` states. It is read
    as a blob, and no other file stands in for one that is not here. Raises `ConfigInvalid`.
    """
    commit = env.read_variable(env.SETTINGS_FROM)
    if commit is None:
        return read_agreements(places).settings
    label = f"{commit[:12]}:{CONFIG_NAME}"
    return {each.name: each.value for each in config.list_trust_settings(_committed(places, commit), label, schema)}


def _committed(places: Places, commit: str) -> bytes | None:
    if not re.fullmatch(COMMIT_NAME, commit):  # a name would be a stranger's to move
        raise ConfigInvalid(
            f"{env.SETTINGS_FROM} must be the full hash of a commit; found {shortened(commit)!r}.",
            hint=f"unset {env.SETTINGS_FROM}   (or: git rev-parse BRANCH)",
            variable=env.SETTINGS_FROM,
        )
    try:
        return plumbing.read_blob(places, f"{commit}:{CONFIG_NAME}", limit=MAX_BYTES)
    except GitReferenceMissing as missing:
        raise ConfigInvalid(
            f"{env.SETTINGS_FROM} names commit {commit[:12]}, which is not here: nobody can say which settings count.",
            hint=f"git fetch origin {commit}",
            variable=env.SETTINGS_FROM,
        ) from missing


TRUSTED_KEY = "vmrag.trustedService"
"""Key in git config: a service that collections may ask. In the user's own configuration it holds
for every repository.
"""


def permit_services(places: Places, loaded: LoadedSettings[Config]) -> Permission:
    """Which services may be asked, and which of them at an address of this machine's own.

    A collection names its service and comes with the knowledge base, so a stranger's row could
    spend this person's money. A service is asked only where this person chose it
    (`embedding.model`), said where it is (`embedding.<service>_*`), or agreed to it by name. A
    service without keys is this person's own server. Where the environment says so, none is asked.
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
    """The server that the settings name; None where indexes are not shared, or the environment says
    that no service is asked.

    The settings of `chroma` count only if this machine's person stated or agreed to them. A key of
    the environment goes to Chroma Cloud's own address, or to one that the environment or git config
    names, and never unencrypted beyond this machine.
    """
    settings = loaded.config.chroma
    if settings.mode == "embedded" or env.forbids_services():
        return None
    from vmrag_link import endpoint  # few share their indexes
    from vmrag_link.chroma_server.server import CLOUD_URL, LOCAL_URL, ServerAddress

    own = CLOUD_URL if settings.mode == "cloud" else LOCAL_URL
    url = settings.url or own
    sends_keys = (url == own or "chroma.url" in loaded.machine) and endpoint.is_private(url)
    keys = {name: _secret(name) for name in (env.CHROMA_CREDENTIALS, env.CHROMA_KEY)} if sends_keys else {}
    flaws = [name for name, text in keys.items() if not text.isascii() or not text.isprintable()]
    return ServerAddress(
        settings.mode,
        url,
        settings.tenant,
        settings.database,
        float(settings.timeout_s),
        {} if flaws else _headers(*keys.values()),
        tuple(text for text in keys.values() if text),
        f"what {flaws[0]} holds is no key" if flaws else "",
    )


def _secret(variable: str) -> str:
    return (env.read_variable(variable) or "").strip()


def _headers(credentials: str = "", key: str = "") -> dict[str, str]:
    """The headers that say who asks."""
    headers = {}
    if credentials:
        import base64

        basic = base64.b64encode(credentials.encode()).decode()
        headers["Authorization"] = f"Basic {basic}" if ":" in credentials else f"Bearer {credentials}"
    if key:
        headers["X-Chroma-Token"] = key
    return headers

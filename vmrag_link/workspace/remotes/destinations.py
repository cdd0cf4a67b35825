"""Choose which remotes a command may contact. No function here uses the network.

The command line, the pin or the settings name a remote. If the pin names `git:`, the
knowledge base is in a ref of the git remotes, which may be several. A remote of a pin or settings
is contacted only if the user trusts it. `vmrag remote` lists and trusts remotes.
"""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link import pin as pins
from vmrag_link import pin_values
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import PinMalformed, RemoteEmpty, RemoteError, RemoteInvalid
from vmrag_link.git import configuration, plumbing, remotes
from vmrag_link.models import Record
from vmrag_link.pin import Pin
from vmrag_link.pin_values import find_remote_flaw
from vmrag_link.transport import address
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace


def list_fetch_addresses(ws: Workspace, remote: str | None) -> list[Address]:
    """Return the addresses to fetch from, in the order to try them.

    `remote`: the remote on the command line, which is trusted. None for the remote of the pin or
    the settings. git may ask for a password. Raises `RemoteMissing`, `RemoteInvalid` and
    `RemoteNotTrusted`.
    """
    if remote is not None:
        branch = ws.read_trigger().branch
        engine = find_engine(ws)
        return address.parse_remote(ws.places, remote, branch=branch, engine=engine, ref=find_code_ref(ws), ask=True)
    return list_trusted_addresses(ws, read_stated_remote(ws), ask=True)


def list_push_addresses(ws: Workspace, remote: str | None) -> list[Address]:
    """Return all addresses to which `git push` would push. `remote`: as for `list_fetch_addresses`.

    Raises `RemoteMissing`, `RemoteInvalid` and `RemoteNotTrusted`.
    """
    if remote is None and (ref := find_own_ref(ws, read_stated_remote(ws))):
        addresses = address.list_code_push_addresses(ws.places, ws.read_trigger().branch, ref=ref, ask=True)
    else:
        addresses = list_fetch_addresses(ws, remote)
    return address.list_push_targets(ws.places, addresses[0])


def list_trusted_addresses(ws: Workspace, remote: str, *, ask: bool = False) -> list[Address]:
    """Return the addresses of the remote that a pin or the settings name, in the order to try them.

    `ask`: git may ask for a password. Raises `RemoteNotTrusted`, `RemoteMissing` and
    `RemoteInvalid`.
    """
    address.require_trusted(ws.places, remote, accepted=ws.settings.read_accepted_remote)
    if ref := find_own_ref(ws, remote):
        return address.list_code_addresses(ws.places, ws.read_trigger().branch, ref=ref, ask=ask)
    return [address.parse_url(remote, engine=find_engine(ws), ask=ask)]


def find_engine(ws: Workspace) -> EngineName:
    """Return the engine of the knowledge base.

    If it does not exist yet, this is the engine of the pinned revision, of a revision that another
    branch pins, or of the settings, the first that is known.
    """
    if ws.is_initialized:
        return ws.engine.name
    from vmrag_link.workspace.pins import history_pins

    pin = _read_pin(ws) or next((pin for pin, _ in history_pins.read_pins(ws.places, reflogs=False)), None)
    return ws.config.engine if pin is None else pin_values.engine_of_revision(pin.dolt_commit)


def find_own_ref(ws: Workspace, remote: str) -> str | None:
    """Return the ref in git's remotes that a pin's remote means, such as `git:`. None for a URL.

    It depends on the engine (`pin_values.parse_git_ref`).
    """
    return pin_values.parse_git_ref(remote, data=pin_values.ENGINE_DATA_REFS[find_engine(ws)])


def require_from_agent(ws: Workspace, remote: str, *, agreed: Collection[str]) -> None:
    """Require that an agent may use this remote: a git remote of this repository, or a trusted one.

    `agreed`: addresses that the user has just accepted. Raises `RemoteMissing`, `RemoteInvalid` and
    `RemoteNotTrusted`.
    """
    if remotes.find_name(ws.places, remote):
        return
    # An invalid address raises an error, and needs no trust.
    address.parse_remote(ws.places, remote, branch=ws.read_trigger().branch, engine=find_engine(ws))
    address.require_trusted_for_agent(ws.places, remote, accepted=ws.settings.read_accepted_remote, agreed=agreed)


def find_code_ref(ws: Workspace) -> str:
    """Return the ref in which git's remotes have the knowledge base."""
    return find_own_ref(ws, read_stated_remote(ws)) or pin_values.ENGINE_DATA_REFS[find_engine(ws)]


def read_stated_remote(ws: Workspace) -> str:
    """Return the remote that the pin names, or else that of the settings."""
    return read_pinned_remote(ws) or ws.config.remote


def read_pinned_remote(ws: Workspace) -> str | None:
    """Return the remote that the pin names. None without a readable pin."""
    pin = _read_pin(ws)
    return pin.dolt_remote if pin else None


def _read_pin(ws: Workspace) -> Pin | None:
    data = plumbing.read_pin_bytes(ws.places)
    try:
        return pins.parse_pin(data) if data is not None else None
    except PinMalformed:
        return None


class RemoteRow(Record, frozen=True):
    """A remote."""

    name: str
    url: str
    """The URL without credentials."""
    branches: dict[str, str]
    """Its KB branches and their heads, as of the last fetch or push."""


class RemotesReport(Record, frozen=True):
    """The remotes of the knowledge base."""

    remote: str
    """The remote of the pin or the settings."""
    remotes: tuple[RemoteRow, ...]
    """Its addresses in the order to try them."""
    trusted: tuple[str, ...]
    """Further remotes that this machine's git configuration trusts."""
    problem: str = ""
    """Why no remote is contacted."""
    hint: str = ""


def report_remotes(ws: Workspace) -> RemotesReport:
    """Return the remotes of the pin or settings, and the trusted ones."""
    text = read_stated_remote(ws)
    trusted = tuple(map(remotes.redact_url, configuration.read_config_values(ws.places, address.TRUSTED_KEY)))
    try:
        addresses = list_trusted_addresses(ws, text)
    except RemoteError as error:
        return RemotesReport(text, (), trusted, error.message, error.hint)
    return RemotesReport(text, tuple(_build_row(ws, address) for address in addresses), trusted)


def trust_remote(ws: Workspace, text: str) -> None:
    """Allow pins and settings in this repository to name this remote.

    Raises `RemoteInvalid`.
    """
    if flaw := find_remote_flaw(text):
        raise RemoteInvalid(f"a remote {flaw}", hint="run 'vmrag remote' to list the remotes")
    if text not in configuration.read_config_values(ws.places, address.TRUSTED_KEY):
        configuration.add_value(ws.places, address.TRUSTED_KEY, text)


def distrust_remote(ws: Workspace, text: str) -> None:
    """Undo `trust_remote`. Raises `RemoteInvalid` if the remote was not trusted in this
    repository.
    """
    if not configuration.remove_value(ws.places, address.TRUSTED_KEY, text):
        raise RemoteInvalid(
            f"this repository does not trust the remote {text[:80]!r}.",
            hint=f"run 'git config --show-origin --get-all {address.TRUSTED_KEY}' to list the trusted remotes",
        )


def _build_row(ws: Workspace, address: Address) -> RemoteRow:
    heads = _list_heads(ws, address) if ws.is_initialized else {}
    return RemoteRow(address.text, _read_url(ws, address), heads)


def _read_url(ws: Workspace, address: Address) -> str:
    """Return the URL of an address without credentials."""
    if address.peer and address.peer.remote in remotes.list_remotes(ws.places):
        return remotes.redact_url(remotes.read_url(ws.places, address.peer.remote))
    return address.text


def _list_heads(ws: Workspace, address: Address) -> dict[str, str]:
    """Return the KB branches of a remote and their heads, as of the last fetch or push."""
    heads = ws.engine.remote_heads(address.key)
    return {name: head for name, head in sorted(heads.items()) if not is_reserved(name)}


class Upstream(Record, frozen=True):
    """The remote of the knowledge base, as of the last fetch or push."""

    name: str
    """The displayed name."""
    url: str
    """The URL without credentials."""
    heads: dict[str, str]
    """The heads of its KB branches."""
    address: Address | None = None
    """None if it must not be contacted."""
    problem: str = ""
    """Why it must not be contacted."""


def find_upstream(ws: Workspace) -> Upstream | None:
    """Return the first remote of the pin or the settings. None if git has no remote."""
    text = read_stated_remote(ws)
    try:
        address = list_trusted_addresses(ws, text)[0]
    except RemoteEmpty:
        return None
    except RemoteError as error:
        name = remotes.redact_url(text)
        return Upstream(name, name, {}, problem=error.message)
    return Upstream(address.text, _read_url(ws, address), _list_heads(ws, address), address)

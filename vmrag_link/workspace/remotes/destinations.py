"""Which remotes a command talks to; what `vmrag remote` tells of them and agrees to; and the remote
of the workspace's knowledge, as of the last fetch.
"""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link import pin as pins
from vmrag_link import pin_values
from vmrag_link.engines.base import EngineName, is_reserved
from vmrag_link.errors import PinMalformed, RemoteEmpty, RemoteError, RemoteInvalid
from vmrag_link.git import configuration, plumbing, remotes
from vmrag_link.models import Record
from vmrag_link.pin import Pin
from vmrag_link.pin_values import find_remote_flaw
from vmrag_link.transport import address
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace


def list_fetch_addresses(ws: Workspace, remote: str | None) -> list[Address]:
    """The remote named on the command line, else that of the pin or the settings, if trusted.

    Naming one agrees to it.

    In the order to ask them. A person may be asked for a password. Raises `RemoteMissing`,
    `RemoteInvalid`, `RemoteNotTrusted`.
    """
    if remote is not None:
        branch, engine = ws.read_trigger().branch, find_engine(ws)
        return address.parse_remote(ws.places, remote, branch=branch, engine=engine, ref=find_code_ref(ws), ask=True)
    return list_trusted_addresses(ws, read_stated_remote(ws), ask=True)


def list_push_addresses(ws: Workspace, remote: str | None) -> list[Address]:
    """As `asked`, for pushing: all places where `git push` would go."""
    if remote is None and (ref := find_own_ref(ws, read_stated_remote(ws))):
        found = address.list_code_push_addresses(ws.places, ws.read_trigger().branch, ref=ref, ask=True)
    else:
        found = list_fetch_addresses(ws, remote)
    return address.list_push_targets(ws.places, found[0])


def list_trusted_addresses(ws: Workspace, remote: str, *, ask: bool = False) -> list[Address]:
    """The remote that a pin or the settings name.

    Raises `RemoteNotTrusted` before anything is contacted, and as `asked`.
    """
    address.require_trusted(ws.places, remote, accepted=ws.settings.read_accepted_remote)
    if ref := find_own_ref(ws, remote):
        return address.list_code_addresses(ws.places, ws.read_trigger().branch, ref=ref, ask=ask)
    return [address.parse_url(remote, engine=find_engine(ws), ask=ask)]


def find_engine(ws: Workspace) -> EngineName:
    """The engine of the knowledge base that is here, else of the one that is to come: that of the
    pinned revision, else of those that other branches pin, else the one of the settings.
    """
    if ws.is_initialized:
        return ws.engine.name
    from vmrag_link.workspace.pins import history_pins

    pin = _pin(ws) or next((each for each, _ in history_pins.read_pins(ws.places, reflogs=False)), None)
    return ws.config.engine if pin is None else pin_values.engine_of_revision(pin.dolt_commit)


def find_own_ref(ws: Workspace, remote: str) -> str | None:
    """As `pin_values.own_ref`, for the engine of this knowledge base."""
    return pin_values.parse_git_ref(remote, data=pin_values.ENGINE_DATA_REFS[find_engine(ws)])


def require_from_agent(ws: Workspace, remote: str, *, agreed: Collection[str]) -> None:
    """Check that an agent may name this remote: one of git's here, or an address agreed to.

    `agreed`: the person was asked, and agreed. Raises `RemoteMissing`, `RemoteInvalid`,
    `RemoteNotTrusted`.
    """
    if remotes.find_name(ws.places, remote):
        return
    # What is no address needs no agreement.
    address.parse_remote(ws.places, remote, branch=ws.read_trigger().branch, engine=find_engine(ws))
    address.require_trusted_for_agent(ws.places, remote, accepted=ws.settings.read_accepted_remote, agreed=agreed)


def find_code_ref(ws: Workspace) -> str:
    """The ref at which the code's own remotes hold the knowledge base."""
    return find_own_ref(ws, read_stated_remote(ws)) or pin_values.ENGINE_DATA_REFS[find_engine(ws)]


def read_stated_remote(ws: Workspace) -> str:
    """The remote that the pin names, else that of the settings."""
    return read_pinned_remote(ws) or ws.config.remote


def read_pinned_remote(ws: Workspace) -> str | None:
    pin = _pin(ws)
    return pin.dolt_remote if pin else None


def _pin(ws: Workspace) -> Pin | None:
    data = plumbing.read_pin_bytes(ws.places)
    try:
        return pins.parse_pin(data) if data is not None else None
    except PinMalformed:
        return None


class RemoteRow(Record, frozen=True):
    """`url` without credentials.

    `branches`: its KB branches and their heads when it was last asked.
    """

    name: str
    url: str
    branches: dict[str, str]


class RemotesReport(Record, frozen=True):
    """`remote`: what pin and settings say.

    `remotes`: its addresses here, in the order to ask them; or `problem`, why none is asked.
    `trusted`: what this machine's git configuration allows besides.
    """

    remote: str
    remotes: tuple[RemoteRow, ...]
    trusted: tuple[str, ...]
    problem: str = ""
    hint: str = ""


def report_remotes(ws: Workspace) -> RemotesReport:
    """Report the remotes. Uses no network."""
    text = read_stated_remote(ws)
    trusted = tuple(map(remotes.redact_url, configuration.read_config_values(ws.places, address.TRUSTED_KEY)))
    try:
        found = list_trusted_addresses(ws, text)
    except RemoteError as why:
        return RemotesReport(text, (), trusted, why.message, why.hint)
    return RemotesReport(text, tuple(_row(ws, each) for each in found), trusted)


def trust_remote(ws: Workspace, text: str) -> None:
    """Let pins and settings name this remote from now on, in this repository.

    Raises `RemoteInvalid`.
    """
    if flaw := find_remote_flaw(text):
        raise RemoteInvalid(f"A remote {flaw}", hint="vmrag remote")
    if text not in configuration.read_config_values(ws.places, address.TRUSTED_KEY):
        configuration.add_value(ws.places, address.TRUSTED_KEY, text)


def distrust_remote(ws: Workspace, text: str) -> None:
    """Undo `agree`; raises `RemoteInvalid` where that was not done in this repository."""
    if not configuration.remove_value(ws.places, address.TRUSTED_KEY, text):
        raise RemoteInvalid(
            f"This repository's git configuration does not name {text[:80]!r}.",
            hint=f"git config --show-origin --get-all {address.TRUSTED_KEY}",
        )


def _row(ws: Workspace, address: Address) -> RemoteRow:
    url = address.text
    if address.peer and address.peer.remote in remotes.list_remotes(ws.places):
        url = remotes.redact_url(remotes.read_url(ws.places, address.peer.remote))
    heads = ws.engine.remote_heads(address.key) if ws.is_initialized else {}
    return RemoteRow(address.text, url, {n: h for n, h in sorted(heads.items()) if not is_reserved(n)})


class Upstream(Record, frozen=True):
    """`name` and `url` for people, without credentials; `heads` of its KB branches as last seen.

    `problem`: why it is not to be contacted; then there is no `address`.
    """

    name: str
    url: str
    heads: dict[str, str]
    address: Address | None = None
    problem: str = ""


def find_upstream(ws: Workspace) -> Upstream | None:
    """The first remote of pin and settings; None where git knows no remote. Uses no network."""
    text = read_stated_remote(ws)
    try:
        address = list_trusted_addresses(ws, text)[0]
    except RemoteEmpty:
        return None
    except RemoteError as why:
        seen = remotes.redact_url(text)
        return Upstream(seen, seen, {}, problem=why.message)
    url = address.text
    if address.peer and address.peer.remote in remotes.list_remotes(ws.places):
        url = remotes.redact_url(remotes.read_url(ws.places, address.peer.remote))
    heads = {name: head for name, head in sorted(ws.engine.remote_heads(address.key).items()) if not is_reserved(name)}
    return Upstream(address.text, url, heads, address)

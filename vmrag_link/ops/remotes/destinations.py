"""Which remotes a command talks to; what `vmrag remote` tells of them and agrees to; and the remote
of the workspace's knowledge, as of the last fetch.
"""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link import pin as pins
from vmrag_link import pin_values
from vmrag_link.engines.base import EngineName, reserved
from vmrag_link.errors import PinMalformed, RemoteEmpty, RemoteError, RemoteInvalid
from vmrag_link.git import configuration, plumbing, remotes
from vmrag_link.models import Record
from vmrag_link.pin import Pin
from vmrag_link.pin_values import remote_flaw
from vmrag_link.transport import address
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace


def asked(ws: Workspace, remote: str | None) -> list[Address]:
    """The remote named on the command line, else that of the pin or the settings, if trusted.

    Naming one agrees to it.

    In the order to ask them. A person may be asked for a password. Raises `RemoteMissing`,
    `RemoteInvalid`, `RemoteNotTrusted`.
    """
    if remote is not None:
        branch, engine = ws.trigger().branch, engine_of(ws)
        return address.parse(ws.places, remote, branch=branch, engine=engine, ref=code_ref(ws), ask=True)
    return named(ws, stated_remote(ws), ask=True)


def to_push(ws: Workspace, remote: str | None) -> list[Address]:
    """As `asked`, for pushing: all places where `git push` would go."""
    if remote is None and (ref := own_ref(ws, stated_remote(ws))):
        found = address.to_code(ws.places, ws.trigger().branch, ref=ref, ask=True)
    else:
        found = asked(ws, remote)
    return address.for_pushing(ws.places, found[0])


def named(ws: Workspace, remote: str, *, ask: bool = False) -> list[Address]:
    """The remote that a pin or the settings name.

    Raises `RemoteNotTrusted` before anything is contacted, and as `asked`.
    """
    address.require(ws.places, remote, accepted=ws.settings.accepted_remote)
    if ref := own_ref(ws, remote):
        return address.of_code(ws.places, ws.trigger().branch, ref=ref, ask=ask)
    return [address.of_url(remote, engine=engine_of(ws), ask=ask)]


def engine_of(ws: Workspace) -> EngineName:
    """The engine of the knowledge base that is here, else of the one that is to come: that of the
    pinned revision, else of those that other branches pin, else the one of the settings.
    """
    if ws.initialized:
        return ws.engine.name
    from vmrag_link.ops.pins import history_pins

    pin = _pin(ws) or next((each for each, _ in history_pins.read_pins(ws.places, reflogs=False)), None)
    return ws.config.engine if pin is None else pin_values.written_by(pin.dolt_commit)


def own_ref(ws: Workspace, remote: str) -> str | None:
    """As `pin_values.own_ref`, for the engine of this knowledge base."""
    return pin_values.own_ref(remote, data=pin_values.ENGINE_DATA[engine_of(ws)])


def require_from_agent(ws: Workspace, remote: str, *, agreed: Collection[str]) -> None:
    """Check that an agent may name this remote: one of git's here, or an address agreed to.

    `agreed`: the person was asked, and agreed. Raises `RemoteMissing`, `RemoteInvalid`,
    `RemoteNotTrusted`.
    """
    if remotes.find_name(ws.places, remote):
        return
    # What is no address needs no agreement.
    address.parse(ws.places, remote, branch=ws.trigger().branch, engine=engine_of(ws))
    address.require_from_agent(ws.places, remote, accepted=ws.settings.accepted_remote, agreed=agreed)


def code_ref(ws: Workspace) -> str:
    """The ref at which the code's own remotes hold the knowledge base."""
    return own_ref(ws, stated_remote(ws)) or pin_values.ENGINE_DATA[engine_of(ws)]


def stated_remote(ws: Workspace) -> str:
    """The remote that the pin names, else that of the settings."""
    return pinned_remote(ws) or ws.config.remote


def pinned_remote(ws: Workspace) -> str | None:
    pin = _pin(ws)
    return pin.dolt_remote if pin else None


def _pin(ws: Workspace) -> Pin | None:
    data = plumbing.pin_bytes(ws.places)
    try:
        return pins.parse(data) if data is not None else None
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
    text = stated_remote(ws)
    trusted = tuple(map(remotes.shown, configuration.config_values(ws.places, address.TRUSTED_KEY)))
    try:
        found = named(ws, text)
    except RemoteError as why:
        return RemotesReport(text, (), trusted, why.message, why.hint)
    return RemotesReport(text, tuple(_row(ws, each) for each in found), trusted)


def agree(ws: Workspace, text: str) -> None:
    """Let pins and settings name this remote from now on, in this repository.

    Raises `RemoteInvalid`.
    """
    if flaw := remote_flaw(text):
        raise RemoteInvalid(f"A remote {flaw}", hint="vmrag remote")
    if text not in configuration.config_values(ws.places, address.TRUSTED_KEY):
        configuration.add(ws.places, address.TRUSTED_KEY, text)


def withdraw(ws: Workspace, text: str) -> None:
    """Undo `agree`; raises `RemoteInvalid` where that was not done in this repository."""
    if not configuration.remove(ws.places, address.TRUSTED_KEY, text):
        raise RemoteInvalid(
            f"This repository's git configuration does not name {text[:80]!r}.",
            hint=f"git config --show-origin --get-all {address.TRUSTED_KEY}",
        )


def _row(ws: Workspace, address: Address) -> RemoteRow:
    url = address.text
    if address.peer and address.peer.where in remotes.names(ws.places):
        url = remotes.shown(remotes.url(ws.places, address.peer.where))
    heads = ws.engine.remote_heads(address.key) if ws.initialized else {}
    return RemoteRow(address.text, url, {n: h for n, h in sorted(heads.items()) if not reserved(n)})


class Upstream(Record, frozen=True):
    """`name` and `url` for people, without credentials; `heads` of its KB branches as last seen.

    `problem`: why it is not to be contacted; then there is no `address`.
    """

    name: str
    url: str
    heads: dict[str, str]
    address: Address | None = None
    problem: str = ""


def upstream(ws: Workspace) -> Upstream | None:
    """The first remote of pin and settings; None where git knows no remote. Uses no network."""
    text = stated_remote(ws)
    try:
        address = named(ws, text)[0]
    except RemoteEmpty:
        return None
    except RemoteError as why:
        seen = remotes.shown(text)
        return Upstream(seen, seen, {}, problem=why.message)
    url = address.text
    if address.peer and address.peer.where in remotes.names(ws.places):
        url = remotes.shown(remotes.url(ws.places, address.peer.where))
    heads = {name: head for name, head in sorted(ws.engine.remote_heads(address.key).items()) if not reserved(name)}
    return Upstream(address.text, url, heads, address)

"""`vmrag remote`: where the knowledge base is fetched from and pushed to, and what is trusted."""

from __future__ import annotations

from vmrag_link.engines.base import reserved
from vmrag_link.errors import RemoteError, RemoteInvalid
from vmrag_link.git import configuration, remotes
from vmrag_link.models import Record
from vmrag_link.ops.remotes import destinations
from vmrag_link.pin_values import remote_flaw
from vmrag_link.transport import address
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace


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


def remote(ws: Workspace) -> RemotesReport:
    """Report the remotes. Uses no network."""
    text = destinations.stated_remote(ws)
    trusted = tuple(map(remotes.shown, configuration.config_values(ws.places, address.TRUSTED_KEY)))
    try:
        found = destinations.named(ws, text)
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

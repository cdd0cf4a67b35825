"""Put this server into the files of MCP clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link.errors import UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_mcp.clients import entries, receipts, server_command
from vmrag_mcp.clients.edits import TextRefused
from vmrag_mcp.clients.installation import (
    ClientRefusal,
    Installation,
    Scope,
    for_each,
    has_file,
    is_installed,
    locate,
)
from vmrag_mcp.clients.receipts import InstallReceipt
from vmrag_mcp.clients.settings_file import writing
from vmrag_mcp.clients.table import CLIENTS
from vmrag_mcp.options import Flags


class ClientInstallReport(Record, frozen=True):
    """`changed`: the file was written.

    `portable`: the command that it names exists on other computers. `shared`: the file is the
    project's. `kept`: the file holds a server of that name which is not ours, or is for another
    repository, and was left as it is.
    """

    client: str
    file: str
    changed: bool
    portable: bool
    kept: bool
    server: dict[str, Any]
    name: str = server_command.SERVER
    shared: bool = True
    next_step: str = ""


class ClientInstallations(Record, frozen=True):
    """What was done for each client that is installed here."""

    clients: tuple[ClientInstallReport, ...]
    refused: tuple[ClientRefusal, ...]


class ClientConfiguration(Record, frozen=True):
    """What belongs into a client's configuration, as a value and as the text of its format."""

    configuration: dict[str, Any]
    text: str


def configuration(directory: Path, name: str | None, flags: Flags, scope: Scope | None = None) -> ClientConfiguration:
    """For a known client, or for any other one on this computer. Raises `GitRepositoryMissing`."""
    places = plumbing.locate(directory)
    if name is None:
        wanted = server_command.for_person(None, places, flags)
        made = {"mcpServers": {wanted.name: wanted.value}}
        return ClientConfiguration(made, json.dumps(made, indent="  ", ensure_ascii=False))
    _, client, _, wanted = locate(places, name, scope, flags)
    text = entries.rendered(client.format, client.section, wanted.name, wanted.value)
    return ClientConfiguration({client.section: {wanted.name: wanted.value}}, text.removesuffix("\n"))


def found() -> tuple[str, ...]:
    """The clients that are installed here: whose program is found, or that were started once."""
    return tuple(name for name, client in CLIENTS.items() if is_installed(client))


def install(directory: Path, name: str, flags: Flags, scope: Scope | None = None) -> ClientInstallReport:
    """Write our server into a client's file, and keep every other byte of it.

    `scope` None: the project's file, if the client has one. Without flags, the options that our
    server has there stay as well. Raises `GitRepositoryMissing`, and `UsageInvalid` for a client
    that has no such file or is not installed, and for a file that cannot be changed without a
    loss.
    """
    installation = locate(plumbing.locate(directory), name, scope, flags)
    if not installation.file.top and not is_installed(installation.client):
        raise UsageInvalid(
            f"{installation.client.title} keeps its settings in {installation.file.label}, and was never started here.",
            hint=f"Start it once, or see what belongs there: vmrag mcp install --client {name} --print",
            client=name,
            file=installation.file.label,
        )
    with writing():
        try:
            return _install(installation, flags)
        except TextRefused as refused:
            raise installation.refuse(refused.reason) from refused


def install_all(directory: Path, flags: Flags, scope: Scope | None = None) -> ClientInstallations:
    """`install` for every client that is installed here and has such a file.

    Raises `UsageInvalid` if there is none.
    """
    names = [name for name in found() if scope is None or has_file(CLIENTS[name], scope)]
    if not names:
        raise UsageInvalid(
            "No MCP client that is known here was found on this computer.",
            hint=f"vmrag mcp install --client NAME: one of {', '.join(CLIENTS)}",
        )
    done, refused = for_each(names, lambda name: install(directory, name, flags, scope))
    return ClientInstallations(tuple(done), refused)


def _install(installation: Installation, flags: Flags) -> ClientInstallReport:
    key, client, file, wanted = installation
    before = file.read()
    text = entries.decode(before)
    there = entries.find(client.format, text, client.section, wanted.name)
    report = ClientInstallReport(
        key,
        file.label,
        changed=False,
        portable=wanted.command.portable or file.top is None,
        kept=False,
        server=wanted.value,
        name=wanted.name,
        shared=file.top is not None,
        next_step=client.next_step,
    )
    if there is None:
        after, added = entries.with_entry(client.format, text, client.section, wanted.name, wanted.value)
        folders = tuple(map(str, file.missing_folders())) if before is None else ()
        file.replace(before, after.encode())
        receipts.keep(InstallReceipt(str(file.target), wanted.name, wanted.value, added, before is None, folders))
        return msgspec.structs.replace(report, changed=True)
    ours = server_command.is_ours(client.shape, there)
    if not ours or (file.top is None and not server_command.serves(client.shape, there, wanted)):
        return msgspec.structs.replace(report, portable=True, kept=True, server=there)
    values = server_command.changed_values(client.shape, there, wanted, flags)
    if not values:
        return msgspec.structs.replace(report, server=there)
    after = entries.with_values(client.format, text, client.section, wanted.name, values)
    file.replace(before, after.encode())
    server = {**there, **values}
    receipt = receipts.find(file.target, wanted.name)
    if receipt and receipt.entry == there:  # nobody else changed it
        receipts.keep(msgspec.structs.replace(receipt, entry=server))
    return msgspec.structs.replace(report, changed=True, server=server)

"""Put this server into the settings files of MCP clients, for `vmrag mcp install`.

This module finds the file and the entry for each client, and adds or updates the entry. It changes
an existing entry only if this computer wrote it, as a receipt records (`settings_file`), because an
entry starts a program.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vmrag_link import env
from vmrag_link.errors import FileFailed, GitError, UsageInvalid, file_failures
from vmrag_link.git import listing, plumbing
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_mcp.clients import entries, server_command, settings_file
from vmrag_mcp.clients.rules import RulesFile, apply_rules, plan_rules
from vmrag_mcp.clients.server_command import ServerEntry
from vmrag_mcp.clients.settings_file import Entry, InstallReceipt, SettingsFile, TextRefused, lock_installation
from vmrag_mcp.clients.table import CLIENTS, McpClient, Scope
from vmrag_mcp.options import Flags


class ClientRefusal(Record, frozen=True):
    """A client whose file could not be edited. The files of other clients were edited."""

    client: str
    code: str
    message: str
    hint: str


class Installation(NamedTuple):
    """The entry of a client and the file for it, whether the file has the entry or not."""

    key: str
    client: McpClient
    file: SettingsFile
    entry: ServerEntry

    def build_refusal(self, reason: str) -> UsageInvalid:
        settings = {self.client.section: {self.entry.name: self.entry.value}}
        text = json.dumps(settings, ensure_ascii=False)
        if self.client.format in ("toml", "yaml"):
            text = entries.render_file(self.client.format, self.client.section, self.entry.name, self.entry.value)
        return UsageInvalid(
            f"cannot edit {self.file.label}: {reason}.",
            hint=f"add this to the file yourself: {text.strip()}",
            file=self.file.label,
            wanted=self.entry.value,
        )


def locate_installation(places: Places, name: str, scope: Scope | None, flags: Flags) -> Installation:
    """Return the entry for a client and its file.

    `scope` None means the project's file, if the client has one. Raises `UsageInvalid` for a client
    without such a file.
    """
    client = CLIENTS[name]
    if client.project and scope != "person":
        existing = [label for label in client.project.names if (places.top / label).exists()]
        label = (existing or client.project.names)[0]
        file = SettingsFile(places.top / label, label, places.top)
        return Installation(name, client, file, server_command.for_project(client, client.project, places, flags))
    if client.personal is None or scope == "project":
        reason = "project file" if scope == "project" else "personal file"
        raise UsageInvalid(
            f"{client.title} has no {reason} that other programs can write.",
            hint="run 'claude mcp add --scope user vmrag -- vmrag-mcp --default-toolsets essential'"
            if name == "claude-code"
            else f"run 'vmrag mcp install --client {name}'",
            client=name,
        )
    paths = client.personal.list_paths()
    path = next((path for path in paths if path.exists()), paths[0])
    return Installation(
        name, client, SettingsFile(path, str(path), None), server_command.for_person(client, places, flags)
    )


class ClientInstallReport(Record, frozen=True):
    """The result of an installation."""

    client: str
    file: str
    changed: bool
    """The file was written."""
    portable: bool
    """The command in the entry exists on other computers."""
    kept: bool
    """The file was not changed, because its entry of that name was not written by this computer."""
    server: dict[str, Any]
    name: str = server_command.SERVER
    shared: bool = True
    """The file is the project's."""
    next_step: str = ""
    differs: tuple[str, ...] = ()
    """How a kept entry differs from ours. Empty for another server, or for another repository."""
    ignored: bool = False
    """Git ignores the project's file."""
    rules: tuple[RulesFile, ...] = ()
    """The files with the section for agents."""


class ClientInstallations(Record, frozen=True):
    """The results for all installed clients."""

    clients: tuple[ClientInstallReport, ...]
    refused: tuple[ClientRefusal, ...]


class ClientConfiguration(Record, frozen=True):
    """The settings to add to a client's file, as a value and as text in the file's format."""

    configuration: dict[str, Any]
    text: str


def build_configuration(
    directory: Path, name: str | None, flags: Flags, scope: Scope | None = None
) -> ClientConfiguration:
    """Return the settings for a known client, or for any other client on this computer.

    Raises `GitRepositoryMissing`.
    """
    places = plumbing.locate_work_tree(directory)
    if name is None:
        entry = server_command.for_person(None, places, flags)
        settings = {"mcpServers": {entry.name: entry.value}}
        return ClientConfiguration(settings, json.dumps(settings, indent="  ", ensure_ascii=False))
    _, client, _, entry = locate_installation(places, name, scope, flags)
    text = entries.render_file(client.format, client.section, entry.name, entry.value)
    return ClientConfiguration({client.section: {entry.name: entry.value}}, text.removesuffix("\n"))


def install_server(
    directory: Path, name: str, flags: Flags, scope: Scope | None = None, *, replace: bool = False, rules: bool = False
) -> ClientInstallReport:
    """Add our server to a client's file, and keep every other byte of it.

    An entry that this computer wrote is updated; without flags, its options stay. Any other entry
    of that name stays, and the report lists the differences, unless `replace` is true. `rules` also
    writes the section for agents into the repository.

    `scope` None means the project's file, if the client has one. Raises `GitRepositoryMissing`, and
    `UsageInvalid` in three cases: the client has no such file, the client is not installed, or the
    file cannot be changed without a loss.
    """
    places = plumbing.locate_work_tree(directory)
    installation = locate_installation(places, name, scope, flags)
    if not installation.file.top and not is_installed(installation.client):
        raise UsageInvalid(
            f"{installation.client.title} has not created {installation.file.label} yet.",
            hint=f"start it once, or run 'vmrag mcp install --client {name} --print' to print the settings",
            client=name,
            file=installation.file.label,
        )
    with lock_installation():
        changes = plan_rules(places, [name]) if rules else []
        try:
            report = _write_entry(installation, flags, replace=replace)
        except TextRefused as refused:
            raise installation.build_refusal(refused.reason) from refused
        written = apply_rules(changes)
    ignored = report.shared and _is_ignored(places, installation.file.path)
    return msgspec.structs.replace(report, ignored=ignored, rules=written)


def _is_ignored(places: Places, path: Path) -> bool:
    with contextlib.suppress(GitError):
        return bool(listing.Repositories(places).find_ignored([path]))
    return False


def install_all(
    directory: Path, flags: Flags, scope: Scope | None = None, *, replace: bool = False, rules: bool = False
) -> ClientInstallations:
    """Add our server for every installed client that has such a file (`install_server`).

    Raises `UsageInvalid` if there is none.
    """
    names = [name for name in installed_clients() if scope is None or CLIENTS[name].has_file(scope)]
    if not names:
        raise UsageInvalid(
            "no known MCP client found on this computer.",
            hint=f"run 'vmrag mcp install --client NAME' with one of {', '.join(CLIENTS)}",
        )
    reports, refused = for_each(
        names, lambda name: install_server(directory, name, flags, scope, replace=replace, rules=rules)
    )
    return ClientInstallations(tuple(reports), refused)


def installed_clients() -> tuple[str, ...]:
    """Return the names of the installed clients."""
    return tuple(name for name, client in CLIENTS.items() if is_installed(client))


def is_installed(client: McpClient) -> bool:
    """Return whether the client's program is found, or the client has been started before."""
    path = os.pathsep.join(env.list_program_folders())
    if any(shutil.which(program, path=path) for program in client.programs):
        return True
    return any(map(Path.is_dir, client.list_folders()))


def for_each(names: Sequence[str], run: Callable[[str], Any]) -> tuple[list[Any], tuple[ClientRefusal, ...]]:
    """Return the results, and a refusal for each client whose file cannot be used."""
    results, refused = [], []
    for name in names:
        try:
            with file_failures():
                results.append(run(name))
        except (UsageInvalid, FileFailed) as error:
            refused.append(ClientRefusal(name, error.code, error.message, error.hint))
    return results, tuple(refused)


def _write_entry(installation: Installation, flags: Flags, *, replace: bool) -> ClientInstallReport:
    """Add the entry, update ours, or keep another entry of the same name."""
    key, client, file, ours = installation
    before = file.read_content()
    text = entries.decode_text(before)
    entry = entries.find_entry(client.format, text, client.section, ours.name)
    report = ClientInstallReport(
        key,
        file.label,
        changed=False,
        portable=ours.command.portable or file.top is None,
        kept=False,
        server=ours.value,
        name=ours.name,
        shared=file.top is not None,
        next_step=client.next_step,
    )
    if entry is None:
        after, added = entries.with_entry(client.format, text, client.section, ours.name, ours.value)
        folders = tuple(map(str, file.missing_folders())) if before is None else ()
        file.replace_content(before, after.encode())
        settings_file.keep_receipt(
            InstallReceipt(
                file=str(file.target),
                name=ours.name,
                entry=ours.value,
                added=added,
                new=before is None,
                folders=folders,
            )
        )
        return msgspec.structs.replace(report, changed=True)
    receipt = settings_file.find_receipt(file.target, ours.name)
    if receipt and receipt.entry == entry and serves_here(installation, entry):
        values = server_command.changed_values(client.shape, entry, ours, flags)
        if not values:
            return msgspec.structs.replace(report, server=entry)
        after = entries.with_values(client.format, text, client.section, ours.name, values)
        file.replace_content(before, after.encode())
        settings_file.keep_receipt(msgspec.structs.replace(receipt, entry={**entry, **values}))
        return msgspec.structs.replace(report, changed=True, server={**entry, **values})
    if entry == ours.value:
        return report
    if not replace:
        # Someone else can have written the entry, and it starts a program.
        differs = server_command.list_differences(entry, ours.value) if serves_here(installation, entry) else ()
        return msgspec.structs.replace(report, portable=True, kept=True, server=entry, differs=tuple(differs))
    rest = entries.without_entry(client.format, text, client.section, ours.name, None)
    after, added = entries.with_entry(client.format, rest, client.section, ours.name, ours.value)
    file.replace_content(before, after.encode())
    settings_file.keep_receipt(InstallReceipt(str(file.target), ours.name, ours.value, added))
    return msgspec.structs.replace(report, changed=True)


def serves_here(installation: Installation, entry: Entry) -> bool:
    """Return whether an entry starts our server, for the repository of the installation."""
    _, client, file, ours = installation
    return server_command.is_ours(client.shape, entry) and (
        file.top is not None or server_command.serves_same_repository(client.shape, entry, ours)
    )

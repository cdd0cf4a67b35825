"""Put this server into the settings files of MCP clients.

This module finds the file and the entry for each client, and adds, updates or removes one entry in
the text of such a file. The result of an editor is read again before it is written: except for the
entry, it must have the same values as before.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from vmrag_link import env
from vmrag_link.errors import FileFailed, GitError, UsageInvalid, file_failures
from vmrag_link.git import listing, plumbing
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_mcp.clients import server_command, settings_file
from vmrag_mcp.clients.json_editor import JsonEditor
from vmrag_mcp.clients.line_editors import TomlEditor, YamlEditor
from vmrag_mcp.clients.rules import RulesFile, apply_rules, plan_rules
from vmrag_mcp.clients.server_command import ServerEntry
from vmrag_mcp.clients.settings_file import (
    DEEPEST,
    TOO_DEEP,
    Addition,
    Editor,
    Entry,
    InstallReceipt,
    SettingsFile,
    TextRefused,
    build_structure_error,
    lock_installation,
)
from vmrag_mcp.clients.table import CLIENTS, FileFormat, McpClient
from vmrag_mcp.options import Flags

Scope = Literal["project", "person"]


class ClientRefusal(Record, frozen=True):
    """A client whose file could not be edited. The files of other clients were edited."""

    client: str
    code: str
    message: str
    hint: str


class Installation(NamedTuple):
    """One entry in one file."""

    key: str
    client: McpClient
    file: SettingsFile
    entry: ServerEntry

    def build_refusal(self, reason: str) -> UsageInvalid:
        settings = {self.client.section: {self.entry.name: self.entry.value}}
        text = json.dumps(settings, ensure_ascii=False)
        if self.client.format in ("toml", "yaml"):
            text = render_file(self.client.format, self.client.section, self.entry.name, self.entry.value)
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


def has_file(client: McpClient, scope: Scope) -> bool:
    return (client.project if scope == "project" else client.personal) is not None


def is_installed(client: McpClient) -> bool:
    """Return whether the client's program is found, or the client has been started before."""
    path = os.pathsep.join(env.list_program_folders())
    return any(shutil.which(program, path=path) for program in client.programs) or any(
        map(Path.is_dir, client.list_signs())
    )


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
    text = render_file(client.format, client.section, entry.name, entry.value)
    return ClientConfiguration({client.section: {entry.name: entry.value}}, text.removesuffix("\n"))


def installed_clients() -> tuple[str, ...]:
    """Return the names of the installed clients."""
    return tuple(name for name, client in CLIENTS.items() if is_installed(client))


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
    names = [name for name in installed_clients() if scope is None or has_file(CLIENTS[name], scope)]
    if not names:
        raise UsageInvalid(
            "no known MCP client found on this computer.",
            hint=f"run 'vmrag mcp install --client NAME' with one of {', '.join(CLIENTS)}",
        )
    reports, refused = for_each(
        names, lambda name: install_server(directory, name, flags, scope, replace=replace, rules=rules)
    )
    return ClientInstallations(tuple(reports), refused)


def _write_entry(installation: Installation, flags: Flags, *, replace: bool) -> ClientInstallReport:
    key, client, file, ours = installation
    before = file.read_content()
    text = decode_text(before)
    entry = find_entry(client.format, text, client.section, ours.name)
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
        after, added = with_entry(client.format, text, client.section, ours.name, ours.value)
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
        after = with_values(client.format, text, client.section, ours.name, values)
        file.replace_content(before, after.encode())
        settings_file.keep_receipt(msgspec.structs.replace(receipt, entry={**entry, **values}))
        return msgspec.structs.replace(report, changed=True, server={**entry, **values})
    if entry == ours.value:
        return report
    if not replace:
        # Someone else can have written the entry, and it starts a program.
        differs = server_command.list_differences(entry, ours.value) if serves_here(installation, entry) else ()
        return msgspec.structs.replace(report, portable=True, kept=True, server=entry, differs=tuple(differs))
    rest = without_entry(client.format, text, client.section, ours.name, None)
    after, added = with_entry(client.format, rest, client.section, ours.name, ours.value)
    file.replace_content(before, after.encode())
    settings_file.keep_receipt(InstallReceipt(str(file.target), ours.name, ours.value, added))
    return msgspec.structs.replace(report, changed=True)


def serves_here(installation: Installation, entry: Entry) -> bool:
    """Return whether an entry starts our server, for the repository of the installation."""
    _, client, file, ours = installation
    return server_command.is_ours(client.shape, entry) and (
        file.top is not None or server_command.serves_same_repository(client.shape, entry, ours)
    )


EDITORS: Mapping[FileFormat, Editor] = {
    "json": JsonEditor(comments=False),
    "jsonc": JsonEditor(comments=True),
    "toml": TomlEditor(),
    "yaml": YamlEditor(),
}


def decode_text(content: bytes | None) -> str:
    """Return the content of a file as text. Raises `TextRefused`."""
    if content is None:
        return ""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise TextRefused(f"it is not UTF-8: {error}") from None
    if text.startswith("\ufeff"):
        raise TextRefused("it begins with a byte order mark")
    return text


def read_values(form: FileFormat, text: str) -> dict[str, Any]:
    """Return the values of a client's file.

    Raises `TextRefused` for a text that the format's reader refuses, or that is nested so deep
    that a comparison of its values could exceed Python's stack.
    """
    values = EDITORS[form].read_values(text)
    level: list[Any] = [values]
    for _ in range(DEEPEST + 1):
        level = [part for value in level for part in _list_parts(value)]
    if level:
        raise TextRefused(TOO_DEEP)
    return values


def _list_parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def find_entry(form: FileFormat, text: str, section: str, name: str) -> dict[str, Any] | None:
    """Return the values of an entry; None if the text does not have it.

    Raises `TextRefused` if the text does not have the structure of the client's file, or if the
    entry has values that reports cannot show.
    """
    servers = read_values(form, text).get(section) or {}
    entry = servers.get(name) if isinstance(servers, dict) else None
    if not isinstance(servers, dict) or not isinstance(entry, dict | None):
        raise build_structure_error(section)
    try:
        msgspec.json.encode(entry)
    except (ValueError, OverflowError, TypeError) as error:
        raise TextRefused(f"{section}.{name} has a value that JSON cannot hold: {error}") from None
    return entry


def with_entry(form: FileFormat, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
    """Return the text with the entry, and what was added. Raises `TextRefused`."""
    after, added = EDITORS[form].add_entry(text, section, name, entry)
    _require_same_values(form, (text, after), section, name, dict(entry))
    return after, added


def with_values(form: FileFormat, text: str, section: str, name: str, values: Entry) -> str:
    """Return the text with other values in the entry. Raises `TextRefused`."""
    entry = find_entry(form, text, section, name) or {}
    after = EDITORS[form].change_entry(text, section, name, values)
    _require_same_values(form, (text, after), section, name, {**entry, **values})
    return after


def without_entry(form: FileFormat, text: str, section: str, name: str, added: Addition | None) -> str:
    """Return the text without the entry. Raises `TextRefused`."""
    after = EDITORS[form].remove_entry(text, section, name, added)
    _require_same_values(form, (text, after), section, name, None)
    return after


def render_file(form: FileFormat, section: str, name: str, entry: Entry) -> str:
    """Return the text of a file with only this entry."""
    return EDITORS[form].add_entry("", section, name, entry)[0]


def _require_same_values(
    form: FileFormat, texts: tuple[str, str], section: str, name: str, entry: Entry | None
) -> None:
    """Raise `TextRefused` unless both texts have the same values, except for the entry."""
    before, after = texts
    expected = copy.deepcopy(read_values(form, before))
    servers = expected.setdefault(section, {}) or {}
    servers.pop(name, None)
    if entry is not None:
        servers[name] = entry
    expected[section] = servers
    try:
        actual = read_values(form, after)
    except TextRefused:
        actual = {}
    if (actual.get(section) or {}) != servers or _drop_section(actual, section) != _drop_section(expected, section):
        raise TextRefused("the entry has a form that vmrag cannot edit")


def _drop_section(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != section}

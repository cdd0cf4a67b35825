"""Put this server into the files of MCP clients: which entry belongs into which file of which
client, and one entry in the text of such a file, found, put there, made right, and taken out.

What an editor wrote is read again before it counts: it must mean what was there before, but for
the entry.
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
    lock_installation,
    not_built_so,
)
from vmrag_mcp.clients.table import CLIENTS, FileFormat, McpClient
from vmrag_mcp.options import Flags

Scope = Literal["project", "person"]


class ClientRefusal(Record, frozen=True):
    """A client whose file could not be edited, while others' were."""

    client: str
    code: str
    message: str
    hint: str


class Installation(NamedTuple):
    """One entry in one file."""

    key: str
    client: McpClient
    file: SettingsFile
    wanted: ServerEntry

    def build_refusal(self, why: str) -> UsageInvalid:
        written = {self.client.section: {self.wanted.name: self.wanted.value}}
        text = json.dumps(written, ensure_ascii=False)
        if self.client.format in ("toml", "yaml"):
            text = render_file(self.client.format, self.client.section, self.wanted.name, self.wanted.value)
        return UsageInvalid(
            f"{self.file.label} is left as it is: {why}.",
            hint=f"Write this into it: {text.strip()}",
            file=self.file.label,
            wanted=self.wanted.value,
        )


def locate_installation(places: Places, name: str, scope: Scope | None, flags: Flags) -> Installation:
    """`scope` None: the project's file, if the client has one. Raises `UsageInvalid` for a client
    that has no such file.
    """
    client = CLIENTS[name]
    if client.project and scope != "person":
        there = [each for each in client.project.names if (places.top / each).exists()]
        label = (there or client.project.names)[0]
        file = SettingsFile(places.top / label, label, places.top)
        return Installation(name, client, file, server_command.for_project(client, client.project, places, flags))
    if client.personal is None or scope == "project":
        whose = "project has" if scope == "project" else "person has"
        raise UsageInvalid(
            f"A {whose} no file for {client.title} that other programs may write.",
            hint="claude mcp add --scope user vmrag -- vmrag-mcp --default-toolsets essential"
            if name == "claude-code"
            else f"vmrag mcp install --client {name}",
            client=name,
        )
    paths = client.personal.list_paths()
    path = next((each for each in paths if each.exists()), paths[0])
    return Installation(
        name, client, SettingsFile(path, str(path), None), server_command.for_person(client, places, flags)
    )


def has_file(client: McpClient, scope: Scope) -> bool:
    return (client.project if scope == "project" else client.personal) is not None


def is_installed(client: McpClient) -> bool:
    """Whether its program is found, or it was started once."""
    path = os.pathsep.join(env.list_program_folders())
    return any(shutil.which(program, path=path) for program in client.programs) or any(
        map(Path.is_dir, client.list_signs())
    )


def for_each(names: Sequence[str], do: Callable[[str], Any]) -> tuple[list[Any], tuple[ClientRefusal, ...]]:
    """Return the results, and a refusal for each client whose file cannot be used."""
    done, refused = [], []
    for name in names:
        try:
            with file_failures():
                done.append(do(name))
        except (UsageInvalid, FileFailed) as error:
            refused.append(ClientRefusal(name, error.code, error.message, error.hint))
    return done, tuple(refused)


class ClientInstallReport(Record, frozen=True):
    """`changed`: the file was written.

    `portable`: the command that it names exists on other computers. `shared`: the file is the
    project's. `kept`: the file has a server of that name that this computer did not write, and
    the file was not changed. `differs`: how that server differs from ours; empty for a server that
    is not ours, or that is for another repository. `ignored`: git ignores the project's file.
    `rules`: the files with the section for agents.
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
    differs: tuple[str, ...] = ()
    ignored: bool = False
    rules: tuple[RulesFile, ...] = ()


class ClientInstallations(Record, frozen=True):
    """What was done for each client that is installed here."""

    clients: tuple[ClientInstallReport, ...]
    refused: tuple[ClientRefusal, ...]


class ClientConfiguration(Record, frozen=True):
    """What belongs into a client's configuration, as a value and as the text of its format."""

    configuration: dict[str, Any]
    text: str


def build_configuration(
    directory: Path, name: str | None, flags: Flags, scope: Scope | None = None
) -> ClientConfiguration:
    """For a known client, or for any other one on this computer. Raises `GitRepositoryMissing`."""
    places = plumbing.locate_work_tree(directory)
    if name is None:
        wanted = server_command.for_person(None, places, flags)
        made = {"mcpServers": {wanted.name: wanted.value}}
        return ClientConfiguration(made, json.dumps(made, indent="  ", ensure_ascii=False))
    _, client, _, wanted = locate_installation(places, name, scope, flags)
    text = render_file(client.format, client.section, wanted.name, wanted.value)
    return ClientConfiguration({client.section: {wanted.name: wanted.value}}, text.removesuffix("\n"))


def installed_clients() -> tuple[str, ...]:
    """The clients that are installed here: whose program is found, or that were started once."""
    return tuple(name for name, client in CLIENTS.items() if is_installed(client))


def install_server(
    directory: Path, name: str, flags: Flags, scope: Scope | None = None, *, replace: bool = False, rules: bool = False
) -> ClientInstallReport:
    """Write our server into a client's file, and keep every other byte of it. `rules`: also write
    the section for agents into the repository.

    An entry that this computer wrote is updated; without flags, its options stay. Any other entry
    of that name stays, and the report lists how it differs, unless `replace` is true.

    `scope` None: the project's file, if the client has one. Raises `GitRepositoryMissing`, and
    `UsageInvalid` for a client that has no such file or is not installed, and for a file that
    cannot be changed without a loss.
    """
    places = plumbing.locate_work_tree(directory)
    installation = locate_installation(places, name, scope, flags)
    if not installation.file.top and not is_installed(installation.client):
        raise UsageInvalid(
            f"{installation.client.title} keeps its settings in {installation.file.label}, and was never started here.",
            hint=f"Start it once, or see what belongs there: vmrag mcp install --client {name} --print",
            client=name,
            file=installation.file.label,
        )
    with lock_installation():
        changes = plan_rules(places, [name]) if rules else []
        try:
            report = _install(installation, flags, replace=replace)
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
    """`install` for every client that is installed here and has such a file.

    Raises `UsageInvalid` if there is none.
    """
    names = [name for name in installed_clients() if scope is None or has_file(CLIENTS[name], scope)]
    if not names:
        raise UsageInvalid(
            "No MCP client that is known here was found on this computer.",
            hint=f"vmrag mcp install --client NAME: one of {', '.join(CLIENTS)}",
        )
    done, refused = for_each(
        names, lambda name: install_server(directory, name, flags, scope, replace=replace, rules=rules)
    )
    return ClientInstallations(tuple(done), refused)


def _install(installation: Installation, flags: Flags, *, replace: bool) -> ClientInstallReport:
    key, client, file, wanted = installation
    before = file.read_content()
    text = decode_text(before)
    entry = find_entry(client.format, text, client.section, wanted.name)
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
    if entry is None:
        after, added = with_entry(client.format, text, client.section, wanted.name, wanted.value)
        folders = tuple(map(str, file.missing_folders())) if before is None else ()
        file.replace_content(before, after.encode())
        settings_file.keep_receipt(
            InstallReceipt(str(file.target), wanted.name, wanted.value, added, before is None, folders)
        )
        return msgspec.structs.replace(report, changed=True)
    receipt = settings_file.find_receipt(file.target, wanted.name)
    if receipt and receipt.entry == entry and serves_here(installation, entry):
        values = server_command.changed_values(client.shape, entry, wanted, flags)
        if not values:
            return msgspec.structs.replace(report, server=entry)
        after = with_values(client.format, text, client.section, wanted.name, values)
        file.replace_content(before, after.encode())
        settings_file.keep_receipt(msgspec.structs.replace(receipt, entry={**entry, **values}))
        return msgspec.structs.replace(report, changed=True, server={**entry, **values})
    if entry == wanted.value:
        return report
    if not replace:
        # A stranger can have written it, and it starts a program.
        differs = server_command.list_differences(entry, wanted.value) if serves_here(installation, entry) else ()
        return msgspec.structs.replace(report, portable=True, kept=True, server=entry, differs=tuple(differs))
    rest = without_entry(client.format, text, client.section, wanted.name, None)
    after, added = with_entry(client.format, rest, client.section, wanted.name, wanted.value)
    file.replace_content(before, after.encode())
    settings_file.keep_receipt(InstallReceipt(str(file.target), wanted.name, wanted.value, added))
    return msgspec.structs.replace(report, changed=True)


def serves_here(installation: Installation, entry: Entry) -> bool:
    """Return whether an entry starts our server, for the repository of the installation."""
    _, client, file, wanted = installation
    return server_command.is_ours(client.shape, entry) and (
        file.top is not None or server_command.serves_same_repository(client.shape, entry, wanted)
    )


EDITORS: Mapping[FileFormat, Editor] = {
    "json": JsonEditor(comments=False),
    "jsonc": JsonEditor(comments=True),
    "toml": TomlEditor(),
    "yaml": YamlEditor(),
}


def decode_text(content: bytes | None) -> str:
    """Raises `TextRefused`."""
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

    Raises `TextRefused` for a text that is not built as the client's file is, and for an entry
    that reports cannot show.
    """
    servers = read_values(form, text).get(section) or {}
    entry = servers.get(name) if isinstance(servers, dict) else None
    if not isinstance(servers, dict) or not isinstance(entry, dict | None):
        raise not_built_so(section)
    try:
        msgspec.json.encode(entry)
    except (ValueError, OverflowError, TypeError) as error:
        raise TextRefused(f"{section}.{name} has a value that JSON cannot hold: {error}") from None
    return entry


def with_entry(form: FileFormat, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
    """Raises `TextRefused`."""
    after, added = EDITORS[form].add_entry(text, section, name, entry)
    _require(form, (text, after), section, name, dict(entry))
    return after, added


def with_values(form: FileFormat, text: str, section: str, name: str, values: Entry) -> str:
    """Raises `TextRefused`."""
    there = find_entry(form, text, section, name) or {}
    after = EDITORS[form].change_entry(text, section, name, values)
    _require(form, (text, after), section, name, {**there, **values})
    return after


def without_entry(form: FileFormat, text: str, section: str, name: str, added: Addition | None) -> str:
    """Raises `TextRefused`."""
    after = EDITORS[form].remove_entry(text, section, name, added)
    _require(form, (text, after), section, name, None)
    return after


def render_file(form: FileFormat, section: str, name: str, entry: Entry) -> str:
    """What belongs into a file that has nothing else."""
    return EDITORS[form].add_entry("", section, name, entry)[0]


def _require(form: FileFormat, texts: tuple[str, str], section: str, name: str, entry: Entry | None) -> None:
    """Raise `TextRefused` unless the second text means what the first does, but for the entry."""
    before, after = texts
    wanted = copy.deepcopy(read_values(form, before))
    servers = wanted.setdefault(section, {}) or {}
    servers.pop(name, None)
    if entry is not None:
        servers[name] = entry
    wanted[section] = servers
    try:
        found = read_values(form, after)
    except TextRefused:
        found = {}
    if (found.get(section) or {}) != servers or _others(found, section) != _others(wanted, section):
        raise TextRefused("it is written in a way in which that entry cannot be edited")


def _others(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != section}

"""Remove this server from the files of MCP clients."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Literal

import msgspec

from vmrag_link.errors import UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_mcp.clients import entries, install, server_command, settings_file
from vmrag_mcp.clients.install import ClientRefusal, Installation, for_each, locate_installation
from vmrag_mcp.clients.rules import AGENTS, RulesChange, RulesFile, apply_rules, plan_removal
from vmrag_mcp.clients.settings_file import TextRefused, lock_installation
from vmrag_mcp.clients.table import CLIENTS, Scope
from vmrag_mcp.options import Flags


class ClientUninstallReport(Record, frozen=True):
    """The result of a removal."""

    client: str
    file: str
    removed: bool
    """The entry was removed."""
    kept: Literal["", "changed", "foreign"] = ""
    """Why an entry of that name stays: it was changed by hand, or it is not ours.
    Otherwise empty.
    """
    shared: bool = True
    rules: tuple[RulesFile, ...] = ()
    """The files from which the section for agents was removed."""


class ClientRemovals(Record, frozen=True):
    """The results for all clients whose files can have the server."""

    clients: tuple[ClientUninstallReport, ...]
    refused: tuple[ClientRefusal, ...]
    rules: tuple[RulesFile, ...] = ()


def uninstall_server(
    directory: Path, name: str, scope: Scope | None = None, *, rules: bool = False
) -> ClientUninstallReport:
    """Remove our server from a client's file, and the section for agents from the repository.

    Without `rules`, the section stays with the scope `person` or if the server stays, and in
    `AGENTS.md` also if another client's file of the project has the server.

    Raises `UsageInvalid` and `GitRepositoryMissing`.
    """
    changes: list[RulesChange] = []
    if rules or scope != "person":
        places = plumbing.locate_work_tree(directory)
        others = [other for other, client in CLIENTS.items() if other != name and client.project]
        shared = not rules and any(_serves_project(places, other) for other in others)
        changes = plan_removal(places, (*(() if shared else (AGENTS,)), *CLIENTS[name].rules))
    report = _uninstall_server(directory, name, scope)
    return msgspec.structs.replace(report, rules=() if report.kept and not rules else _remove_rules(changes))


def _serves_project(places: Places, name: str) -> bool:
    with contextlib.suppress(TextRefused):
        return not _is_absent(locate_installation(places, name, "project", Flags()))
    return False


def _remove_rules(changes: list[RulesChange]) -> tuple[RulesFile, ...]:
    if not changes:
        return ()
    with lock_installation():
        return apply_rules(changes)


def _uninstall_server(
    directory: Path, name: str, scope: Scope | None, *, dry_run: bool = False
) -> ClientUninstallReport:
    """Remove our server from a client's file, and keep every other byte of it.

    An entry that was changed by hand and an entry that is not ours stay. `dry_run` changes nothing,
    and returns the same report. Raises `GitRepositoryMissing` and `UsageInvalid`.
    """
    installation = locate_installation(plumbing.locate_work_tree(directory), name, scope, Flags())
    try:
        if _is_absent(installation):
            return ClientUninstallReport(
                name, installation.file.label, removed=False, shared=bool(installation.file.top)
            )
        with contextlib.nullcontext() if dry_run else lock_installation():
            return _remove_entry(installation, dry_run=dry_run)
    except TextRefused as refused:
        raise UsageInvalid(
            f"cannot edit {installation.file.label}: {refused.reason}.",
            hint=f"delete {installation.entry.name!r} below {installation.client.section!r} in the file",
            file=installation.file.label,
        ) from refused


def uninstall_all(
    directory: Path, scope: Scope | None = None, *, everywhere: bool = True, dry_run: bool = False, rules: bool = False
) -> ClientRemovals:
    """Remove our server for every client, from the files of the project and of the user.

    `scope` restricts the removal to one of them. Clients without the server are not in the result.
    With `everywhere=False`, an entry stays if it serves any open project. `dry_run` changes
    nothing. `rules` also removes the section for agents if `scope` is `person`.
    """
    scopes: tuple[Scope, ...] = (scope,) if scope else ("project", "person")
    reports: list[ClientUninstallReport] = []
    failures: tuple[ClientRefusal, ...] = ()
    for current in scopes:
        names = [
            name
            for name, client in CLIENTS.items()
            if client.has_file(current) and (everywhere or current == "project" or not client.serves_all_projects)
        ]
        uninstall_client = functools.partial(_uninstall_server, directory, scope=current, dry_run=dry_run)
        results, refused = for_each(names, uninstall_client)
        reports += [report for report in results if report.removed or report.kept == "changed"]
        failures += refused
    edited: tuple[RulesFile, ...] = ()
    try:
        changes = plan_removal(plumbing.locate_work_tree(directory)) if rules or "project" in scopes else []
        planned = tuple(RulesFile(change.file.label, changed=True) for change in changes)
        edited = planned if dry_run else _remove_rules(changes)
    except UsageInvalid as error:
        failures += (ClientRefusal("", error.code, error.message, error.hint),)
    return ClientRemovals(tuple(reports), failures, edited)


def _is_absent(installation: Installation) -> bool:
    """Return whether there is nothing to remove. Then no lock is needed."""
    _, client, file, ours = installation
    entry = entries.find_entry(client.format, entries.decode_text(file.read_content()), client.section, ours.name)
    return entry is None and settings_file.find_receipt(file.target, ours.name) is None


def _remove_entry(installation: Installation, *, dry_run: bool) -> ClientUninstallReport:
    key, client, file, ours = installation
    report = ClientUninstallReport(key, file.label, removed=False, shared=file.top is not None)
    before = file.read_content()
    text = entries.decode_text(before)
    entry = entries.find_entry(client.format, text, client.section, ours.name)
    receipt = settings_file.find_receipt(file.target, ours.name)
    if before is None or entry is None:
        if not dry_run:
            settings_file.drop_receipt(file.target, ours.name)
        return report
    if not install.serves_here(installation, entry):
        return msgspec.structs.replace(report, kept="foreign")
    as_installed = entry == receipt.entry if receipt else server_command.as_installed(client.shape, entry, ours)
    if not as_installed:
        return msgspec.structs.replace(report, kept="changed")
    if dry_run:
        return msgspec.structs.replace(report, removed=True)
    after = entries.without_entry(client.format, text, client.section, ours.name, receipt.added if receipt else None)
    if receipt and receipt.new and not after.strip():
        file.delete_file(before, tuple(map(Path, receipt.folders)))
    else:
        file.replace_content(before, after.encode())
    settings_file.drop_receipt(file.target, ours.name)
    return msgspec.structs.replace(report, removed=True)

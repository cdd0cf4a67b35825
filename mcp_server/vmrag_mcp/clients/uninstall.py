"""Take this server out of the files of MCP clients."""

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
from vmrag_mcp.clients import install, server_command, settings_file
from vmrag_mcp.clients.install import ClientRefusal, Installation, Scope, for_each, has_file, locate_installation
from vmrag_mcp.clients.rules import AGENTS, RulesChange, RulesFile, apply_rules, plan_removal
from vmrag_mcp.clients.settings_file import TextRefused, lock_installation
from vmrag_mcp.clients.table import CLIENTS, McpClient
from vmrag_mcp.options import Flags


class ClientUninstallReport(Record, frozen=True):
    """`removed`: the entry was removed.

    `kept`: why an entry of that name stays: it was changed by hand, or it is not ours; otherwise
    empty. `rules`: the files from which the section for agents was removed.
    """

    client: str
    file: str
    removed: bool
    kept: Literal["", "changed", "foreign"] = ""
    shared: bool = True
    rules: tuple[RulesFile, ...] = ()


class ClientRemovals(Record, frozen=True):
    """What was done for each client in whose files the server could stand."""

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
        return not _absent(locate_installation(places, name, "project", Flags()))
    return False


def _remove_rules(changes: list[RulesChange]) -> tuple[RulesFile, ...]:
    if not changes:
        return ()
    with lock_installation():
        return apply_rules(changes)


def _uninstall_server(
    directory: Path, name: str, scope: Scope | None, *, dry_run: bool = False
) -> ClientUninstallReport:
    """Take our server out of a client's file, and leave every other byte of it.

    An entry that a person changed since, and one that is not ours, stay. `dry_run`: change nothing,
    and return the same report. Raises as `install`.
    """
    installation = locate_installation(plumbing.locate_work_tree(directory), name, scope, Flags())
    try:
        if _absent(installation):
            return ClientUninstallReport(
                name, installation.file.label, removed=False, shared=bool(installation.file.top)
            )
        if dry_run:
            return _uninstall(installation, dry_run=True)
        with lock_installation():
            return _uninstall(installation)
    except TextRefused as refused:
        raise UsageInvalid(
            f"{installation.file.label} is left as it is: {refused.reason}.",
            hint=f"Delete {installation.wanted.name!r} below {installation.client.section!r} in it.",
            file=installation.file.label,
        ) from refused


def uninstall_all(
    directory: Path, scope: Scope | None = None, *, everywhere: bool = True, dry_run: bool = False, rules: bool = False
) -> ClientRemovals:
    """`uninstall` for every client, from the project's file and the person's, as `scope` says.

    What is not there is not named. `everywhere` False: an entry stays that serves whatever project
    is open. `dry_run`: change nothing. `rules`: as in `uninstall`.
    """
    scopes: tuple[Scope, ...] = (scope,) if scope else ("project", "person")
    done: list[ClientUninstallReport] = []
    failures: tuple[ClientRefusal, ...] = ()
    for each in scopes:
        names = [
            name
            for name, client in CLIENTS.items()
            if has_file(client, each) and (everywhere or each == "project" or not _serves_all(client))
        ]
        some, refused = for_each(names, functools.partial(_uninstall_from, directory, each, dry_run=dry_run))
        done += [report for report in some if report.removed or report.kept == "changed"]
        failures += refused
    edited: tuple[RulesFile, ...] = ()
    try:
        changes = plan_removal(plumbing.locate_work_tree(directory)) if rules or "project" in scopes else []
        planned = tuple(RulesFile(change.file.label, changed=True) for change in changes)
        edited = planned if dry_run else _remove_rules(changes)
    except UsageInvalid as error:
        failures += (ClientRefusal("", error.code, error.message, error.hint),)
    return ClientRemovals(tuple(done), failures, edited)


def _absent(installation: Installation) -> bool:
    """Whether nothing is to be done: then nothing is locked, either."""
    _, client, file, wanted = installation
    there = install.find_entry(client.format, install.decode_text(file.read_content()), client.section, wanted.name)
    return there is None and settings_file.find_receipt(file.target, wanted.name) is None


def _serves_all(client: McpClient) -> bool:
    return client.personal is not None and client.personal.finds


def _uninstall_from(directory: Path, scope: Scope, name: str, *, dry_run: bool) -> ClientUninstallReport:
    return _uninstall_server(directory, name, scope, dry_run=dry_run)


def _uninstall(installation: Installation, *, dry_run: bool = False) -> ClientUninstallReport:
    key, client, file, wanted = installation
    report = ClientUninstallReport(key, file.label, removed=False, shared=file.top is not None)
    before = file.read_content()
    text = install.decode_text(before)
    there = install.find_entry(client.format, text, client.section, wanted.name)
    receipt = settings_file.find_receipt(file.target, wanted.name)
    if (before is None or there is None) and dry_run:
        return report
    if before is None or there is None:
        settings_file.drop_receipt(file.target, wanted.name)
        return report
    if not install.serves_here(installation, there):
        return msgspec.structs.replace(report, kept="foreign")
    if there != receipt.entry if receipt else not server_command.as_installed(client.shape, there, wanted):
        return msgspec.structs.replace(report, kept="changed")
    if dry_run:
        return msgspec.structs.replace(report, removed=True)
    after = install.without_entry(client.format, text, client.section, wanted.name, receipt.added if receipt else None)
    if receipt and receipt.new and not after.strip():
        file.delete_file(before, tuple(map(Path, receipt.folders)))
    else:
        file.replace_content(before, after.encode())
    settings_file.drop_receipt(file.target, wanted.name)
    return msgspec.structs.replace(report, removed=True)

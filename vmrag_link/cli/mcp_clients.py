"""How `vmrag mcp install` and `uninstall` say what they did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link.cli.base import Invocation
from vmrag_link.errors import FAILED_CHECK, OK

if TYPE_CHECKING:  # the server starts without it
    from vmrag_mcp.clients.install import ClientInstallReport, ClientRefusal, Scope
    from vmrag_mcp.clients.uninstall import ClientUninstallReport
    from vmrag_mcp.options import Flags


def install(invocation: Invocation, directory: Path, name: str | None, flags: Flags, scope: Scope | None) -> int:
    """One client, or all that are found; returns the exit code."""
    from vmrag_mcp.clients import install as operation

    if name:
        report = operation.install(directory, name, flags, scope)
        invocation.emit(report, [*installed(report), *_not_shared(report)])
        return OK
    reports = operation.install_all(directory, flags, scope)
    lines = [line for each in reports.clients for line in installed(each)]
    alone = [line for each in reports.clients for line in _not_shared(each)]
    invocation.emit(reports, [*lines, *alone[:1], *refusals(reports.refused)])
    return FAILED_CHECK if reports.refused else OK


def uninstall(invocation: Invocation, directory: Path, name: str | None, scope: Scope | None) -> int:
    """One client, or all that have it; returns the exit code."""
    from vmrag_mcp.clients import uninstall as operation

    if name:
        report = operation.uninstall(directory, name, scope)
        invocation.emit(report, uninstalled(report))
        return OK
    reports = operation.uninstall_all(directory, scope)
    lines = [line for each in reports.clients for line in uninstalled(each)]
    nothing = [] if lines or reports.refused else ["No client's file has the server."]
    invocation.emit(reports, [*lines, *nothing, *refusals(reports.refused)])
    return FAILED_CHECK if reports.refused else OK


def installed(report: ClientInstallReport) -> Iterator[str]:
    if report.kept:
        yield (
            f"{report.file} has a server {report.name!r} already, which is not this one; it stays. "
            f"See: vmrag mcp install --client {report.client} --print"
        )
    elif not report.changed:
        yield f"{report.file} has it already."
    elif report.shared:
        commit = " Commit it: colleagues get the server with it." if report.portable else ""
        yield f"Wrote {report.file}.{commit} {report.next_step}."
    else:
        yield f"Wrote {report.file}: the server {report.name!r}. {report.next_step}."


def _not_shared(report: ClientInstallReport) -> Iterator[str]:
    if not report.portable:
        program = report.server.get("command") or report.server.get("cmd")
        yield (
            f"It names {program[0] if isinstance(program, list) else program}, which only this computer has. "
            "Install with pipx or `uv tool`, or into an environment in the project, to share the file."
        )


def uninstalled(report: ClientUninstallReport) -> Iterator[str]:
    if report.removed:
        yield f"Taken out of {report.file}."
    elif report.kept == "changed":
        yield f"{report.file} has the server with changes that were made by hand; it stays. Delete it there yourself."
    elif report.kept:
        yield f"{report.file} has a server of that name which is not this one; it stays."
    else:
        yield f"{report.file} does not have it."


def refusals(refused: Iterable[ClientRefusal]) -> Iterator[str]:
    for each in refused:
        yield f"{each.message} {each.hint}"

"""`vmrag trust`: review and trust the settings of a clone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from vmrag_link.agreements import Agreements
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, UsageInvalid
from vmrag_link.ops import trust as operation
from vmrag_link.ops.trust import TrustReport, Value


@vmrag_command("trust")
@click.option("--yes", is_flag=True, help="Trust without asking.")
@click.option(
    "--service", metavar="NAME", help="Allow the collections of this repository to use this embedding service."
)
@click.option("--list", "listing", is_flag=True, help="List the trusted settings of all repositories on this machine.")
@click.option("--revoke", is_flag=True, help="Stop trusting the settings of this repository.")
def command(invocation: Invocation, *, yes: bool, service: str | None, listing: bool, revoke: bool) -> int:
    """Review and trust the settings of a clone.

    Some settings of .vmrag.yaml apply only if you trust them: those that name a host, a
    program or a file outside, and those that decide what is written, shown or published.
    Trust applies to this repository and to exactly these values. The exit code is 1 while a
    setting is untrusted.
    """
    if sum((yes, service is not None, listing, revoke)) > 1:
        raise UsageInvalid(
            "--yes, --service, --list and --revoke cannot be combined.",
            hint="run 'vmrag trust --help' to see its options",
        )
    if listing:
        every = operation.list_agreements()
        invocation.emit_report(every, _agreement_lines(every))
        return OK
    with invocation.workspace(warn=False) as ws:
        if revoke:
            was_trusted = operation.revoke_trust(ws)
            sentence = (
                "No longer trusting the settings of this repository."
                if was_trusted
                else "No settings were trusted in this repository."
            )
            invocation.emit_report({"revoked": was_trusted}, [sentence])
            return OK
        if service is not None:
            operation.trust_service(ws, service)
            invocation.emit_report(
                operation.examine_settings(ws), [f"The collections of this repository can now use {service}."]
            )
            return OK
        report = operation.examine_settings(ws)
        if report.agreed:
            invocation.emit_report(report, _format_trusted(report))
            return OK
        if not yes and not _ask_user(invocation, report):
            return FAILED_CHECK
        operation.trust_settings(ws, report)
        invocation.emit_report(
            operation.examine_settings(ws),
            ["Trusted the settings of this repository.", "hint: run 'vmrag trust --revoke' to undo this"],
        )
    return OK


def _ask_user(invocation: Invocation, report: TrustReport) -> bool:
    """Print the settings, and ask the user if a terminal exists."""
    is_interactive = invocation.is_interactive
    invocation.emit_report(
        report,
        [
            *_report_lines(report),
            *([] if is_interactive else ["hint: run 'vmrag trust --yes' to trust these settings"]),
        ],
    )
    return is_interactive and output.ask_yes("Trust these settings in this repository?")


def _format_trusted(report: TrustReport) -> Iterator[str]:
    if report.stated:
        yield f"Trusted settings of {report.file}:"
    else:
        yield f"{report.file} has no settings that need trust."
    yield from (_format_line(setting.name, setting.value) for setting in report.stated)
    yield from _format_services(report.services)


def _format_services(names: Iterable[str]) -> Iterator[str]:
    return (f"  can use {name}" for name in names)


def _report_lines(report: TrustReport) -> Iterator[str]:
    if report.stated:
        counts = all(setting.value == setting.counts for setting in report.stated)
        yield f"{report.file} has settings that need trust, and {'all' if counts else 'not all'} of them are in effect:"
    for setting in report.stated:
        yield f"  line {setting.line}: {_format_change(setting.name, setting.value, setting.counts)}"
        yield f"      {setting.about}"
    if report.dropped:
        yield f"{report.file} no longer has these settings, which you trusted:"
    for dropped in report.dropped:
        yield f"  {_format_change(dropped.name, dropped.default, dropped.counts)}"


def _format_change(name: str, value: Value, counts: Value) -> str:
    now = "" if value == counts else f"   (now: {_format_value(counts)})"
    return f"{name}: {_format_value(value)}{now}"


def _agreement_lines(decisions: list[Agreements]) -> Iterator[str]:
    if not decisions:
        yield "No settings are trusted on this machine."
    for decision in decisions:
        yield decision.repository
        if decision.agreed:
            yield from (_format_line(name, value) for name, value in decision.agreed[-1].settings.items())
        yield from _format_services(decision.services)


def _format_line(name: str, value: Value) -> str:
    return f"  {name}: {_format_value(value)}"


def _format_value(value: Value) -> str:
    """Return a value as the file can have it, in quotes if it could be confused with the words
    around it.
    """
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if text and " " not in text else f'"{text}"'

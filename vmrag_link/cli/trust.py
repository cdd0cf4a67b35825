"""`vmrag trust`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, UsageInvalid
from vmrag_link.ops import trust as operation
from vmrag_link.ops.trust import TrustReport, Value
from vmrag_link.trust import Agreements


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
        raise UsageInvalid("One of --yes, --service, --list and --revoke at a time.", hint="vmrag trust --help")
    if listing:
        every = operation.list_agreements()
        invocation.emit_report(every, _agreement_lines(every))
        return OK
    with invocation.workspace(warn=False) as ws:
        if revoke:
            done = operation.revoke_trust(ws)
            said = "Forgot what was agreed to here." if done else "Nothing was agreed to here."
            invocation.emit_report({"revoked": done}, [said])
            return OK
        if service is not None:
            operation.trust_service(ws, service)
            invocation.emit_report(
                operation.examine_settings(ws), [f"The collections of this repository may ask {service} now."]
            )
            return OK
        report = operation.examine_settings(ws)
        if report.agreed:
            invocation.emit_report(report, _nothing_open(report))
            return OK
        if not yes and not _person_agrees(invocation, report):
            return FAILED_CHECK
        operation.trust_settings(ws, report)
        invocation.emit_report(
            operation.examine_settings(ws),
            ["It counts in this repository now. To take that back: vmrag trust --revoke"],
        )
    return OK


def _person_agrees(invocation: Invocation, report: TrustReport) -> bool:
    """Shows what it is about; asks on a terminal only."""
    asks = invocation.is_interactive
    invocation.emit_report(report, [*_report_lines(report), *([] if asks else ["To agree: vmrag trust --yes"])])
    return asks and output.ask_yes("Let it count in this repository?")


def _nothing_open(report: TrustReport) -> Iterator[str]:
    if report.stated:
        yield f"You agreed to what {report.file} states:"
    else:
        yield f"{report.file} states nothing that needs agreement."
    yield from (_line(each.name, each.value) for each in report.stated)
    yield from _services(report.services)


def _services(names: Iterable[str]) -> Iterator[str]:
    return (f"  may ask {name}" for name in names)


def _report_lines(report: TrustReport) -> Iterator[str]:
    if report.stated:
        counts = all(each.value == each.counts for each in report.stated)
        yield f"{report.file} states, and {'it counts already' if counts else 'not all of it counts yet'}:"
    for each in report.stated:
        yield f"  line {each.line}: {_change(each.name, each.value, each.counts)}"
        yield f"      {each.about}"
    if report.dropped:
        yield f"{report.file} does not state any more what you agreed to:"
    for dropped in report.dropped:
        yield f"  {_change(dropped.name, dropped.default, dropped.counts)}"


def _change(name: str, value: Value, counts: Value) -> str:
    now = "" if value == counts else f"   (now: {_text(counts)})"
    return f"{name}: {_text(value)}{now}"


def _agreement_lines(every: list[Agreements]) -> Iterator[str]:
    if not every:
        yield "Nothing was agreed to on this machine."
    for each in every:
        yield each.repository
        if each.agreed:
            yield from (_line(name, value) for name, value in each.agreed[-1].settings.items())
        yield from _services(each.services)


def _line(name: str, value: Value) -> str:
    return f"  {name}: {_text(value)}"


def _text(value: Value) -> str:
    """A value as it could stand in the file, in quotes where it could be taken for our words."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if text and " " not in text else f'"{text}"'

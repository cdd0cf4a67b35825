"""`vmrag fingerprint`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, UsageInvalid, plural
from vmrag_link.ops.history import fingerprint as operation
from vmrag_link.ops.history.fingerprint import ComparedFingerprint
from vmrag_link.ops.index import check
from vmrag_link.ops.index.check import VerifiedIndex


@vmrag_command("fingerprint")
@click.option("--at", "ref", metavar="REF", help="Of what this git ref pins, ranked as its settings say.")
@click.option("--verify", is_flag=True, help="Compare the index with the documents, too: every byte, text and vector.")
@click.option("--check", "expected", metavar="FILE|HASH", help="Compare it with this one, or with what this file says.")
def command(invocation: Invocation, *, ref: str | None, verify: bool, expected: str | None) -> int:
    """Print the fingerprint: where it is equal, equal queries get equal answers.

    It is made from the documents, what decides their vectors, and the version and settings of the
    ranking (`ranking` in --json). It does not look into the index: what a disk has damaged there
    does not change it. --verify does look, and ends with exit code 1
    if the index is not what the documents make. --check takes a hash, or a file that `vmrag
    fingerprint` or `vmrag fingerprint --json` wrote, and ends with 1 if it is another one.
    """
    if verify and expected is not None:
        raise UsageInvalid("Give --verify or --check, not both.", hint="vmrag fingerprint --verify")
    with invocation.workspace() as ws:
        if expected is not None:
            wanted = operation.expected_fingerprint(expected, invocation.directory)
            compared = operation.compare(ws, wanted, ref=ref)
            invocation.emit(compared, _compared(compared))
            return 0 if compared.equal else FAILED_CHECK
        if not verify:
            report = operation.fingerprint(ws, ref=ref)
            invocation.emit(report, [report.fingerprint])
            return 0
        verified = check.verify(ws, ref=ref)
    invocation.emit(verified, _lines(verified))
    return FAILED_CHECK if verified.problems else 0


def _compared(report: ComparedFingerprint) -> Iterator[str]:
    yield report.fingerprint
    if report.equal:
        yield "as expected"
        return
    yield f"{report.expected} is expected"
    yield from report.differences


def _lines(report: VerifiedIndex) -> Iterator[str]:
    yield report.fingerprint
    if report.problems:
        yield from report.problems
        yield f"Build the index again: {report.fix}"
        return
    proven = f"{report.vectors} of their vectors proven by the cache, {report.recomputed} computed again"
    compared = proven if report.chunks else "nothing to compare"
    yield f"The index holds {plural(report.documents, 'document')} in {plural(report.chunks, 'chunk')}, as it should; {compared}."

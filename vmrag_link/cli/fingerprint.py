"""`vmrag fingerprint`: print a hash of everything that decides answers."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, UsageInvalid, plural
from vmrag_link.ops.fingerprint import fingerprint as operation
from vmrag_link.ops.fingerprint import fingerprint_check
from vmrag_link.ops.fingerprint.fingerprint import ComparedFingerprint
from vmrag_link.ops.fingerprint.fingerprint_check import VerifiedIndex


@vmrag_command("fingerprint")
@click.option("--at", "ref", metavar="REF", help="Print the fingerprint of this git ref, with its own settings.")
@click.option("--working", is_flag=True, help="Include the files of sources as they are in the working tree.")
@click.option("--verify", is_flag=True, help="Compare every byte, text and vector of the index with the documents.")
@click.option("--check", "expected", metavar="FILE|HASH", help="Compare the fingerprint with this hash or file.")
def command(invocation: Invocation, *, ref: str | None, working: bool, verify: bool, expected: str | None) -> int:
    """Print a hash of everything that decides answers.

    Two checkouts with equal fingerprints give equal answers to equal queries. The hash covers
    the documents, the embedding models, the version and the settings of the ranking, and the
    files of sources at the commit.

    It does not read the index. --verify also compares the index with the documents and files,
    and exits with 1 if they differ. --check exits with 1 if the fingerprint differs from a
    hash or from a file that this command wrote.
    """
    if verify and expected is not None:
        raise UsageInvalid("--verify and --check cannot be combined.", hint="run 'vmrag fingerprint --verify'")
    if working and (ref is not None or verify or expected is not None):
        raise UsageInvalid(
            "--working cannot be combined with --at, --verify or --check.", hint="run 'vmrag fingerprint --working'"
        )
    with invocation.workspace() as ws:
        if expected is not None:
            expected_hash = operation.read_expected(expected, invocation.directory)
            compared = operation.compare_fingerprint(ws, expected_hash, ref=ref)
            invocation.emit_report(compared, _format_comparison(compared))
            return 0 if compared.equal else FAILED_CHECK
        if not verify:
            report = operation.compute_fingerprint(ws, ref=ref, working=working)
            invocation.emit_report(report, [report.fingerprint])
            return 0
        verified = fingerprint_check.verify_index(ws, ref=ref)
    invocation.emit_report(verified, _format_fingerprint(verified))
    return FAILED_CHECK if verified.problems else 0


def _format_comparison(report: ComparedFingerprint) -> Iterator[str]:
    yield report.fingerprint
    if report.equal:
        yield "as expected"
        return
    yield f"{report.expected} is expected"
    yield from report.differences


def _format_fingerprint(report: VerifiedIndex) -> Iterator[str]:
    yield report.fingerprint
    if report.problems:
        yield from report.problems
        yield f"hint: {report.fix}"
        return
    proven = f"{report.vectors} of their vectors proven by the cache, {report.recomputed} computed again"
    compared = proven if report.chunks else "nothing to compare"
    files = f" and {plural(report.indexed_files, 'file')}" if report.files else ""
    held = f"{plural(report.documents, 'document')}{files} in {plural(report.chunks, 'chunk')}"
    yield f"The index holds {held}, as it should; {compared}."

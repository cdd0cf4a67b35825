"""`vmrag adopt`: import the revisions that the code of a fork pins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.engines.limits import MEGABYTE, USUAL_LIMITS, Limits
from vmrag_link.errors import FAILED_CHECK, plural

if TYPE_CHECKING:
    from vmrag_link.ops.adopt import AdoptReport


PAID = ("openai", "cohere", "huggingface")


@vmrag_command("adopt")
@click.argument("source")
@click.argument("commit", default="HEAD")
@click.option("--no-push", is_flag=True, help="Import the revisions, but do not push them.")
@click.option(
    "--max-mb",
    type=click.IntRange(1),
    default=USUAL_LIMITS.file_bytes // MEGABYTE,
    show_default=True,
    help="Maximum size of the fork's knowledge base in MB.",
)
@click.option(
    "--allow-service",
    "services",
    multiple=True,
    type=click.Choice(PAID),
    help="Accept collections that this paid service embeds. Can be repeated.",
)
def command(
    invocation: Invocation, *, source: str, commit: str, no_push: bool, max_mb: int, services: tuple[str, ...]
) -> int:
    """Import the revisions that a fork's code pins.

    SOURCE is the fork: a git remote or a URL. COMMIT is a local commit (default: HEAD), or
    else a branch of the fork. The command also pushes the revisions to the code's own remote.

    It checks new revisions in quarantine first, and refuses all of them if they contain
    anything other than documents. The exit code is 1 if the fork lacks a revision that a
    commit up to COMMIT pins.
    """
    from vmrag_link.ops import adopt as operation

    with invocation.workspace() as ws:
        limits = Limits(file_bytes=max_mb * MEGABYTE, text_bytes=ws.settings.limits.text_bytes)
        report = operation.adopt(
            ws, source, commit, start=invocation.directory, push=not no_push, limits=limits, services=services
        )
    invocation.emit_report(report, _adopt_lines(report))
    return FAILED_CHECK if report.missing else 0


def _adopt_lines(report: AdoptReport) -> Iterator[str]:
    if report.pinned:
        number = plural(report.revisions, "revision")
        yield f"Took {number} from {report.source}, {len(report.pinned)} of them pinned up to {report.commit[:7]}."
    for revision in report.missing:
        yield f"{report.source} does not have {revision[:7]}, which a commit before {report.commit[:7]} pins."
    if report.remote is None and not report.pinned:
        yield f"{report.commit[:7]} pins no new revisions."
    elif report.remote is None:
        yield "Nothing was pushed."
        yield "hint: run 'vmrag push' to push it"
    elif report.pushed:
        yield f"{report.remote} has them now: {report.commit[:7]} can be merged."
    else:
        yield f"{report.remote} has what {report.commit[:7]} pins."

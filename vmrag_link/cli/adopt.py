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
    from vmrag_link.ops.publish.adopt import AdoptReport


PAID = ("openai", "cohere", "huggingface")


@vmrag_command("adopt")
@click.argument("source")
@click.argument("commit", default="HEAD")
@click.option("--no-push", is_flag=True, help="Take it here, and push nothing.")
@click.option(
    "--max-mb",
    type=click.IntRange(1),
    default=USUAL_LIMITS.file_bytes // MEGABYTE,
    show_default=True,
    help="The size of the fork's knowledge base in MB up to which it is looked at.",
)
@click.option(
    "--allow-service",
    "services",
    multiple=True,
    type=click.Choice(PAID),
    help="Take collections, too, whose documents this paid service embeds. Can be given several times.",
)
def command(
    invocation: Invocation, *, source: str, commit: str, no_push: bool, max_mb: int, services: tuple[str, ...]
) -> int:
    """Take the knowledge that a fork's code pins, and push it to where the code's own knowledge is.

    SOURCE: the fork, a git remote or a URL. COMMIT: a commit that is here (by default HEAD), else a
    branch of the fork. What is new is looked at in a quarantine first; where that is anything but
    documents, on top of what is known here, nothing is taken. Exit code 1 when the fork does not
    have everything that the commits before COMMIT pin.
    """
    from vmrag_link.ops.publish import adopt as operation

    with invocation.workspace() as ws:
        limits = Limits(file_bytes=max_mb * MEGABYTE, text_bytes=ws.settings.limits.text_bytes)
        report = operation.adopt(
            ws, source, commit, start=invocation.directory, push=not no_push, limits=limits, services=services
        )
    invocation.emit(report, _adopt_lines(report))
    return FAILED_CHECK if report.missing else 0


def _adopt_lines(report: AdoptReport) -> Iterator[str]:
    if report.pinned:
        number = plural(report.revisions, "revision")
        yield f"Took {number} from {report.source}, {len(report.pinned)} of them pinned up to {report.commit[:7]}."
    for revision in report.missing:
        yield f"{report.source} does not have {revision[:7]}, which a commit before {report.commit[:7]} pins."
    if report.remote is None and not report.pinned:
        yield f"Nothing of what {report.commit[:7]} pins is new."
    elif report.remote is None:
        yield "Nothing was pushed. Next: vmrag push (git push does it with the hooks installed)"
    elif report.pushed:
        yield f"{report.remote} has them now: {report.commit[:7]} can be merged."
    else:
        yield f"{report.remote} has what {report.commit[:7]} pins."

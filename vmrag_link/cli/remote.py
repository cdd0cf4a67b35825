"""`vmrag remote`, `clone`, `fetch`, `pull`, `push` and `adopt`: how the knowledge base travels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.engines.limits import MEGABYTE, USUAL_LIMITS, Limits
from vmrag_link.errors import FAILED_CHECK, IndexExtraMissing, UsageInvalid, plural

if TYPE_CHECKING:
    from vmrag_link.ops.branches.pull import PullReport
    from vmrag_link.ops.publish.adopt import AdoptReport
    from vmrag_link.ops.publish.push import PushReport
    from vmrag_link.ops.remotes.destinations import RemotesReport
    from vmrag_link.ops.remotes.fetch import FetchReport
    from vmrag_link.transport.publish import Moved


@vmrag_command("remote")
@click.option("--trust", metavar="URL", help="Let pins and settings files name this remote from now on.")
@click.option("--forget", metavar="URL", help="Do not trust it any more.")
def command(invocation: Invocation, *, trust: str | None, forget: str | None) -> None:
    """Show where the knowledge base travels, as of when that was last asked; asks no network."""
    from vmrag_link.ops.remotes import destinations as operation

    with invocation.workspace() as ws:
        if trust is not None:
            operation.agree(ws, trust)
        if forget is not None:
            operation.withdraw(ws, forget)
        report = operation.report_remotes(ws)
    invocation.emit(report, _remote_lines(report))


def _remote_lines(report: RemotesReport) -> Iterator[str]:
    for each in report.remotes:
        yield f"{output.style(each.name, bold=True)}  {each.url}" if each.name != each.url else each.name
        yield from (f"  {head[:7]}  {name}" for name, head in each.branches.items())
    if report.problem:
        yield f"{report.remote}: {report.problem}"
        yield f"Next: {report.hint}"
    yield from (f"trusted: {each}" for each in report.trusted)


@vmrag_command("fetch")
@click.argument("remote", required=False)
def fetch(invocation: Invocation, *, remote: str | None) -> int:
    """Bring what a remote's knowledge base holds: that of the code's own git remote, or of REMOTE
    (a git remote or a URL).

    Exit code 1 when the remote does not have what the checked-out code pins.
    """
    from vmrag_link.ops.remotes import fetch as operation

    with invocation.workspace() as ws:
        report = operation.fetch(ws, remote)
    invocation.emit(report, _fetch_lines(report))
    return FAILED_CHECK if report.revision and not report.here else 0


def _fetch_lines(report: FetchReport) -> Iterator[str]:
    from vmrag_link.ops.follow.lazy_fetch import OR_PIN_WITHOUT_IT

    yield from _moved_lines(report.updates)
    if not report.updates:
        yield f"Nothing new at {report.remote}."
    if report.revision and not report.here:
        yield (
            f"It does not have the pinned revision {report.revision[:7]}: ask who pinned it to push it with `vmrag push` "
            f"(git log -1 -- .dolt-version shows who); {OR_PIN_WITHOUT_IT}."
        )
    elif report.arrived:
        yield "Next: vmrag sync"
    elif report.updates:
        yield "What the checked-out code pins was here already; git pull brings the pins of others."


def _moved_lines(updates: Iterable[Moved]) -> Iterator[str]:
    """A line for each branch that moved."""
    for each in updates:
        yield (
            f"  {each.old[:7]}..{each.new[:7]}  {each.branch}" if each.old else f"  {each.new[:7]} (new)  {each.branch}"
        )


@vmrag_command("pull")
@click.argument("remote", required=False)
@click.option(
    "--branch",
    metavar="KB-BRANCH",
    help="Merge this KB branch of the remote, also what the code reverted or never pinned.",
)
def pull(invocation: Invocation, *, remote: str | None, branch: str | None) -> int:
    """Fetch, and merge what the upstream of the checked-out branch pins, without its code.

    The upstream counts as `git fetch` brought it last; without one, the remote's branch of the same
    name does. What the code has reverted stays reverted. (`git pull` brings code and knowledge at
    once.) Exit code 1 when documents are in conflict.
    """
    from vmrag_link.ops.branches import pull as operation

    with invocation.workspace() as ws:
        report = operation.pull(ws, remote, branch=branch)
    invocation.emit(report, _pull_lines(report))
    return FAILED_CHECK if report.merge.result == "conflict" or not report.merge.staged else 0


def _pull_lines(report: PullReport) -> Iterator[str]:
    from vmrag_link.cli import merge

    yield from _moved_lines(report.updates)
    yield from merge.merge_lines(report.merge)
    if report.code_behind:
        first = "Next" if report.merge.result == "already_up_to_date" else "Then"
        yield f"{first}: git pull ({report.merge.source} has commits that are not here)"


@vmrag_command("push")
@click.argument("remote", required=False)
@click.option(
    "--branch", "branches", multiple=True, metavar="KB-BRANCH", help="Push this one; may be given several times."
)
@click.option("--all", "every", is_flag=True, help="Push all KB branches, and the pins of every git ref.")
@click.option("--force", is_flag=True, help="Move branches that hold more there, too; what they held stays reachable.")
@click.option(
    "--delete",
    multiple=True,
    metavar="KB-BRANCH",
    help="Take this one away from the remote, and push nothing; what it holds stays reachable there.",
)
def push(
    invocation: Invocation,
    *,
    remote: str | None,
    branches: tuple[str, ...],
    every: bool,
    force: bool,
    delete: tuple[str, ...],
) -> None:
    """Push the knowledge that the history of HEAD pins, and HEAD's KB branch.

    With the hooks installed `git push` does so by itself. REMOTE: a git remote or a URL, in place
    of the code's own remote.
    """
    from vmrag_link.ops.publish import push as operation

    if delete and (branches or every or force):
        raise UsageInvalid("--delete pushes nothing.", hint="vmrag push --delete KB-BRANCH, and vmrag push on its own")
    with invocation.workspace() as ws:
        report = (
            operation.delete(ws, delete, remote)
            if delete
            else operation.push(ws, remote, branches=branches, every=every, force=force)
        )
    invocation.emit(report, _push_lines(report))


def _push_lines(report: PushReport) -> Iterator[str]:
    if report.branches or report.kept or report.deleted or report.links:
        yield f"To {report.remote}:"
        yield from _moved_lines(report.branches)
        yield from (f"  (deleted)  {each}" for each in report.deleted)
        if report.kept:
            yield f"  {plural(len(report.kept), 'revision')} that no branch there reaches"
        if report.links:
            yield f"  {plural(report.links, 'link')} between commits and revisions"
    else:
        yield f"{report.remote} has everything already."
    if report.uncommitted:
        yield 'Uncommitted documents stay here: vmrag commit -m "What changed in the knowledge"'


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
def adopt(
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


@vmrag_command("clone")
@click.argument("remote", required=False)
def clone(invocation: Invocation, *, remote: str | None) -> int:
    """Fetch the knowledge base of a repository that was just cloned: from the code's own git
    remote, or from REMOTE. Where the settings name a Dolt server, the one there is used.

    Exit code 1 when what the checked-out code pins is not there.
    """
    from vmrag_link.ops.follow.follow_pin import follow
    from vmrag_link.ops.remotes import clone as operation

    with invocation.workspace() as ws:
        report = operation.clone(ws, remote)
        done = "Uses the knowledge base on the server" if ws.engine.shared else "Fetched the knowledge base from"
        lines = [f"{done} {report.remote}: {', '.join(report.branches) or 'no branches yet'}."]
        if report.revision and not report.here:
            lines.append(f"It does not have the pinned revision {report.revision[:7]}. Next: vmrag status")
        elif report.here:
            try:
                follow(ws)
            except IndexExtraMissing as missing:  # a base installation: searching can wait
                lines.append(f"Made no index: {missing.sentence}")
            lines.append("Next: vmrag install (git then moves it with the code, and a push takes yours along)")
    invocation.emit(report, lines)
    return FAILED_CHECK if report.revision and not report.here else 0

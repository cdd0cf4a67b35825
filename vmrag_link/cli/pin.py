"""`vmrag pin`, `sync`, `link` and `links`: which knowledge belongs to which code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, UsageInvalid, plural
from vmrag_link.paths import PIN_NAME

if TYPE_CHECKING:
    from vmrag_link.models import Link
    from vmrag_link.ops.follow.losses import AcceptedLoss
    from vmrag_link.ops.follow.pin import FirstPin, PinCommandReport
    from vmrag_link.ops.follow.sync import FilesReport
    from vmrag_link.sync.apply import SyncReport
    from vmrag_link.workspace import Workspace


@vmrag_command("pin")
@click.argument("revision", required=False, metavar="[REVISION|KB-BRANCH]")
@click.option("--empty", is_flag=True, help="Pin the revision without documents, which the knowledge base begins with.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Go on from REVISION without the pinned revisions that nobody has; the remotes are asked.",
)
@click.option("--offline", is_flag=True, help="With --accept-loss: ask no remote, which may have one of them.")
def command(invocation: Invocation, *, revision: str | None, empty: bool, accept_loss: bool, offline: bool) -> int:
    """Let .dolt-version name a revision (by default the newest of this branch), stage it and go
    there.

    A commit that pins nothing yet, an old tag say, takes the knowledge that answers there by
    default; what else it could take is said.

    --accept-loss records what is given up in a revision on top of REVISION, which reviewers and
    `vmrag verify` see. It counts only where the lost revision is missing.
    """
    if offline and not accept_loss:
        raise UsageInvalid("--offline needs --accept-loss.", hint="vmrag pin --help")
    if empty and (revision is not None or accept_loss):
        raise UsageInvalid("--empty names a revision itself.", hint="Leave the revision or --empty out.")
    from vmrag_link.ops.follow import pin as operation

    with invocation.workspace() as ws:
        report = (
            operation.accept_loss(ws, revision, offline=offline)
            if accept_loss
            else operation.pin(ws, revision, empty=empty)
        )
    invocation.emit(report, _pin_lines(report))
    return 0 if report.staged else FAILED_CHECK


def loss_lines(loss: AcceptedLoss) -> Iterator[str]:
    """What was given up, and from which revision it goes on, for a person."""
    from vmrag_link.ops.follow import losses

    for each in loss.lost:
        yield from losses.lines(each)
    yield f"Not at {', '.join(loss.asked)}." if loss.asked else "No remote was asked."
    yield f"Revision {loss.revision[:7]} goes on from {loss.instead[:7]}, and records that."


def _pin_lines(report: PinCommandReport) -> Iterator[str]:
    from vmrag_link.ops.pins.pinning import ATTRIBUTES

    name, first = report.pin.dolt_commit[:7], report.first
    if report.losses:
        yield from loss_lines(report.losses)
    if first:
        yield f"This code commit pinned no knowledge. It takes {name}: {first.taken.described}."
        yield from _other_lines(first)
    busy = [] if report.staged else [PIN_NAME]
    if first and first.attributes.written:
        busy += [] if first.attributes.staged or first.attributes.edited else [ATTRIBUTES]
        if first.attributes.edited:
            yield f"Wrote {ATTRIBUTES}, which has changes of yours that are not staged; with those: git add {ATTRIBUTES}"
    if busy:
        yield f"Another git command holds the index. Next: git add {' '.join(busy)}"
    elif report.changed:
        also = f" with {ATTRIBUTES}" if first and first.attributes.written and first.attributes.staged else ""
        yield f'Pinned {name} in {PIN_NAME}, which is staged{also}. Next: git commit -m "…"'
    else:
        yield f"{name} is pinned already."
    if report.pending:
        yield f"warning: {report.pending}"


def _other_lines(first: FirstPin) -> Iterator[str]:
    from vmrag_link.ops.pins.history_pins import NO_DOCUMENTS

    others = [f"{each.command} ({each.described})" for each in first.instead]
    if first.taken.revision != first.empty:
        others.append(f"vmrag pin --empty ({NO_DOCUMENTS})")
    yield from (f"  instead: {each}" for each in others)


@vmrag_command("sync")
@click.option(
    "--rebuild",
    is_flag=True,
    help="Build the index of the pinned revision again, from the documents and such cached vectors as prove themselves.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait for Chroma's store and the Chroma server, too, which otherwise follow in the background.",
)
@click.option("--hooks", is_flag=True, help="Install missing git hooks. At a terminal, this is the default.")
def sync(invocation: Invocation, *, rebuild: bool, wait: bool, hooks: bool) -> None:
    """Fetch and build everything that the checked-out commit needs.

    It fetches the knowledge base that .dolt-version pins, installs missing git hooks and builds the
    index. It does not install hooks that you removed or did not want. A repository without a pin
    only needs the index of its files.
    """
    from vmrag_link.ops.follow import sync as operation
    from vmrag_link.ops.pins.empty_pin import describe_once

    with invocation.workspace() as ws:
        shows_chroma = wait or ws.chroma.local.is_set
        report: FilesReport | SyncReport
        if ws.stores_nothing:
            report = operation.sync_files(ws, wait=wait)
            lines = [_describe_files(report)]
        else:
            report = operation.sync(ws, rebuild=rebuild, wait=wait)
            lines = _sync_lines(report)
        if shows_chroma and report.chroma and report.chroma.path:
            lines.append(f"Chroma's store is ready: {report.chroma.path}")
        if hooks or invocation.attended:
            lines += _install_missing_hooks(ws)
        if not invocation.as_json and (empty := describe_once(ws)):
            lines.append(f"hint: {empty}")
    invocation.emit(report, lines)


def _describe_files(report: FilesReport) -> str:
    commit = f"commit {report.commit[:7]}" if report.commit else "the working tree"
    indexed = "" if report.indexed == 100 else f" The index has {report.indexed} % of them."  # noqa: PLR2004
    sources = plural(len(report.sources), "source")
    return f"The index is at {commit}: {plural(report.files, 'file')} in {sources}.{indexed}"


def _install_missing_hooks(ws: Workspace) -> list[str]:
    """Install the hooks that git does not run here, and return lines that describe them."""
    from vmrag_link.ops.status.cautions import misses_hooks_for_files, missing_hooks

    files_only = misses_hooks_for_files(ws)
    if missing_hooks(ws) is None and not files_only:
        return []
    from vmrag_hooks import installer
    from vmrag_link.errors import HooksRefused

    try:
        report = installer.install(ws.places, place=ws.config.hooks.place, files_only=files_only)
    except HooksRefused as refused:
        return [f"Did not install the git hooks: {refused.message}", f"hint: {refused.hint}"]
    return [f"Installed the git hooks in {report.folder}."] if report.written else []


def _sync_lines(report: SyncReport) -> list[str]:
    to = (report.to or "")[:7]
    server: list[str] = []
    if report.server and report.server.state == "ready":
        server = [f"The index is on the Chroma server: {report.server.server}"]
    if not report.seconds:
        return [f"Knowledge is at {to}, as pinned; nothing to do.", *server]
    chunks = report.chunks
    lines = [f"Knowledge is at {to} now: {described(report.plan)} ({report.seconds['total']:.2f} s)."]
    if chunks.added or chunks.removed:
        lines.append(
            f"Index: {plural(chunks.added, 'chunk')} added ({chunks.embedded} embedded), {chunks.removed} removed."
        )
    return lines + server


@vmrag_command("link")
@click.option(
    "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository of the commit; may be bare."
)
@click.option("--git-commit", default="HEAD", show_default=True, help="The commit to link.")
@click.option("--bidirectional", is_flag=True, help="Let the link file name the revision, too, and stage it.")
@click.option(
    "--link-file",
    default=PIN_NAME,
    show_default=True,
    help="The link file, relative to the top of the work tree; the name of a new one ends so, too.",
)
def link(invocation: Invocation, *, repo: Path, git_commit: str, bidirectional: bool, link_file: str) -> int:
    """Link a code commit to the revision of the knowledge that this work tree stands at."""
    from vmrag_link.ops.links import link as operation

    with invocation.workspace() as ws:
        report = operation.link(
            ws,
            git_repo_path=invocation.directory / repo,
            git_commit=git_commit,
            bidirectional=bidirectional,
            link_file=link_file,
        )
    for warning in report.warnings:
        output.complain(warning.message, "warning:")
    lines = [f"Linked {report.link.git_commit[:10]} to revision {report.link.dolt_commit[:7]}."]
    written = report.bidirectional
    if written.staged:
        lines.append(f'{written.link_file} names it and is staged. Next: git commit -m "…"')
    invocation.emit(report, lines)
    return FAILED_CHECK if written.enabled and link_file and not written.staged and not report.warnings else 0


@vmrag_command("links")
@click.argument("action", type=click.Choice(["list", "show", "rebuild"]), default="list")
@click.argument("ref", required=False)
@click.option("--revision", help="list: only the commits that are linked to this revision.")
def links(invocation: Invocation, *, action: str, ref: str | None, revision: str | None) -> None:
    """Show which revision of the knowledge belongs to which code commit, or derive that from git's
    history again.
    """
    if (action == "show") != (ref is not None) or (revision and action != "list"):
        raise UsageInvalid(
            "These arguments do not go together.", hint="vmrag links list, vmrag links show REF, vmrag links rebuild"
        )
    from vmrag_link.ops.links import links as table

    with invocation.workspace() as ws:
        if action == "rebuild":
            rebuilt = table.rebuild(ws)
            said = f"{plural(rebuilt.derived, 'link')} from git's history ({rebuilt.changed} new or changed), {rebuilt.removed} removed"
            invocation.emit(rebuilt, [f"{said}, {rebuilt.manual} made by hand."])
        elif ref:
            link = table.show(ws, ref)
            invocation.emit(link, [_link_line(link)])
        else:
            report = table.links(ws, revision=revision)
            invocation.emit(report, [_link_line(each) for each in report.links] or ["No links yet."])


def _link_line(link: Link) -> str:
    parts = [output.style(link.git_commit[:10], fg="yellow"), link.dolt_commit[:7], link.source]
    if link.git_branch:
        parts.append(link.git_branch)
    if link.superseded_by:
        parts.append(f"superseded by {link.superseded_by[:10]}")
    return "  ".join(parts)

"""`vmrag init`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from vmrag_hooks import installer
from vmrag_hooks import template as templates
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.install import by_tools
from vmrag_link.engines.base import EngineName
from vmrag_link.errors import AlreadyInitialized, HooksRefused, IndexExtraMissing, UsageInvalid
from vmrag_link.git import hook_scope
from vmrag_link.git import hooks as git_hooks
from vmrag_link.ops.pins.attributes import ATTRIBUTES
from vmrag_link.ops.pins.offers import NO_DOCUMENTS, Offer, undecided
from vmrag_link.ops.setup import init as operation
from vmrag_link.ops.setup import trust
from vmrag_link.ops.setup.init import Choose
from vmrag_link.paths import Places


@vmrag_command("init")
@click.option("--no-hooks", is_flag=True, help="Do not install the git hooks.")
@click.option(
    "--template",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Only make a git template directory: clones made with it have the hooks.",
)
@click.option(
    "--engine",
    type=click.Choice(get_args(EngineName)),
    help="What stores the knowledge base: the embedded engine, or Dolt. Otherwise as the settings say.",
)
@click.option(
    "--empty",
    is_flag=True,
    help="Where other commits have knowledge and this one has none: begin it without documents.",
)
@click.option("--new", is_flag=True, help="Start a new one although other branches pin a knowledge base already.")
def command(
    invocation: Invocation,
    *,
    no_hooks: bool,
    template: Path | None,
    engine: EngineName | None,
    empty: bool,
    new: bool,
) -> None:
    """Start a knowledge base for this repository: the base itself, .vmrag.yaml, the first pin, git
    hooks and merge driver.

    Where the repository's history pins one already, that is fetched instead. A commit without a
    pin, an old tag say, may then take what other commits pin, or begin without documents.
    """
    if template is not None:
        _template(invocation, template, no_hooks=no_hooks)
        return
    with invocation.workspace(warn=False) as ws:
        if not ws.initialized:
            trust.agree_to_own(ws)  # before the first pin, which names their remote
        report = operation.init(ws, new=new, engine=engine, choose=_choice(invocation, empty=empty))
        invocation.warn(ws)
        hooks, said = _no_hooks(ws.places) if no_hooks else _hooks(ws.places)
        if not report.written and not hooks and not report.cloned:
            raise AlreadyInitialized("This repository has a knowledge base already.", hint="vmrag status")
        lines = [f"Started a knowledge base in {report.kb}"] if report.started else []
        lines += (
            [f"Pinned revision {report.revision[:7]} of the knowledge base in {report.kb}"] if report.pinned else []
        )
        lines += [f"Fetched the knowledge base from {report.cloned}"] if report.cloned else []
        lines += [f"  instead: {each.command} ({each.described})" for each in report.others]
        lines += [*_written(report), *said]
        try:
            ws.reconcile()
        except IndexExtraMissing as missing:  # a base installation: the knowledge base is there, searching can wait
            lines.append(f"Made no index: {missing.sentence}")
        empty = report.pinned and not ws.engine.count(report.revision)
        lines.append(f"Next: {_next(ws.places) if report.started or empty else 'vmrag status'}")
    invocation.emit(report, lines)


def _choice(invocation: Invocation, *, empty: bool) -> Choose:
    """A person at a terminal is asked; anybody else has to say it on the command line."""

    def choose(found: Sequence[Offer]) -> Offer | None:
        if empty:
            return None
        if invocation.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise undecided(found, empty="vmrag init --empty")
        choices = {str(number): each for number, each in enumerate(found, 1)}
        output.print_lines(["This code commit pins no knowledge, while others do. What should it have?"])
        output.print_lines(f"  {number}  {each.revision[:7]}: {each.described}" for number, each in choices.items())
        output.print_lines([f"  0  {NO_DOCUMENTS}"])
        return choices.get(output.choose("Which?", [*choices, "0"]))

    return choose


def _template(invocation: Invocation, template: Path, *, no_hooks: bool) -> None:
    if no_hooks:
        raise UsageInvalid("A template is made of hooks.", hint=f"vmrag init --template {template}")
    report = templates.write(invocation.directory / template)
    lines = [f"Wrote {', '.join(report.written)} to {report.folder}" if report.written else "Nothing to write."]
    lines.append(
        f"Next: git config --global init.templateDir '{report.folder}' (or git clone --template='{report.folder}' URL)"
    )
    invocation.emit(report, lines)


def _next(places: Places) -> str:
    """What to do with a knowledge base that has no documents."""
    if (places.top / "docs").is_dir():
        return "vmrag import docs/ --collection handbook"
    return "vmrag import FOLDER --collection handbook (or vmrag add FILE)"


def _no_hooks(places: Places) -> tuple[bool, list[str]]:
    """Nobody is to miss them."""
    if not installer.installed(places, git_hooks.folder(places)):
        hook_scope.choose(places, ())
    return False, []


def _hooks(places: Places) -> tuple[bool, list[str]]:
    """Whether hooks were missing and are there now, and what to say about it."""
    try:
        hooks = installer.install(places)
    except HooksRefused as refused:
        return False, [f"Did not install the git hooks: {refused.message} Next: {refused.hint}"]
    done = [f"the git hooks in {hooks.folder}"] if hooks.written else []
    done += ["the merge driver"] if hooks.driver else []
    lines = [f"Installed {' and '.join(done)}"] if done else []
    lines += [f"The {name} hook that was there runs first" for name in hooks.chained]
    lines += by_tools(hooks)
    if not hook_scope.acts(places):
        lines.append("The git hooks act in other work trees only. For this one, too: vmrag install --worktree")
    return bool(done), lines


def _written(report: operation.InitReport) -> list[str]:
    lines = [name for name in report.written if name not in report.unstaged]
    lines = [f"Wrote and staged {', '.join(lines)}"] if lines else []
    mixed = ATTRIBUTES if report.edited and ATTRIBUTES in report.unstaged else ""
    if left := [name for name in report.unstaged if name != mixed]:
        lines.append(f"Wrote {', '.join(left)}; git was busy, so: git add {' '.join(left)}")
    if mixed:
        lines.append(f"Wrote {mixed}, which has changes of yours that are not staged; with those: git add {mixed}")
    return lines

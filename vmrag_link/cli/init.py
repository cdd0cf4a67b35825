"""`vmrag init`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import click

from vmrag_hooks import installer, shim_files
from vmrag_link import settings_docs
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.install import by_tools
from vmrag_link.engines.base import EngineName
from vmrag_link.errors import (
    AlreadyInitialized,
    HooksRefused,
    IndexExtraMissing,
    NothingSelected,
    UsageInvalid,
    enumerated,
    plural,
)
from vmrag_link.git import hook_config
from vmrag_link.git import hooks as git_hooks
from vmrag_link.ops.documents import sources_report
from vmrag_link.ops.pins.history_pins import NO_DOCUMENTS, Offer, undecided
from vmrag_link.ops.pins.pinning import ATTRIBUTES
from vmrag_link.ops.setup import init as operation
from vmrag_link.ops.setup import trust
from vmrag_link.ops.setup.init import Choose
from vmrag_link.paths import CONFIG_NAME, Places
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace


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
@click.option("--sources", is_flag=True, help="Let files of the repository be documents: write into .vmrag.yaml which.")
@click.option("--no-sources", is_flag=True, help="Do not ask about that, and do not mention it.")
@click.option("--new", is_flag=True, help="Start a new one although other branches pin a knowledge base already.")
def command(
    invocation: Invocation,
    *,
    no_hooks: bool,
    template: Path | None,
    engine: EngineName | None,
    empty: bool,
    sources: bool,
    no_sources: bool,
    new: bool,
) -> None:
    """Start a knowledge base for this repository: the base itself, .vmrag.yaml, the first pin, git
    hooks and merge driver.

    Where the repository's history pins one already, that is fetched instead. A commit without a
    pin, an old tag say, may then take what other commits pin, or begin without documents.

    Documentation and code that git tracks can be documents of each commit, without being stored:
    --sources writes which into .vmrag.yaml, now or later; at a terminal you are asked.
    """
    if sources and no_sources:
        raise UsageInvalid("--sources and --no-sources say opposite things.", hint="Leave one of them out.")
    if template is not None:
        _template(invocation, template, no_hooks=no_hooks)
        return
    with invocation.workspace(warn=False) as ws:
        if not ws.initialized:
            trust.agree_to_own(ws)  # before the first pin, which names their remote
        report = operation.init(
            ws,
            new=new,
            engine=engine,
            choose=_choice(invocation, empty=empty),
            propose="never" if no_sources else "always" if sources else "new",
            agree=lambda found: sources or _agrees(invocation, found),
        )
        invocation.warn(ws)
        hooks, said = _no_hooks(ws.places) if no_hooks else _hooks(ws)
        if not report.written and not hooks and not report.cloned and not report.sources:
            if sources:
                raise _no_sources(ws)
            raise AlreadyInitialized("This repository has a knowledge base already.", hint="vmrag status")
        lines = [f"Started a knowledge base in {report.kb}"] if report.started else []
        lines += (
            [f"Pinned revision {report.revision[:7]} of the knowledge base in {report.kb}"] if report.pinned else []
        )
        lines += [f"Fetched the knowledge base from {report.cloned}"] if report.cloned else []
        lines += [f"  instead: {each.command} ({each.described})" for each in report.others]
        lines += [*_written(report), *_sources(report), *said]
        if sources and not report.sources and not ws.config.sources:
            lines.append(_nothing_to_propose(ws))
        try:
            ws.reconcile()
        except IndexExtraMissing as missing:  # a base installation: the knowledge base is there, searching can wait
            lines.append(f"Made no index: {missing.sentence}")
        empty = report.pinned and not ws.engine.count(report.revision)
        offered = report.proposed and not invocation.attended
        lines += _offered(report) if offered else []
        if offered:
            lines.append("Next: vmrag init --sources   (lets the files above be documents of each commit)")
        else:
            lines.append(f"Next: {_next(ws, report) if report.started or report.sources or empty else 'vmrag status'}")
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


def _agrees(invocation: Invocation, found: Sequence[SourceSettings]) -> bool:
    """What a person at a terminal says to sources; nobody else agrees."""
    if not invocation.attended:
        return False
    output.print_lines(["These files can be documents of each commit, without being stored; in .vmrag.yaml:"])
    output.print_lines(f"  {line}" for line in settings_docs.sources_section(found).splitlines())
    return output.agrees("Let them be documents?", default=True)


def _sources(report: operation.InitReport) -> Iterator[str]:
    if report.sources:
        yield f"Files of the repository are documents now: {_described(report.sources)}   (vmrag sources shows them)"
        if CONFIG_NAME not in report.written:
            yield f"Added that to {CONFIG_NAME}, which is yours: git add {CONFIG_NAME}"


def _offered(report: operation.InitReport) -> Iterator[str]:
    yield f"Files of the repository could be documents of each commit; in {CONFIG_NAME}:"
    yield from (f"  {line}" for line in settings_docs.sources_section(report.proposed).splitlines())


def _nothing_to_propose(ws: Workspace) -> str:
    number = sources_report.untracked_offers(ws)
    untracked = f"   ({plural(number, 'untracked file')} could)" if number else ""
    return f"No tracked file could be a document of a source: git add FILE, then: vmrag init --sources{untracked}"


def _described(sources: Sequence[SourceSettings]) -> str:
    return enumerated([f"{each.collection} ({', '.join(each.paths)})" for each in sources])


def _no_sources(ws: Workspace) -> AlreadyInitialized | NothingSelected:
    if not ws.config.sources:
        message, _, hint = _nothing_to_propose(ws).partition(": ")
        return NothingSelected(f"{message}.", hint=hint)
    code = any(each.kind == "code" for each in ws.config.sources)
    found = [] if code else [each for each in sources_report.unnamed(ws).sources if each.kind == "code"]
    section = settings_docs.sources_section(found).partition("\n")[2].rstrip("\n")
    if not section:
        return AlreadyInitialized(f"{CONFIG_NAME} names sources already.", hint="vmrag sources")
    return AlreadyInitialized(
        f"{CONFIG_NAME} names sources already, and none of code. To have that, too, add below 'sources:'\n{section}",
        hint="vmrag sources   (shows the sources, and what is in none)",
    )


def _template(invocation: Invocation, template: Path, *, no_hooks: bool) -> None:
    if no_hooks:
        raise UsageInvalid("A template is made of hooks.", hint=f"vmrag init --template {template}")
    report = shim_files.write_template(invocation.directory / template)
    lines = [f"Wrote {', '.join(report.written)} to {report.folder}" if report.written else "Nothing to write."]
    lines.append(
        f"Next: git config --global init.templateDir '{report.folder}' (or git clone --template='{report.folder}' URL)"
    )
    invocation.emit(report, lines)


def _next(ws: Workspace, report: operation.InitReport) -> str:
    """What to do with a knowledge base that has no documents."""
    places = ws.places
    if report.sources or ws.config.sources:
        return 'vmrag query "…", and: git commit'
    if (places.top / "docs").is_dir():
        return "vmrag import docs/ --collection handbook"
    return "vmrag import FOLDER --collection handbook (or vmrag add FILE)"


def _no_hooks(places: Places) -> tuple[bool, list[str]]:
    """Nobody is to miss them."""
    if not installer.installed(places, git_hooks.folder(places)):
        hook_config.choose(places, ())
    return False, []


def _hooks(ws: Workspace) -> tuple[bool, list[str]]:
    """Whether hooks were missing and are there now, and what to say about it."""
    places = ws.places
    try:
        hooks = installer.install(places, place=ws.config.hooks.place)
    except HooksRefused as refused:
        return False, [f"Did not install the git hooks: {refused.message} Next: {refused.hint}"]
    done = [f"the git hooks in {hooks.folder}"] if hooks.written else []
    done += ["the merge driver"] if hooks.driver else []
    lines = [f"Installed {' and '.join(done)}"] if done else []
    lines += [f"The {name} hook that was there runs first" for name in hooks.chained]
    lines += by_tools(hooks)
    if not hook_config.acts(places):
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

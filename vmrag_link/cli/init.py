"""`vmrag init`: make files of the repository searchable."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import click
from msgspec import structs

from vmrag_hooks import shim_files
from vmrag_link.cli import new_knowledge_base, output
from vmrag_link.cli.base import Invocation, describe_requirement, describe_uncovered
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.engines.folder import EngineName
from vmrag_link.errors import AlreadyInitialized, UsageInvalid, first_of, plural, quoted
from vmrag_link.git import plumbing
from vmrag_link.ops import trust
from vmrag_link.ops.init import init
from vmrag_link.ops.init.init import InitReport
from vmrag_link.ops.new_knowledge_base.knowledge_base import ChooseOffer, KnowledgeBaseReport, start_knowledge_base
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins.history_pins import NO_DOCUMENTS, Offer, undecided_pin

_MAX_ENDINGS = 6


@vmrag_command("init")
@click.option("--knowledge-base", "with_base", is_flag=True, help="Also start a knowledge base for stored documents.")
@click.option("--no-sources", is_flag=True, help="Do not add sources to .vmrag.yaml.")
@click.option("--no-notes", is_flag=True, help="Do not add a source for notes to .vmrag.yaml.")
@click.option("--no-hooks", is_flag=True, help="Do not install the git hooks of a knowledge base.")
@click.option(
    "--engine",
    type=click.Choice(get_args(EngineName)),
    help="Engine of the knowledge base (default: the setting 'engine'). Implies --knowledge-base.",
)
@click.option(
    "--empty",
    is_flag=True,
    help="Start without documents, even if other commits pin some. Implies --knowledge-base.",
)
@click.option(
    "--new",
    is_flag=True,
    help="Start an unrelated knowledge base, even if other branches pin one. Implies --knowledge-base.",
)
@click.option(
    "--template",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Only create a git template directory that gives new clones the hooks.",
)
@click.option("--sources", is_flag=True, hidden=True, help="Accepted for older scripts. Sources are the default.")
def command(
    invocation: Invocation,
    *,
    with_base: bool,
    no_sources: bool,
    no_notes: bool,
    no_hooks: bool,
    engine: EngineName | None,
    empty: bool,
    new: bool,
    template: Path | None,
    sources: bool,
) -> None:
    """Choose which files of the repository vmrag searches.

    It writes and stages .vmrag.yaml, which names the tracked files to search. vmrag reads them in
    place and copies nothing, so a clone can search them at once.

    A knowledge base stores other text, such as pages and PDF files. 'vmrag import' or 'vmrag add
    --collection' creates it. --knowledge-base creates it now, with its pin, hooks and merge driver.
    """
    if sources and no_sources:
        raise UsageInvalid("--sources and --no-sources cannot be combined.", hint="run 'vmrag init --no-sources'")
    if template is not None:
        _write_template(invocation, template, no_hooks=no_hooks)
        return
    with_base = with_base or engine is not None or empty or new
    with invocation.workspace(warn=False) as ws:
        lines: list[str] = []
        base = None
        has_new_hooks = False
        if with_base:
            if not ws.is_initialized:
                trust.trust_own_settings(ws)  # before the first pin, which names the remote
            base = start_knowledge_base(ws, new=new, engine=engine, choose=_choose_offer(invocation, empty=empty))
            has_new_hooks, hook_lines = new_knowledge_base.set_up_hooks(ws, install=not no_hooks)
            lines += [*_describe_base(base), *hook_lines, *new_knowledge_base.build_index(ws)]
        files = init.init(ws, with_sources=not no_sources, with_notes=not (no_notes or no_sources))
        if not (files.written or has_new_hooks or (base and (base.written or base.cloned))):
            raise _already_initialized_error(ws, files, base)
        if not base and no_hooks:
            new_knowledge_base.set_up_hooks(ws, install=False)
        lines += _describe_sources(files)
        invocation.warn_about_settings(ws)
        lines.append(f"hint: {_suggest_next_command(ws, files, base)}")
    invocation.emit_report({"files": files} | (structs.asdict(base) if base else {}), lines)


def _describe_sources(report: InitReport) -> Iterator[str]:
    for source in report.sources:
        files = plural(sum(source.files.values()), "file")
        without = f", without {' '.join(source.exclude)}" if source.exclude else ""
        yield f"Added the source {source.collection}: {files} ({_list_endings(source.files)}){without}"
    yield from _describe_notes(report)
    if report.sources or report.needs_extra:
        yield from describe_uncovered(report.uncovered, report.needs_extra, limit=_MAX_ENDINGS)
    if report.written and not (report.sources or report.notes) and not report.staged:
        yield f"Wrote {CONFIG_NAME}"
    if report.staged:
        yield f"Wrote and staged {CONFIG_NAME}"
    elif report.busy:
        yield f"Wrote {CONFIG_NAME}, but another git command holds the index."
        yield f"hint: run 'git add {CONFIG_NAME}' to stage it"
    elif report.ignored:
        yield f"Wrote {CONFIG_NAME}, which git ignores: it applies to this working tree only."
    elif report.written and (report.sources or report.notes):
        yield f"Changed {CONFIG_NAME}, and did not stage your own changes."
        yield f"hint: run 'git add {CONFIG_NAME}' to stage it"
    if report.requires:
        yield describe_requirement(report.requires)


def _describe_notes(report: InitReport) -> Iterator[str]:
    if report.notes:
        yield f"Added the source notes, for what you or agents write down: {report.notes}/"
    if report.no_notes == "stored":
        yield "Added no source for notes, because the knowledge base stores a collection of that name."
        yield "hint: run 'vmrag move notes --to files' to make its documents files"
    elif report.no_notes == "ignored":
        yield f"Added no source for notes, because git ignores {init.NOTES_SOURCE.folder}/"


def _list_endings(counts: Mapping[str, int]) -> str:
    return first_of([f"{count} {ending}" for ending, count in counts.items()], _MAX_ENDINGS)


def _describe_base(base: KnowledgeBaseReport) -> Iterator[str]:
    if base.started:
        yield f"Started a knowledge base in {base.kb}"
    if base.pinned:
        yield f"Pinned revision {base.revision[:7]} of the knowledge base in {base.kb}"
    if base.cloned:
        yield f"Fetched the knowledge base from {base.cloned}"
    yield from (f"  instead: {offer.command} ({offer.described})" for offer in base.others)
    yield from new_knowledge_base.describe_files(base)


def _already_initialized_error(
    ws: Workspace, report: InitReport, base: KnowledgeBaseReport | None
) -> AlreadyInitialized:
    """Return the error for a repository in which the command changed nothing."""
    if base:
        return AlreadyInitialized(
            "this repository already has a knowledge base.", hint="run 'vmrag status' to see the state"
        )
    if plumbing.read_pin_bytes(ws.places) is not None:
        return AlreadyInitialized(
            f"{CONFIG_NAME} and .dolt-version already exist.", hint="run 'vmrag sync' to sync to the pin"
        )
    if any(not source.write for source in ws.config.sources):
        return AlreadyInitialized(
            f"{CONFIG_NAME} already has sources.", hint="run 'vmrag sources' to list the files of the sources"
        )
    if report.needs_extra:
        return AlreadyInitialized(
            f"{CONFIG_NAME} exists, and the extra 'code' is missing to read the files that git tracks.",
            hint=f"run '{report.needs_extra}', then 'vmrag init'",
        )
    untracked = f"; {plural(report.untracked, 'untracked file')} can be documents" if report.untracked else ""
    return AlreadyInitialized(
        f"{CONFIG_NAME} exists, and git tracks no file that can be a document{untracked}.",
        hint="run 'git add FILE', then 'vmrag init'",
    )


def _suggest_next_command(ws: Workspace, report: InitReport, base: KnowledgeBaseReport | None) -> str:
    if base is None and not ws.is_initialized and plumbing.read_pin_bytes(ws.places) is not None:
        return "run 'vmrag sync' for the knowledge base that this commit pins"
    if report.sources or any(not source.write for source in ws.config.sources):
        return """run 'git commit -m "Set up vmrag"', then 'vmrag query "…"'"""
    note, document = "'vmrag add -m TEXT' to write a note", "'vmrag add FILE --collection NAME' to store a document"
    return f"run {note if report.notes else document}, or 'git add' files, then 'vmrag init'"


def _choose_offer(invocation: Invocation, *, empty: bool) -> ChooseOffer:
    """Return a function that asks at a terminal. Elsewhere, it raises the list of choices."""

    def choose_offer(offers: Sequence[Offer]) -> Offer | None:
        if empty:
            return None
        if invocation.as_json or not (output.has_input_terminal() and sys.stdout.isatty()):
            raise undecided_pin(offers, empty="vmrag init --empty")
        choices = {str(number): offer for number, offer in enumerate(offers, 1)}
        output.print_lines(["This commit has no pin, but other commits have one. Which documents does it begin with?"])
        output.print_lines(f"  {number}  {offer.revision[:7]}: {offer.described}" for number, offer in choices.items())
        output.print_lines([f"  0  {NO_DOCUMENTS}"])
        return choices.get(output.ask_choice("Which?", [*choices, "0"]))

    return choose_offer


def _write_template(invocation: Invocation, template: Path, *, no_hooks: bool) -> None:
    if no_hooks:
        raise UsageInvalid(
            "--template and --no-hooks cannot be combined.", hint=f"run 'vmrag init --template {quoted(template)}'"
        )
    report = shim_files.write_template(invocation.directory / template)
    folder = quoted(report.folder)
    lines = [f"Wrote {', '.join(report.written)} to {report.folder}" if report.written else "Nothing to write."]
    lines.append(
        f"hint: run 'git config --global init.templateDir {folder}', or 'git clone --template={folder} URL' for one clone"
    )
    invocation.emit_report(report, lines)

"""`vmrag commit`: commit stored documents and pin the new revision."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from vmrag_link.cli.base import Invocation, read_subject
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, NotInitialized, UsageInvalid, quoted

if TYPE_CHECKING:
    from vmrag_link.ops.commit.commit import CommitReport, PlannedCommit
    from vmrag_link.workspace import Workspace

_MAX_LISTED_DOCUMENTS = 100
"""Maximum number of documents that the text in the editor lists."""


@vmrag_command("commit")
@click.option("-m", "--message", help="Commit message. Without it, git's editor opens.")
@click.option("--git", "with_git", is_flag=True, help="Run 'git commit' for the pin and all other staged files.")
@click.option(
    "-a",
    "--all",
    "all_files",
    is_flag=True,
    hidden=True,
    help="Removed.",
)
@click.option("--author", help="Author, such as 'Ada <ada@example.org>' (default: git's author).")
def command(invocation: Invocation, *, message: str | None, with_git: bool, all_files: bool, author: str | None) -> int:
    """Commit stored documents and pin the new revision.

    It writes the revision's name (the pin) to .dolt-version and stages this file.

    With --git, both commits have the same message and author. The git commit contains the pin
    and all staged files. If it fails, for example because of a pre-commit hook, the revision
    and the staged pin are kept, and the error names the command that completes the commit.

    Files of sources need no 'vmrag commit', because git commits them.
    """
    from vmrag_link.ops.commit import commit as operation

    if with_git:
        from vmrag_link.ops.commit.git_commit import commit_to_git, prepare_git_commit

    if all_files:
        raise UsageInvalid(
            "'vmrag commit -a' was removed: stored documents do not follow their files.",
            hint=f"run 'vmrag commit -m {quoted(message or 'MESSAGE')}', or 'vmrag sources add PATH' to let files "
            "answer",
        )
    commit = None
    hidden = invocation.as_json or invocation.is_quiet
    with contextlib.ExitStack() as drafts:
        with invocation.workspace() as ws:
            if ws.stores_nothing and ws.sources.configured:
                raise NotInitialized(
                    "this repository has no knowledge base, so there are no stored documents to commit.",
                    hint="run 'git commit' to commit files and notes",
                )
            with prepare_git_commit(ws, message) if with_git else contextlib.nullcontext():
                planned = None if message is not None else operation.plan_commit(ws, author=author)
                text = message or ""
                file = None
                if planned:
                    contents = "\n".join(_list_contents(ws, planned, with_git=with_git))
                    text, file = drafts.enter_context(_import_editor().open_edited_message(ws.places, contents))
                signed = operation.resolve_author(ws, author) if author else None
                report = operation.commit(ws, text, author=author, planned=planned)
            later = operation.list_unplanned(ws, planned, report) if planned else ()
            invocation.warn_about_hooks(ws)
        # The session of the engine is closed now: git's hooks can open the knowledge base.
        if with_git:
            if file is None and "\n" in text.strip():  # an error names a file, because a hint has one line
                file = drafts.enter_context(_import_editor().open_written_message(ws.places, text))
            commit = commit_to_git(ws.places, report, text, file=file, author=signed, show=not hidden)
    lines = [f"[{report.branch} {report.revision[:7]}] {read_subject(text)}", f" {report.changes.text}"]
    lines += [f" also {change}, stored while you wrote the message" for change in later]
    lines += _describe_pin(report, commit)
    if report.pending:
        lines.append(f"warning: {report.pending}")
    invocation.emit_report({**to_builtins(report), "git_commit": commit} if with_git else report, lines)
    return FAILED_CHECK if report.pin and not report.staged else OK


def _import_editor() -> ModuleType:
    from vmrag_link.cli import editor  # most commits have a message

    return editor


def _list_contents(ws: Workspace, planned: PlannedCommit, *, with_git: bool) -> Iterator[str]:
    from vmrag_link.terminal_text import escape_line

    if planned.merged:
        yield f"This commit finishes the merge of {escape_line(planned.merged)}."
    changes = [*planned.documents, *planned.collections]
    if changes:
        yield f"Documents to be committed to the knowledge base, on {escape_line(planned.kb_branch)}:"
    yield from (f"\t{escape_line(change)}" for change in changes[:_MAX_LISTED_DOCUMENTS])
    if changes[_MAX_LISTED_DOCUMENTS:]:
        yield f"\tand {len(changes) - _MAX_LISTED_DOCUMENTS} more"
    if with_git:
        from vmrag_link.git import versions
        from vmrag_link.paths import PIN_NAME

        yield ""
        yield "Files to be committed to git:"
        staged = versions.list_staged_files(ws.places)
        yield from (f"\t{escape_line(name)}" for name in sorted({PIN_NAME, *staged}))


def _describe_pin(report: CommitReport, commit: str | None) -> Iterator[str]:
    if commit:
        yield f"Committed to git as {commit[:7]}, with the pin."
    elif report.pin is None:
        yield "Not pinned, because auto_pin is off."
        yield "hint: run 'vmrag pin' to write the pin"
    elif report.staged:
        yield "Pinned in .dolt-version, which is staged."
        yield "hint: run 'git commit -m \"…\"' to commit the pin"
    else:
        yield "Pinned in .dolt-version, but another git command holds the index."
        yield "hint: run 'git add .dolt-version' to stage the pin"

"""`vmrag learning`: the tools of the toolset `learning` as commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from msgspec.structs import replace

from vmrag_link.cli.base import NEXT_COMMIT, Invocation, group
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, UsageInvalid, plural
from vmrag_link.file_access import require_no_link
from vmrag_link.models import CODEBASE, LEARNINGS
from vmrag_link.ops.stores import relocation, stores
from vmrag_link.toolsets.learning import (
    chats,
    code_index,
    evidence_records,
    promotion,
    quality_checks,
    runs,
    runtime_errors,
    validation,
)
from vmrag_link.toolsets.learning.chat_facts import FileChange
from vmrag_link.toolsets.learning.tool_output import Metric
from vmrag_link.workspace.documents import named_files as files

if TYPE_CHECKING:
    from vmrag_link.workspace.documents.named_files import NamedFile
    from vmrag_link.workspace.documents.writing import WriteResult

_FILE = click.Path(path_type=Path)
_SHARE = click.FloatRange(0, 1)


command = group("learning", "Store test results, checks, errors and lessons.")


@vmrag_command("setup-collections")
def setup(invocation: Invocation) -> None:
    """Create the collections of this toolset.

    The other commands create the collections that they need.
    """
    with invocation.workspace() as ws:
        result = relocation.setup_collections(ws)
    made = [f"Made {name}." for name in result.report.created]
    _print_result(invocation, result, made or ["All collections already exist."])


@vmrag_command("promote-learning")
@click.argument("words", metavar="DESCRIPTION", required=False, default="")
@click.option("--description", default="", help="Same as DESCRIPTION.")
@click.option("--pattern", default="", help="Pattern that the lesson describes.")
@click.option("--code-ref", default="", metavar="PATH:COMMIT:LINE", help="Code that shows the pattern.")
@click.option("--tags", default="", metavar="NAME,…", help="Tags of the lesson.")
@click.option("--confidence", type=_SHARE, default=0.5, metavar="SHARE", help="Confidence from 0 to 1 (default: 0.5).")
@click.option(
    "--source-chat-id", default="", metavar="ID", help="Chat that taught the lesson. The chat is marked as promoted."
)
@click.option("--collection-name", default=LEARNINGS, metavar="NAME", help="Collection to store it in.")
@click.option("--chat-collection-name", default=stores.CHATS, metavar="NAME", help="Collection of the chat.")
@click.option(
    "--include-chat-context/--no-include-chat-context", default=False, help="Include the code context of the chat."
)
@click.option("--require-validation", is_flag=True, help="Fail if the validation score is below the threshold.")
@click.option(
    "--validation-evidence-id",
    default="",
    metavar="ID",
    help="Evidence of the validation. It overrides --validation-score.",
)
@click.option("--validation-score", type=_SHARE, metavar="SHARE", help="Score from 0 to 1, if there is no evidence.")
@click.option(
    "--validation-threshold",
    type=_SHARE,
    default=evidence_records.THRESHOLD,
    metavar="SHARE",
    help="Minimum score (default: 0.7).",
)
def promote(invocation: Invocation, *, words: str, description: str, tags: str, **given: Any) -> None:
    """Store a lesson, with its evidence if there is any."""
    if bool(words) == bool(description):
        raise UsageInvalid(
            "a learning has one description.",
            hint="run it with a text, such as 'vmrag learning promote-learning \"Ask before you delete\"'",
        )
    request = promotion.PromotionRequest(description=words or description, tags=[tags], **given)
    with invocation.workspace() as ws:
        result = promotion.store_learning(ws, request)
    lines = [f"Learning {result.report.learning_id}"]
    if checked := result.report.validation:
        enough = "enough" if checked.meets_threshold else f"below {request.validation_threshold:g}"
        lines.append(f"Validated with the score {checked.score:g}, which is {enough}.")
    if result.report.source_chat_updated:
        lines.append(f"Chat {request.source_chat_id} is marked as promoted.")
    _print_result(invocation, result, lines)


@vmrag_command("log-error")
@click.option("--error-type", required=True, metavar="NAME", help="Type of the error, such as KeyError.")
@click.option("--error-message", required=True, metavar="TEXT", help="Message of the error.")
@click.option("--stacktrace", default="", metavar="TEXT", help="Stack trace of the error.")
@click.option(
    "--affected-files", default="", metavar="FILE,…", help="Affected files (default: those in the stack trace)."
)
@click.option("--resolution", default="", metavar="TEXT", help="Change that fixed the error.")
@click.option("--resolution-verified", is_flag=True, help="The fix was verified.")
@click.option("--collection-name", default=stores.EVIDENCE, metavar="NAME", help="Collection to store it in.")
def log_error(invocation: Invocation, *, affected_files: str, **given: Any) -> None:
    """Store a runtime error and its resolution."""
    request = runtime_errors.ErrorRequest(affected_files=[affected_files], **given)
    with invocation.workspace() as ws:
        result = runtime_errors.log_error(ws, request)
    lines = [_format_evidence(result.report.evidence_id, result.report.score)]
    lines += [f"  {name}" for name in result.report.affected_files]
    _print_result(invocation, result, lines)


@vmrag_command("log-test-results")
@click.argument("xml_path", type=_FILE)
@click.option("--before-xml", type=_FILE, metavar="FILE", help="JUnit XML file of the previous run.")
@click.option("--commit-before", default="", metavar="COMMIT", help="Git commit of the previous run.")
@click.option("--commit-after", default="", metavar="COMMIT", help="Git commit of this run.")
@click.option("--collection-name", default=stores.TEST_RESULTS, metavar="NAME", help="Collection to store it in.")
def log_test_results(invocation: Invocation, *, xml_path: Path, before_xml: Path | None, **given: Any) -> None:
    """Store the results of a test run from JUnit XML.

    For example, pytest writes such a file with --junitxml=FILE.
    """
    before = _read_file(invocation, before_xml) if before_xml else None
    request = runs.RunRequest(xml=_read_file(invocation, xml_path), before=before, **given)
    with invocation.workspace() as ws:
        result = runs.log_test_results(ws, request)
    report, tests = result.report, result.report.tests
    ended = f"{tests.passed} passed, {tests.failed} failed, {tests.errors} in error, {tests.skipped} skipped"
    lines = [
        _format_evidence(report.evidence_id, report.validation_score),
        f"{plural(tests.total, 'test')}: {ended}",
        *(f"  fixed: {transition.test_id}  {transition.evidence_id}" for transition in report.transitions),
        *(f"  regression: {regression}" for regression in report.regressions),
    ]
    _print_result(invocation, result, lines)


@vmrag_command("log-quality-check")
@click.option(
    "--tool",
    required=True,
    metavar="NAME",
    help="Tool: ruff, flake8, pylint, mypy or coverage. For other tools, the lines are counted.",
)
@click.option("--after-output", required=True, type=_FILE, metavar="FILE", help="Output of the tool.")
@click.option("--before-output", type=_FILE, metavar="FILE", help="Output of the tool before the change.")
@click.option("--metric-type", type=click.Choice(get_args(Metric)), default="error_count", help="Metric.")
@click.option("--collection-name", default=stores.EVIDENCE, metavar="NAME", help="Collection to store it in.")
def log_quality_check(invocation: Invocation, *, after_output: Path, before_output: Path | None, **given: Any) -> None:
    """Store the output of a linter, type checker or coverage tool."""
    before = _read_file(invocation, before_output) if before_output else None
    request = quality_checks.QualityRequest(after=_read_file(invocation, after_output), before=before, **given)
    with invocation.workspace() as ws:
        result = quality_checks.log_quality_check(ws, request)
    report = result.report
    values = (
        f"{report.after_value:g}"
        if report.before_value is None
        else f"{report.before_value:g} → {report.after_value:g}"
    )
    lines = [_format_evidence(report.evidence_id, report.score), f"{report.tool}, {report.metric_type}: {values}"]
    _print_result(invocation, result, lines)


@vmrag_command("validate-evidence")
@click.option("--evidence-file", type=_FILE, metavar="FILE", help="JSON file with evidence.")
@click.option("--test-transitions", default="", metavar="ID,…", help="Ids of test results or runs.")
@click.option("--runtime-errors", default="", metavar="ID,…", help="Ids of errors.")
@click.option("--code-quality", default="", metavar="ID,…", help="Ids of checks.")
@click.option(
    "--threshold",
    type=_SHARE,
    default=evidence_records.THRESHOLD,
    metavar="SHARE",
    help="Minimum score (default: 0.7).",
)
@click.option("--output-file", type=_FILE, metavar="FILE", help="Also write the result to this JSON file.")
@click.option("--fail-below", is_flag=True, help="Exit with 1 if the score is below the threshold.")
def validate_evidence(
    invocation: Invocation,
    *,
    evidence_file: Path | None,
    threshold: float,
    output_file: Path | None,
    fail_below: bool,
    **ids: str,
) -> int:
    """Combine evidence into one score, and store it.

    It needs at least one of the first four options.
    """
    if output_file:
        require_no_link(invocation.directory / output_file, invocation.directory)
    request = validation.ValidationRequest(
        evidence_file=_read_file(invocation, evidence_file) if evidence_file else None,
        threshold=threshold,
        output=invocation.directory / output_file if output_file else None,
        **{name: [identifier] for name, identifier in ids.items()},
    )
    with invocation.workspace() as ws:
        result = validation.validate_evidence(ws, request)
    report, counts = result.report, result.report.counts
    enough = "enough" if report.meets_threshold else f"below {threshold:g}"
    counted = (
        plural(counts.test_transitions, "test"),
        plural(counts.runtime_errors, "error"),
        plural(counts.code_quality, "check"),
        plural(counts.regressions, "regression"),
    )
    lines = [f"{_format_evidence(report.evidence_id, report.score)}, which is {enough}", ", ".join(counted)]
    _print_result(invocation, result, lines)
    return FAILED_CHECK if fail_below and not report.meets_threshold else OK


@vmrag_command("move")
def move(invocation: Invocation) -> None:
    """Move records as the setting system.versioned requires.

    It moves thoughts, chats, evidence and lessons into the knowledge base, or out of it to this
    machine. Committed records stay in the history of the knowledge base.
    """
    with invocation.workspace() as ws:
        result = relocation.move_documents(ws)
    moved = [f"{name}: {plural(count, 'document')} moved" for name, count in result.report.moved.items()]
    kept = [
        f"{name}: {plural(count, 'document')} left, whose ids have other documents there"
        for name, count in result.report.kept.items()
    ]
    _print_result(invocation, result, [*moved, *kept] or ["Everything is where it should be."])


@vmrag_command("log-chat")
@click.option("--prompt-summary", required=True, metavar="TEXT", help="Summary of the prompt.")
@click.option("--response-summary", required=True, metavar="TEXT", help="Summary of the answer and the actions.")
@click.option("--raw-prompt", default="", metavar="TEXT", help="Full prompt. It is pushed, but not indexed.")
@click.option("--raw-response", default="", metavar="TEXT", help="Full answer. It is pushed, but not indexed.")
@click.option("--tool-usage-file", type=_FILE, metavar="FILE", help="JSON file with a list of {name, args}.")
@click.option(
    "--file-changes-file",
    type=_FILE,
    metavar="FILE",
    help="JSON file with a list of {file_path, before_content, after_content}.",
)
@click.option("--involved-entities", default="", metavar="NAME,…", help="Names that the chat mentions.")
@click.option("--session-id", default="", metavar="ID", help="Id of the session of the chat.")
@click.option("--collection-name", default=stores.CHATS, metavar="NAME", help="Collection to store it in.")
def log_chat(
    invocation: Invocation, *, tool_usage_file: Path | None, file_changes_file: Path | None, **given: Any
) -> None:
    """Store a chat and link it to the code that it changed.

    vmrag derives the other fields.
    """
    with invocation.workspace() as ws:
        used = chats.read_list(ws, _read_file(invocation, tool_usage_file), chats.ToolUse) if tool_usage_file else []
        changed = (
            chats.read_list(ws, _read_file(invocation, file_changes_file), FileChange) if file_changes_file else []
        )
        result = chats.log_chat(ws, chats.ChatRequest(tool_usage=used, file_changes=changed, **given))
    links = result.report.bidirectional_links
    lines = [f"Chat {result.report.chat_id}", *(f"  linked with {name}" for name in links.files)]
    lines += [f"  not indexed: {name}" for name in links.unmatched_files]
    _print_result(invocation, result, lines)


@vmrag_command("index")
@click.argument("paths", nargs=-1, type=_FILE)
@click.option("--repo-root", type=_FILE, metavar="DIR", help="Folder that PATHS are relative to, like -C.")
@click.option("--all", "everything", is_flag=True, help="Index all files that git tracks.")
@click.option("--collection-name", default=CODEBASE, metavar="NAME", help="Collection to store them in.")
def index(
    invocation: Invocation, *, paths: tuple[Path, ...], repo_root: Path | None, everything: bool, collection_name: str
) -> None:
    """Index code files, so that chats can link to them.

    Unchanged files are skipped. Files that git no longer tracks are removed.
    """
    if bool(paths) == everything:
        raise UsageInvalid(
            "--all cannot be combined with files and folders." if paths else "no files are given.",
            hint="run it with a folder, such as 'vmrag learning index src'",
        )
    at = replace(invocation, directory=invocation.directory / (repo_root or ""))
    with at.workspace() as ws:
        request = code_index.CodeIndexRequest([at.directory / path for path in paths], collection_name)
        result = code_index.index_code(ws, request)
    report = result.report
    lines = [f"{report.changes.text} in {report.collection_name}, {report.unchanged} unchanged"]
    lines += [f"  left out: {skipped.name} {skipped.reason}" for skipped in report.skipped]
    _print_result(invocation, result, lines)


for subcommand in (
    setup,
    promote,
    log_error,
    log_test_results,
    log_quality_check,
    validate_evidence,
    log_chat,
    index,
    move,
):
    command.add_command(subcommand)


def _print_result(invocation: Invocation, result: WriteResult[Any], lines: Iterable[str]) -> None:
    warned = [f"warning: {result.pending}"] if result.pending else []
    place_lines = [] if result.versioned else ["This stays on this machine: system.versioned is false."]
    invocation.emit_report(result.report, [*lines, *warned, *place_lines, *([NEXT_COMMIT] if result.branch else [])])


def _format_evidence(doc_id: str, score: float) -> str:
    return f"Evidence {doc_id}, score {score:g}"


def _read_file(invocation: Invocation, path: Path) -> NamedFile:
    return files.resolve_file(invocation.directory / path)


def main() -> None:
    """Run as `chroma-mcp-client`, the name of these commands in other programs."""
    from vmrag_link.cli.main import main as vmrag

    vmrag(["learning", *sys.argv[1:]])

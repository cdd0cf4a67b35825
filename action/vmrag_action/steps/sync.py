"""`mode: sync`: bring the index to the pin, verify it, and store the cache."""

from __future__ import annotations

from vmrag_action import caches, failures, findings, inputs, work_tree
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import __version__, markdown_text
from vmrag_link.errors import FAILED_CHECK, OK, VmragError, plural
from vmrag_link.git import plumbing
from vmrag_link.ops.portable_index import ProvidedIndex, pack_vectors, provide_index
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace import Workspace

TITLE = "Knowledge is in sync"


def run(runner: Runner, job: WorkflowJob) -> int:
    with work_tree.open_workspace(runner, job) as ws:
        if plumbing.read_blob(ws.places, f"HEAD:{PIN_NAME}") is None:
            runner.set_output("in-sync", True)
            runner.set_output("cache-hit", False)
            runner.set_output("findings", inputs.count_earlier_findings())
            return findings.report_no_work(runner, job, "sync", TITLE, f"the commit has no pin ({PIN_NAME}).")
        try:
            provided = provide_index(ws, caches.vectors_folder(job.temp))
        except VmragError as error:
            return _out_of_sync(runner, error)
        _report_sync(runner, ws, provided)
    return OK


def _report_sync(runner: Runner, ws: Workspace, provided: ProvidedIndex) -> None:
    report = provided.sync
    verified = provided.verified
    for sentence in provided.rejected:
        runner.annotate("notice", f"The cache was not used: {sentence} The index was rebuilt.")
    runner.set_output("in-sync", True)
    runner.set_output("revision", verified.revision)
    runner.set_output("fingerprint", verified.fingerprint)
    runner.set_output("index-path", str(ws.views.view_path(verified.revision)))
    runner.set_output("cache-hit", provided.reused)
    runner.set_output("findings", inputs.count_earlier_findings())
    if report.chroma and report.chroma.path:
        runner.set_output("chroma-path", report.chroma.path)
    chunks = f"{plural(report.chunks.added, 'chunk')} added, {report.chunks.embedded} embedded"
    origin = "built with vectors from the cache" if provided.reused else f"built here ({chunks})"
    runner.log_line(
        f"The knowledge base is at the pinned revision {verified.revision}: {plural(verified.documents, 'document')}, {origin}."
    )
    rows = [
        ("Revision", verified.revision),
        ("Fingerprint", verified.fingerprint),
        ("Documents", verified.documents),
        ("Chunks", verified.chunks),
        ("Index", origin),
        ("vmrag", __version__),
    ]
    runner.append_summary(markdown_text.format_facts(TITLE, rows))


def _out_of_sync(runner: Runner, error: VmragError) -> int:
    """Report that the index is not in sync, and return the exit code.

    Drift and invalid pins are findings, so `fail-on` decides. Other errors always fail.
    """
    runner.set_output("in-sync", False)
    runner.set_output("cache-hit", False)
    runner.set_output("findings", inputs.count_earlier_findings() + 1)
    rows = [(error.cause, error.message), ("Fix", error.hint)]
    is_pin_failure = failures.is_pin_failure(error)
    title = "The knowledge base is not in sync" if is_pin_failure else "Could not sync the knowledge base"
    runner.append_summary(markdown_text.format_facts(title, rows))
    if is_pin_failure and error.exit_code == FAILED_CHECK and inputs.read_fail_on() == "never":
        failures.annotate_error(runner, error, "warning")
        return OK
    failures.annotate_error(runner, error)
    return error.exit_code


def store(runner: Runner, job: WorkflowJob) -> int:
    """Write the contents of the cache: the vectors."""
    with work_tree.open_workspace(runner, job) as ws:
        size = pack_vectors(ws, caches.vectors_folder(job.temp))
    runner.log_line(f"The cache stores {size / 1e6:.1f} MB.")
    runner.set_output("packed", True)
    return OK

"""`mode: sync`: the index stands at the pin, verified; and what the cache gets of it afterwards."""

from __future__ import annotations

from vmrag_action import failures, findings, inputs, packages
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import __version__, markdown_text
from vmrag_link.errors import FAILED_CHECK, OK, VmragError, plural
from vmrag_link.git import plumbing
from vmrag_link.ops.index.portable import Provided, pack, provide
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace import Workspace

TITLE = "Knowledge is in sync"


def run(runner: Runner, job: WorkflowJob) -> int:
    with findings.opened(runner, job) as ws:
        if plumbing.blob(ws.places, f"HEAD:{PIN_NAME}") is None:
            runner.output("in-sync", True)
            runner.output("cache-hit", False)
            runner.output("findings", inputs.earlier_findings())
            return findings.nothing_to_do(runner, job, "sync", TITLE, f"the commit has no pin ({PIN_NAME}).")
        try:
            provided = provide(ws, packages.folder(job.temp))
        except VmragError as error:
            return _out_of_sync(runner, error)
        _report(runner, ws, provided)
    return 0


def _report(runner: Runner, ws: Workspace, provided: Provided) -> None:
    report, verified = provided.sync, provided.verified
    for sentence in provided.rejected:
        runner.annotate("notice", f"The cache was not used: {sentence} The index was built again.")
    runner.output("in-sync", True)
    runner.output("revision", verified.revision)
    runner.output("fingerprint", verified.fingerprint)
    runner.output("index-path", str(ws.views.path(verified.revision)))
    runner.output("cache-hit", provided.reused)
    runner.output("findings", inputs.earlier_findings())
    if report.chroma and report.chroma.path:
        runner.output("chroma-path", report.chroma.path)
    chunks = f"{plural(report.chunks.added, 'chunk')} added, {report.chunks.embedded} embedded"
    origin = "built with vectors from the cache" if provided.reused else f"built here ({chunks})"
    runner.say(f"Knowledge is at {verified.revision}, as pinned: {plural(verified.documents, 'document')}; {origin}.")
    rows = [
        ("Revision", verified.revision),
        ("Fingerprint", verified.fingerprint),
        ("Documents", verified.documents),
        ("Chunks", verified.chunks),
        ("Index", origin),
        ("vmrag", __version__),
    ]
    runner.summarise(markdown_text.facts(TITLE, rows))


def _out_of_sync(runner: Runner, error: VmragError) -> int:
    """Drift, or a pin that cannot be used, is a finding, as far as `fail-on` lets it be one. What
    could not be tried fails in any case.
    """
    runner.output("in-sync", False)
    runner.output("cache-hit", False)
    runner.output("findings", inputs.earlier_findings() + 1)
    rows = [(error.cause, error.message), ("What helps", error.hint)]
    of_pin = failures.is_of_the_pin(error)
    runner.summarise(
        markdown_text.facts("Knowledge is not in sync" if of_pin else "Knowledge could not be synced", rows)
    )
    if of_pin and error.exit_code == FAILED_CHECK and inputs.fail_on() == "never":
        failures.annotate(runner, error, "warning")
        return OK
    failures.annotate(runner, error)
    return error.exit_code


def store(runner: Runner, job: WorkflowJob) -> int:
    """Write what the cache is to hold: the vectors."""
    with findings.opened(runner, job) as ws:
        size = pack(ws, packages.folder(job.temp))
    runner.say(f"The cache gets {size / 1e6:.1f} MB.")
    runner.output("packed", True)
    return 0

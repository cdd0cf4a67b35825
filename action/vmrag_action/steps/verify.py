"""`mode: verify`: check that no commit of the event drops documents, and that the remote has the
pinned revisions.
"""

from __future__ import annotations

import msgspec

from vmrag_action import findings, inputs, work_tree
from vmrag_action.events import Comparison
from vmrag_action.findings import ActionFinding
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link.errors import plural
from vmrag_link.ops.case_files import cases
from vmrag_link.ops.verify.verify import find_landing_drop, verify_between
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen


def run(runner: Runner, job: WorkflowJob) -> int:
    with work_tree.open_workspace(runner, job) as ws:
        comparison = work_tree.compare_event(ws)
        head = inputs.read_branch_head() or comparison.head  # with the repair of an earlier step
        deepen.make_comparable(ws.places, comparison.base, head)
        report = verify_between(ws, comparison.base, head, base_name=comparison.base_name, fork=comparison.fork)
        all_findings = (*report.findings, *_find_dropped(ws, comparison))
    findings.keep_results(
        job, cases.list_verify_cases(msgspec.structs.replace(report, findings=all_findings), asked_remote=True)
    )
    reported = [ActionFinding.from_pin_finding(finding) for finding in all_findings]
    errors = sum(finding.severity == "error" for finding in reported)
    verdict = "nothing is lost" if report.commits else "nothing to compare"
    if errors:
        verdict = plural(errors, "error")
    summary = f"Checked {plural(report.commits, 'commit')}, {report.pins} with another pin: {verdict}."
    return findings.report_findings(runner, "Pins of the git commits", reported, summary)


def _find_dropped(ws: Workspace, comparison: Comparison) -> list[PinFinding]:
    """Return findings for documents that a just-merged pull request dropped."""
    if comparison.proposed is None:
        return []
    deepen.fetch_commits(ws.places, [comparison.proposed])
    finding = find_landing_drop(ws, comparison.head, comparison.proposed)
    return [finding] if finding else []

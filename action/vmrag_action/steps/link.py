"""`mode: link`: push the links of the pushed git commits.

A link records the revision that a git commit pins, in the remote of the knowledge base.
"""

from __future__ import annotations

import os

from vmrag_action import events, findings, inputs, work_tree
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import markdown_text
from vmrag_link.errors import OK, plural
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import Record
from vmrag_link.ops.links import links as linking
from vmrag_link.ops.push import publish_to
from vmrag_link.transport.publish import PublishRequest
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.remotes import destinations, fetch
from vmrag_link.workspace.remotes.fetch import fetch_from


class LinksPushed(Record, frozen=True):
    """The result of a push of links."""

    commits: int
    """Number of commits that introduce a pin."""
    changed: int
    """Number of links that are new or different on the remote."""


def push_links(ws: Workspace, tip: str, *, without: str | None = None, branch: str = "") -> LinksPushed:
    """Push the links of the commits that `tip` reaches and `without` does not.

    `branch` is the branch of the tip. The local knowledge base also has the links afterwards. Links
    of concurrent pushes are merged. Raises `RemoteEmpty`, `PinMissing`, `PinMalformed`,
    `PinRevisionMissing` and `RemoteError`.
    """
    pins = linking.list_new_pins(ws.places, tip, without=without)
    if not pins:
        return LinksPushed(0, 0)
    lazy_fetch.pinned_at(ws, tip)  # fetches the knowledge base if it is missing
    changed = set()
    for address in destinations.list_push_addresses(ws, None):
        fetch_from(ws, address)  # links without documents are not a knowledge base
        request = PublishRequest({}, links=linking.build_rows(ws, pins, branch=branch))
        publication = publish_to(ws, address, request)
        changed |= {link.git_commit for link in publication.links}
        fetch.import_links(ws, address)
    return LinksPushed(len(pins), len(changed))


TITLE = "Links of the code commits"


def run(runner: Runner, job: WorkflowJob) -> int:
    """Push links after a push to a branch.

    A user without write access cannot push, and a tag has no commits that no branch has.
    """
    runner.set_output("linked", 0)
    with work_tree.open_workspace(runner, job) as ws:
        comparison = work_tree.compare_event(ws)
        if not (comparison.trusted and job.ref.startswith(BRANCHES)):
            return findings.report_no_work(runner, job, "link", TITLE, "only what is pushed to a branch is linked.")
        if not events.is_own_checkout(os.environ, ws.places):
            return findings.report_no_work(runner, job, "link", TITLE, findings.OTHER_REPOSITORY)
        # A repair is pushed by a token that starts no job of its own.
        head = inputs.read_branch_head() or comparison.head
        deepen.make_comparable(ws.places, comparison.base, head)
        report = push_links(ws, head, without=comparison.base, branch=job.ref.removeprefix(BRANCHES))
    runner.set_output("linked", report.changed)
    sentence = f"{plural(report.commits, 'commit')} with another pin: {plural(report.changed, 'link')} added where the knowledge is."
    runner.log_line(sentence)
    runner.append_summary(markdown_text.format_facts(TITLE, [("Result", sentence)]))
    return OK

"""`mode: link`: which pushed commit belongs to which revision is on the knowledge's remote, too."""

from __future__ import annotations

import os

from vmrag_action import deepen, events, findings, inputs, work
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import markdown_text
from vmrag_link.errors import OK, plural
from vmrag_link.git.heads import BRANCHES
from vmrag_link.ops.publish.links import push_links

TITLE = "Links of the code commits"


def run(runner: Runner, job: WorkflowJob) -> int:
    """Whoever may not write has pushed nothing, and a tag has nothing that no branch has."""
    runner.output("linked", 0)
    with work.opened(runner, job) as ws:
        about = work.compared(ws)
        if not (about.trusted and job.ref.startswith(BRANCHES)):
            return findings.nothing_to_do(runner, job, "link", TITLE, "only what is pushed to a branch is linked.")
        if not events.is_own(os.environ, ws.places):
            return findings.nothing_to_do(runner, job, "link", TITLE, findings.OTHER_REPOSITORY)
        head = inputs.looked_at() or about.head  # a repair is pushed by a token that starts no job of its own
        deepen.make_comparable(ws.places, about.base, head)
        done = push_links(ws, head, without=about.base, branch=job.ref.removeprefix(BRANCHES))
    runner.output("linked", done.changed)
    said = f"{plural(done.commits, 'commit')} with another pin: {plural(done.changed, 'link')} added where the knowledge is."
    runner.say(said)
    runner.summarise(markdown_text.facts(TITLE, [("Result", said)]))
    return OK

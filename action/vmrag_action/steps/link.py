"""`mode: link`: which pushed commit belongs to which revision is on the knowledge's remote, too."""

from __future__ import annotations

from vmrag_action import deepen, work
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import markdown_text
from vmrag_link.errors import OK, plural
from vmrag_link.git.heads import BRANCHES
from vmrag_link.ops.publish.links import push_links


def run(runner: Runner, job: WorkflowJob) -> int:
    """Whoever may not write has pushed nothing, and a tag has nothing that no branch has."""
    with work.opened(runner, job) as ws:
        about = work.compared(ws)
        if not (about.trusted and job.ref.startswith(BRANCHES)):
            runner.say(f"mode: link has nothing to do for {about.event}: only what is pushed to a branch is linked.")
            runner.output("linked", 0)
            return OK
        deepen.make_comparable(ws.places, about.base, about.head)
        done = push_links(ws, about.head, without=about.base, branch=job.ref.removeprefix(BRANCHES))
    runner.output("linked", done.changed)
    said = f"{plural(done.commits, 'commit')} with another pin: {plural(done.changed, 'link')} added where the knowledge is."
    runner.say(said)
    runner.summarise(markdown_text.facts("Links of the code commits", [("Result", said)]))
    return OK

"""Write what the cache is to hold: the vectors."""

from __future__ import annotations

from vmrag_action import findings, packages
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link.ops.index.portable import pack


def run(runner: Runner, job: WorkflowJob) -> int:
    with findings.opened(runner, job) as ws:
        size = pack(ws, packages.folder(job.temp))
    runner.say(f"The cache gets {size / 1e6:.1f} MB.")
    runner.output("packed", True)
    return 0

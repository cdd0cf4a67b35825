"""Say that the cache service took nothing. The next run builds the index again, which is no
failure.
"""

from __future__ import annotations

from vmrag_action.runner import Runner, WorkflowJob


def run(runner: Runner, _job: WorkflowJob) -> int:
    runner.annotate("notice", "The cache was not saved; the next run builds the index again.")
    return 0

"""`python -m vmrag_action STEP`: run one step, and convert errors to annotations."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from vmrag_action import failures
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link.errors import BUG, FAILED, INTERRUPTED, UsageInvalid, VmragError, system_failure

STEPS = {
    **{
        step: f"{step}:run"
        for step in ("prepare", "repair", "update", "sync", "verify", "check", "link", "report", "comment")
    },
    "store": "sync:store",
}
"""The module and the function of each step."""


def main(argv: Sequence[str]) -> int:
    """Run a step, and return its exit code. The codes are those of `vmrag`."""
    runner = Runner()
    try:
        return _run_step(runner, argv)
    except VmragError as error:
        failures.annotate_error(runner, error)
        return error.exit_code
    except KeyboardInterrupt:
        runner.log_line("Interrupted.")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  the outermost boundary
        if failure := system_failure(error):
            failures.annotate_error(runner, failure)
            return FAILED
        return _report_bug(runner, error, argv)


def _run_step(runner: Runner, argv: Sequence[str]) -> int:
    if len(argv) != 1 or argv[0] not in STEPS:
        raise UsageInvalid(f"no such step; the steps are {', '.join(STEPS)}.", hint="run 'python -m vmrag_action sync'")
    job = WorkflowJob.from_environment()
    module, _, function = STEPS[argv[0]].partition(":")
    code: int = getattr(importlib.import_module(f"vmrag_action.steps.{module}"), function)(runner, job)
    return code


def _report_bug(runner: Runner, error: Exception, argv: Sequence[str]) -> int:
    """Report a bug, with the traceback in the log of the job, because files on a runner cannot be
    fetched.
    """
    import traceback

    with runner.group("traceback"):
        for line in "".join(traceback.format_exception(error)).splitlines():
            runner.log_line(line)
    runner.annotate("error", f"A bug in the step {' '.join(argv)}: {type(error).__name__}: {error}")
    return BUG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An error of a step, as an annotation: of the pin, at the pin; of the job's environment, at none.

A reviewer reads an annotation at `.dolt-version` as "this pin is wrong". Where nobody could look
(no network, no credentials, no history, an old program, a full disk), nothing of the kind is known.
"""

from __future__ import annotations

import os

from vmrag_action import payload
from vmrag_action.runner import PIN, Level, Runner
from vmrag_link.errors import (
    USAGE,
    KnowledgeRefused,
    NotInitialized,
    PinMalformed,
    PinMissing,
    PinRevisionMissing,
    RemoteNotTrusted,
    RevisionUnpinned,
    VmragError,
)

_OF_THE_PIN = frozenset(
    each.code
    for each in (
        KnowledgeRefused,
        NotInitialized,
        PinMalformed,
        PinMissing,
        PinRevisionMissing,
        RemoteNotTrusted,
        RevisionUnpinned,
    )
)
"""What is said of a pin after somebody could look."""

ENVIRONMENT = "The job's environment: "
NOT_PIN_FAILURES = "This says nothing about the pin."


_IN_A_FORK = (
    "This repository is a fork, and syncing a fork brings no knowledge. In a clone of it: git remote add upstream URL && "
    "vmrag sync && vmrag push origin   (or leave forks out, in the job: if: ${{ !github.event.repository.fork }})"
)


def is_pin_failure(error: VmragError) -> bool:
    """Whether the pin is at fault, or what it names. An error of a pin may have another cause."""
    return error.cause in _OF_THE_PIN


def annotate_error(runner: Runner, error: VmragError, level: Level = "error") -> None:
    """Show an error at the pin, if that is at fault; else as a mistake of the workflow, or as a
    problem of the environment.
    """
    if is_pin_failure(error):
        runner.annotate(level, error.message, hint=_hint(error), title=error.cause, at=PIN)
    elif error.exit_code == USAGE and error.cause == error.code:
        runner.annotate(level, error.message, hint=error.hint, title=error.code)
    else:
        hint = "\n".join(each for each in (error.hint, NOT_PIN_FAILURES) if each)
        runner.annotate(level, error.message, hint=hint, title=ENVIRONMENT + error.cause)


def _hint(error: VmragError) -> str:
    missing = error.cause == PinRevisionMissing.code
    return _IN_A_FORK if missing and payload.is_fork_job(os.environ) else error.hint

"""Show the error of a step as an annotation: at the pin, or at the job.

Reviewers read an annotation at `.dolt-version` as "this pin is wrong". That is unknown if vmrag
could not check the pin: without the network, credentials or history, with an old program, or on a
full disk.
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

_PIN_FAILURES = frozenset(
    error_class.code
    for error_class in (
        KnowledgeRefused,
        NotInitialized,
        PinMalformed,
        PinMissing,
        PinRevisionMissing,
        RemoteNotTrusted,
        RevisionUnpinned,
    )
)
"""Errors that concern the pin, after it could be checked."""

ENVIRONMENT = "The job's environment: "
PIN_NOT_CHECKED = "The pin was not checked."

_IN_A_FORK = (
    "run 'git remote add upstream URL && vmrag sync && vmrag push origin' in a clone of this fork, "
    "or set 'if: ${{ !github.event.repository.fork }}' for the job to skip forks"
)


def is_pin_failure(error: VmragError) -> bool:
    """Return whether the pin, or its revision, causes the error.

    An error of a pin can have another cause.
    """
    return error.cause in _PIN_FAILURES


def annotate_error(runner: Runner, error: VmragError, level: Level = "error") -> None:
    """Show an error at the pin if the pin causes it, else as a mistake in the workflow or as a
    problem of the environment.
    """
    if is_pin_failure(error):
        is_missing = error.cause == PinRevisionMissing.code
        hint = _IN_A_FORK if is_missing and payload.is_fork_job(os.environ) else error.hint
        runner.annotate(level, error.message, hint=hint, title=error.cause, at=PIN)
    elif error.exit_code == USAGE and error.cause == error.code:
        runner.annotate(level, error.message, hint=error.hint, title=error.code)
    else:
        hint = "\n".join(part for part in (error.hint, PIN_NOT_CHECKED) if part)
        runner.annotate(level, error.message, hint=hint, title=ENVIRONMENT + error.cause)

"""An error of a step, as an annotation: of the pin, at the pin; of the job's environment, at none.

A reviewer reads an annotation at `.dolt-version` as "this pin is wrong". Where nobody could look
(no network, no credentials, no history, an old program, a full disk), nothing of the kind is known.
"""

from __future__ import annotations

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
NOT_THE_PIN = "This says nothing about the pin."


def is_of_the_pin(error: VmragError) -> bool:
    """Whether the pin is at fault, or what it names. An error of a pin may have another cause."""
    return error.cause in _OF_THE_PIN


def annotate(runner: Runner, error: VmragError, level: Level = "error") -> None:
    """Show an error at the pin, if that is at fault; else as a mistake of the workflow, or as a
    problem of the environment.
    """
    if is_of_the_pin(error):
        runner.annotate(level, error.message, hint=error.hint, title=error.cause, at=PIN)
    elif error.exit_code == USAGE and error.cause == error.code:
        runner.annotate(level, error.message, hint=error.hint, title=error.code)
    else:
        hint = "\n".join(each for each in (error.hint, NOT_THE_PIN) if each)
        runner.annotate(level, error.message, hint=hint, title=ENVIRONMENT + error.cause)

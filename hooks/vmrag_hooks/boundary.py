"""The outermost boundary of the hooks: each failure becomes one line, and git continues.

Every hook runs its work with `run_guarded`, prints with `print_line`, and gives operations
`HookMessages` as their `Progress`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

from vmrag_link import env, terminal_text
from vmrag_link.engines.own_branches import ASIDE_PREFIX
from vmrag_link.errors import VmragError, system_failure
from vmrag_link.progress import QUIET, Task

ANSWER_SECONDS = 2.0
"""Seconds to wait for each answer of a Dolt server, which can hang."""


class SyncTooLong(Exception):
    """A sync would take longer than git should wait."""


class HookMessages(list[str]):
    """A `Progress` that keeps the messages of operations, and shows no bars."""

    limits: Mapping[str, int] = MappingProxyType({})
    """Maximum amount of work by kind. More work raises `SyncTooLong`."""

    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        if total > self.limits.get(description, total):
            raise SyncTooLong
        return QUIET.task(description, total)

    note = list.append

    def select_messages(self) -> list[str]:
        """Return all messages about stashed documents, or else the first message, because a line
        is short.
        """
        return [message for message in self if ASIDE_PREFIX in message] or self[:1]


def print_line(line: str) -> None:
    """Print one line to the terminal, with untrusted names escaped. Hooks print everything with
    this function.
    """
    ours = "\x1b[36mvmrag:\x1b[0m" if sys.stderr.isatty() and env.allows_colour() else "vmrag:"
    escaped = terminal_text.escape_for_log(terminal_text.escape_line(" ".join(line.split())))
    sys.stderr.write(f"{ours} {escaped}\n")


def run_guarded(action: Callable[[], None], *, say: Callable[[str], None] = print_line) -> bool:
    """Call `action`, and return whether it succeeded.

    Any exception becomes one line, because a bug of vmrag must not look like a failure of git.
    """
    try:
        action()
    except VmragError as error:
        say(error.sentence)
    except KeyboardInterrupt:
        say("interrupted; run 'vmrag sync' to continue")
    except Exception as error:  # noqa: BLE001  the reason is in the docstring
        failure = system_failure(error)
        say(failure.sentence if failure else _report_bug(error))
    else:
        return True
    return False


def _report_bug(error: Exception) -> str:
    from vmrag_link.ops import buglog

    return f"a bug: {type(error).__name__}. {buglog.suggest_report(buglog.write_log(error, sys.argv))}"

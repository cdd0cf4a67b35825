"""What `verify` and `check` found, as annotations, a table, a number and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vmrag_action import inputs
from vmrag_action.runner import PIN, Level, Runner, SourceLine
from vmrag_link import markdown_text
from vmrag_link.errors import FAILED_CHECK, OK
from vmrag_link.ops.checks.verify_commits import Level as Severity


class ActionFinding(NamedTuple):
    """`where`: the commit or the query that it is about; `place`: what is annotated."""

    severity: Severity
    code: str
    where: str
    message: str
    hint: str
    place: SourceLine = PIN


def report(runner: Runner, title: str, found: Sequence[ActionFinding], verdict: str) -> int:
    """Returns the exit code: 1 if one of them is what `fail-on` names, or worse.

    The output `findings` counts those of earlier steps, too.
    """
    fail_on = inputs.fail_on()
    fatal = {"error": ("error",), "information": ("error", "information"), "never": ()}[fail_on]
    for each in sorted(found, key=lambda one: one.severity != "error"):  # the runner shows a limited number
        level: Level = "error" if each.severity in fatal else "warning" if each.severity == "error" else "notice"
        runner.annotate(level, each.message, hint=each.hint, title=each.code, at=each.place)
    runner.say(verdict)
    runner.output("findings", len(found) + inputs.earlier_findings())
    rows = [(each.severity, each.code, each.where, each.message, each.hint) for each in found]
    facts = [("Result", verdict), ("Findings", len(found))]
    text = markdown_text.facts(title, facts)
    if rows:
        text += markdown_text.table("Findings", ("", "Code", "Where", "What", "What helps"), rows, limit=900_000)
    runner.summarise(text)
    return FAILED_CHECK if any(each.severity in fatal for each in found) else OK

"""What `vmrag verify` and `vmrag check` looked at, as cases that are called the same in every run:
for programs that compare one run with another. Texts in them are strangers'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from vmrag_link.golden.queries import UPDATE, Miss
from vmrag_link.models import Record
from vmrag_link.ops.check.check_queries import CheckedQuery, GoldenReport
from vmrag_link.ops.verify.verify import VerifyReport
from vmrag_link.ops.verify.verify_commits import Level, PinFinding
from vmrag_link.paths import PIN_NAME

PIN_RULES: dict[str, str] = {
    "KNOWLEDGE_DROPPED": "no commit drops knowledge",
    "PIN_REMOVED": "no commit removes the pin",
    "PIN_MALFORMED": "every pin can be read",
    "PIN_REVISION_MISSING": "every pinned revision is in the knowledge base",
    "NOT_ON_REMOTE": "the remote has every pinned revision",
    "NOT_COMPARABLE": "the history is here that decides",
    "MOVED_BACK": "no pin moves back",
    "LOSS_ACCEPTED": "no revision gives up another one",
}
QUERY_MISSED, RANKINGS_OUTDATED, THRESHOLD_MISSED = "QUERY_MISSED", "RANKINGS_OUTDATED", "THRESHOLD_MISSED"
QUERY_RULES = {
    QUERY_MISSED: "golden queries are answered as expected",
    RANKINGS_OUTDATED: "recorded rankings can be compared",
    THRESHOLD_MISSED: "the answers as a whole are as good as they have to be",
}


class CaseProblem(Record, frozen=True):
    """`key`: what makes it the same problem in the next run, in which lines, scores and the last
    commit may be others. `notes`: what a person reads below the message.
    """

    rule: str
    level: Level
    message: str
    key: tuple[str, ...]
    notes: tuple[str, ...] = ()


class CheckCase(Record, frozen=True):
    """`file`, `line`: where its problems are shown. `skipped`: why nobody could look; empty if
    somebody did.
    """

    name: str
    file: str
    line: int
    problems: tuple[CaseProblem, ...] = ()
    skipped: str = ""

    @property
    def failed(self) -> bool:
        return any(problem.level == "error" for problem in self.problems)


class CaseList(Record, frozen=True):
    """`rules`: what each kind of problem is about, as what holds where there is none."""

    command: Literal["check", "verify"]
    rules: Mapping[str, str]
    cases: tuple[CheckCase, ...]


def list_verify_cases(report: VerifyReport, *, asked_remote: bool) -> CaseList:
    """A case for each rule: commits have other names in every run."""
    by_rule: dict[str, list[PinFinding]] = {rule: [] for rule in PIN_RULES}
    for finding in report.findings:
        by_rule[finding.code].append(finding)
    unknown: dict[str, str] = {} if asked_remote else {"NOT_ON_REMOTE": "no remote was asked: --remote"}
    if by_rule["NOT_COMPARABLE"]:
        unknown["KNOWLEDGE_DROPPED"] = "the history is not here"
    cases = (
        CheckCase(
            f"{PIN_RULES[rule]} ({rule})",
            PIN_NAME,
            1,
            tuple(map(_of_finding, found)),
            "" if found else unknown.get(rule, ""),
        )
        for rule, found in by_rule.items()
    )
    return CaseList("verify", PIN_RULES, tuple(cases))


def _of_finding(found: PinFinding) -> CaseProblem:
    mended = (f"Mended by {found.mended_by[:12]}.",) if found.mended_by else ()
    notes = (*mended, *([found.hint] if found.hint else []))
    return CaseProblem(found.code, found.level, found.message, (found.message,), notes)


def list_check_cases(report: GoldenReport) -> CaseList:
    return list_query_cases(_of_check(report))


def list_query_cases(cases: Iterable[CheckCase]) -> CaseList:
    return CaseList("check", QUERY_RULES, tuple(cases))


def _of_check(report: GoldenReport) -> Iterator[CheckCase]:
    level: Level = "information" if report.thresholds else "error"  # these decide then
    for query in report.queries:
        missed = tuple(_of_miss(query, miss, level) for miss in query.misses)
        yield CheckCase(query.name, report.file, query.line, missed)
    for limit in report.thresholds:
        below = CaseProblem(THRESHOLD_MISSED, "error", limit.sentence, (limit.name,))
        yield CheckCase(f"threshold: {limit.name}", report.file, 1, () if limit.holds else (below,))
    if any(query.ranking is not None for query in report.queries):
        outdated = CaseProblem(RANKINGS_OUTDATED, "error", report.outdated, (), (UPDATE,))
        yield CheckCase(QUERY_RULES[RANKINGS_OUTDATED], report.file, 1, (outdated,) if report.outdated else ())


def _of_miss(query: CheckedQuery, miss: Miss, level: Level) -> CaseProblem:
    key = (query.name, miss.kind, miss.document or "")
    return CaseProblem(QUERY_MISSED, level, f"{miss.kind}: {miss.message}", key, tuple(miss.sides))

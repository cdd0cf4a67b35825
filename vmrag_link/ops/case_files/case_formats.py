"""Cases in the formats that CI services read: JUnit's XML, SARIF 2.1.0, GitLab's Code Quality and
TAP 14.

Strangers' texts are in them: each is one line, without characters that XML cannot hold or that
nobody would see. Equal cases give equal texts: none has a time or a path of this machine.
"""

from __future__ import annotations

import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping

from vmrag_link import __version__
from vmrag_link.ops.case_files.cases import CaseList, CaseProblem, CheckCase
from vmrag_link.terminal_text import escape_line

_NO_XML = str.maketrans({"\ufffe": "\\ufffe", "\uffff": "\\uffff"})


def _text(value: str) -> str:
    return escape_line(value).translate(_NO_XML)


def _lines(problem: CaseProblem, case: CheckCase) -> list[str]:
    return [*map(_text, (problem.message, *problem.notes)), f"at {case.file}:{case.line}"]


def _fingerprint(problem: CaseProblem) -> str:
    return hashlib.sha256(json.dumps([problem.rule, *problem.key]).encode()).hexdigest()


def _problems(found: CaseList) -> Iterator[tuple[CheckCase, CaseProblem]]:
    return ((case, problem) for case in found.cases for problem in case.problems)


def format_junit(found: CaseList) -> str:
    """A suite with a test for each case. Information is what a passed test printed."""
    counts = {
        "tests": len(found.cases),
        "failures": sum(case.failed for case in found.cases),
        "errors": 0,
        "skipped": sum(bool(case.skipped) for case in found.cases),
    }
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root, "testsuite", {"name": f"vmrag {found.command}", **{name: str(count) for name, count in counts.items()}}
    )
    for case in found.cases:
        test = ET.SubElement(suite, "testcase", {"classname": f"vmrag.{found.command}", "name": _text(case.name)})
        if case.skipped:
            ET.SubElement(test, "skipped", {"message": _text(case.skipped)})
        if case.problems:
            test.append(_outcome(case))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _outcome(case: CheckCase) -> ET.Element:
    worst = min(case.problems, key=lambda each: each.level != "error")
    about = {"type": worst.rule, "message": _text(worst.message)}
    outcome = ET.Element("failure", about) if case.failed else ET.Element("system-out")
    outcome.text = "\n".join(line for problem in case.problems for line in _lines(problem, case))
    return outcome


def format_sarif(found: CaseList) -> str:
    """A run with a result for each problem. GitHub knows one again by `primaryLocationLineHash`,
    which is ours, because many problems are at the one line of a pin.
    """
    names = [*found.rules]
    driver = {
        "name": "vmrag",
        "version": __version__,
        "rules": [{"id": name, "shortDescription": {"text": about}} for name, about in found.rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"vmrag-{found.command}/"},
        "results": [_result(case, problem, names.index(problem.rule)) for case, problem in _problems(found)],
    }
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    return _json({"$schema": schema, "version": "2.1.0", "runs": [run]})


def _result(case: CheckCase, problem: CaseProblem, index: int) -> dict[str, object]:
    place = {"artifactLocation": {"uri": case.file, "uriBaseId": "%SRCROOT%"}, "region": {"startLine": case.line}}
    return {
        "ruleId": problem.rule,
        "ruleIndex": index,
        "level": "error" if problem.level == "error" else "note",
        "message": {"text": _message(_described(case, problem))},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"primaryLocationLineHash": _fingerprint(problem)},
    }


def _message(text: str) -> str:
    """Without what would be a placeholder or a link there (3.11.5 and 3.11.6 of the standard)."""
    escaped = re.sub(r"([\\\[\]])", r"\\\1", text) if "](" in text else text
    return re.sub(r"\{(\d+)\}", r"{{\1}}", escaped)


def _described(case: CheckCase, problem: CaseProblem) -> str:
    return "\n".join(map(_text, (f"{case.name}: {problem.message}", *problem.notes)))


def format_code_quality(found: CaseList) -> str:
    """What GitLab shows in a merge request: a list with an entry for each problem."""
    return _json(
        [
            {
                "description": _described(case, problem).replace("\n", " · "),
                "check_name": f"vmrag-{found.command}/{problem.rule}",
                "fingerprint": _fingerprint(problem),
                "severity": "critical" if problem.level == "error" else "info",
                "location": {"path": case.file, "lines": {"begin": case.line}},
            }
            for case, problem in _problems(found)
        ]
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def format_tap(found: CaseList) -> str:
    """A test point for each case, with its problems as YAML."""
    lines = ["TAP version 14", f"1..{len(found.cases)}"]
    for number, case in enumerate(found.cases, start=1):
        skip = f" # SKIP {_tap_text(case.skipped)}" if case.skipped else ""
        lines.append(f"{'not ok' if case.failed else 'ok'} {number} - {_tap_text(case.name)}{skip}")
        if case.problems:
            lines += ["  ---", f"  at: {_scalar(f'{case.file}:{case.line}')}", "  problems:"]
            lines += [line for problem in case.problems for line in _tap_problem(problem)]
            lines.append("  ...")
    return "\n".join(lines) + "\n"


def _tap_text(value: str) -> str:
    return _text(value).replace("\\", "\\\\").replace("#", "\\#")


def _tap_problem(problem: CaseProblem) -> Iterator[str]:
    yield f"    - rule: {problem.rule}"
    yield f"      severity: {'fail' if problem.level == 'error' else 'comment'}"
    yield f"      message: {_scalar(problem.message)}"
    if problem.notes:
        yield "      notes:"
        yield from (f"        - {_scalar(note)}" for note in problem.notes)


def _scalar(value: str) -> str:
    """In double quotes JSON is YAML, if no surrogates are escaped."""
    return json.dumps(_text(value), ensure_ascii=False)


FORMATS: Mapping[str, Callable[[CaseList], str]] = {
    "junit": format_junit,
    "sarif": format_sarif,
    "code_quality": format_code_quality,
    "tap": format_tap,
}

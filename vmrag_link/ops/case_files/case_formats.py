"""Write cases in the formats that CI services read: JUnit XML, SARIF 2.1.0 and GitLab Code Quality.

The cases contain untrusted texts. Each text is written as one line, without characters that are
invisible or that XML cannot contain. Equal cases result in equal files, because the files contain
no time and no path of this machine.
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

_XML_ESCAPES = str.maketrans({"\ufffe": "\\ufffe", "\uffff": "\\uffff"})


def format_junit(case_list: CaseList) -> str:
    """Format a suite with a test for each case. Findings of level "information" become the output
    of a passed test.
    """
    counts = {
        "tests": len(case_list.cases),
        "failures": sum(case.failed for case in case_list.cases),
        "errors": 0,
        "skipped": sum(bool(case.skipped) for case in case_list.cases),
    }
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        {"name": f"vmrag {case_list.command}", **{name: str(count) for name, count in counts.items()}},
    )
    for case in case_list.cases:
        test = ET.SubElement(
            suite, "testcase", {"classname": f"vmrag.{case_list.command}", "name": _escape_line(case.name)}
        )
        if case.skipped:
            ET.SubElement(test, "skipped", {"message": _escape_line(case.skipped)})
        if case.problems:
            test.append(_build_outcome(case))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def format_sarif(case_list: CaseList) -> str:
    """Format a run with a result for each problem.

    GitHub recognizes a result by `primaryLocationLineHash`. It is computed here, because many
    problems are at the only line of a pin.
    """
    rule_names = list(case_list.rules)
    driver = {
        "name": "vmrag",
        "version": __version__,
        "rules": [{"id": name, "shortDescription": {"text": about}} for name, about in case_list.rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"vmrag-{case_list.command}/"},
        "results": [
            _build_result(case, problem, rule_names.index(problem.rule)) for case, problem in _list_problems(case_list)
        ],
    }
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    return _dump_json({"$schema": schema, "version": "2.1.0", "runs": [run]})


def format_code_quality(case_list: CaseList) -> str:
    """Format the list that GitLab displays in a merge request, with an entry for each problem."""
    return _dump_json(
        [
            {
                "description": _describe_problem(case, problem).replace("\n", " · "),
                "check_name": f"vmrag-{case_list.command}/{problem.rule}",
                "fingerprint": _hash_problem(problem),
                "severity": "critical" if problem.level == "error" else "info",
                "location": {"path": case.file, "lines": {"begin": case.line}},
            }
            for case, problem in _list_problems(case_list)
        ]
    )


FORMATS: Mapping[str, Callable[[CaseList], str]] = {
    "junit": format_junit,
    "sarif": format_sarif,
    "code_quality": format_code_quality,
}


def _build_outcome(case: CheckCase) -> ET.Element:
    worst = min(case.problems, key=lambda problem: problem.level != "error")
    about = {"type": worst.rule, "message": _escape_line(worst.message)}
    outcome = ET.Element("failure", about) if case.failed else ET.Element("system-out")
    outcome.text = "\n".join(line for problem in case.problems for line in _list_lines(problem, case))
    return outcome


def _build_result(case: CheckCase, problem: CaseProblem, index: int) -> dict[str, object]:
    place = {"artifactLocation": {"uri": case.file, "uriBaseId": "%SRCROOT%"}, "region": {"startLine": case.line}}
    return {
        "ruleId": problem.rule,
        "ruleIndex": index,
        "level": "error" if problem.level == "error" else "note",
        "message": {"text": _escape_placeholders(_describe_problem(case, problem))},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"primaryLocationLineHash": _hash_problem(problem)},
    }


def _escape_placeholders(text: str) -> str:
    """Escape what SARIF would take for a placeholder or a link (3.11.5 and 3.11.6 of
    the standard).
    """
    escaped = re.sub(r"([\\\[\]])", r"\\\1", text) if "](" in text else text
    return re.sub(r"\{(\d+)\}", r"{{\1}}", escaped)


def _describe_problem(case: CheckCase, problem: CaseProblem) -> str:
    return "\n".join(map(_escape_line, (f"{case.name}: {problem.message}", *problem.notes)))


def _escape_line(value: str) -> str:
    return escape_line(value).translate(_XML_ESCAPES)


def _list_lines(problem: CaseProblem, case: CheckCase) -> list[str]:
    """Return the lines of a problem for JUnit."""
    return [*map(_escape_line, (problem.message, *problem.notes)), f"at {case.file}:{case.line}"]


def _hash_problem(problem: CaseProblem) -> str:
    """Return the name by which a service recognizes the problem in the next run."""
    return hashlib.sha256(json.dumps([problem.rule, *problem.key]).encode()).hexdigest()


def _list_problems(case_list: CaseList) -> Iterator[tuple[CheckCase, CaseProblem]]:
    return ((case, problem) for case in case_list.cases for problem in case.problems)


def _dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"

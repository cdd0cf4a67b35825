"""Parsing the outputs of real tools, and the weight of evidence."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from vmrag_link.toolsets.learning import evidence_records, junit, tool_output
from vmrag_link.toolsets.learning.junit import OutputUnreadable, RunCounts

DATA = Path(__file__).parents[2] / "data" / "evidence"


def run(name: str) -> dict[str, junit.Status]:
    return junit.parse_report((DATA / name).read_bytes())


def test_real_pytest_run_is_parsed_and_compared_with_previous_run():
    before, after = run("pytest-before.xml"), run("pytest-after.xml")
    assert before == {
        "test_shapes.test_square": "pass",
        "test_shapes.test_circle": "fail",
        "test_shapes.test_halve[0]": "pass",
        "test_shapes.test_halve[2]": "pass",
        "test_shapes.test_database": "error",
        "test_shapes.test_clean_up": "error",  # it failed, and could not clean up
        "test_shapes.test_triangle": "skip",
        "test_shapes.TestText.test_square": "pass",
    }
    assert junit.count_results(before) == RunCounts(8, 4, 1, 2, 1)
    compared = junit.compare_runs(before, after)
    assert [transition.test_id for transition in compared.fixed] == [
        "test_shapes.test_circle",
        "test_shapes.test_database",
    ]
    assert compared.regressions == ["test_shapes.test_halve[0]"]


@pytest.mark.parametrize(
    ("xml", "outcomes"),
    [
        ('<testsuite><testcase classname="a" name="b"/></testsuite>', {"a.b": "pass"}),
        ("<testsuites><testsuite><testcase name='b'><skipped/></testcase></testsuite></testsuites>", {"b": "skip"}),
        ("<testsuite><testcase name='b'><failure/><skipped/></testcase></testsuite>", {"b": "fail"}),
        ("<testsuite><testcase name='b'><system-out><failure/></system-out></testcase></testsuite>", {"b": "pass"}),
        ("<testsuite><testcase name='b'/><testcase name='b'><error/></testcase></testsuite>", {"b": "error"}),
        ("<testsuite><failure/></testsuite>", {}),
        ("<testsuite>" + "<x>" * 100_000 + "</x>" * 100_000 + "</testsuite>", {}),
    ],
)
def test_further_runners_write_other_files(xml, outcomes):
    assert junit.parse_report(xml.encode()) == outcomes


LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>'
OUTSIDE = (
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite><testcase name="x">&a;</testcase></testsuite>'
)


@pytest.mark.parametrize(
    "xml", ["", "no xml", "<html/>", "<testsuite>", LAUGHS, OUTSIDE, "<?xml encoding='x-no'?><a/>"]
)
def test_runs_reject_invalid_junit_xml_and_entities(xml):
    with pytest.raises(OutputUnreadable):
        junit.parse_report(xml.encode())


def test_run_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(junit, "MAX_TESTS", 10)
    with pytest.raises(OutputUnreadable):
        junit.parse_report(b"<testsuite>" + b"".join(b"<testcase name='%d'/>" % n for n in range(11)) + b"</testsuite>")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ruff-before.txt", 9),
        ("ruff-before-concise.txt", 9),
        ("ruff-before.json", 9),
        ("ruff-after.txt", 0),
        ("ruff-after-concise.txt", 0),
        ("ruff-after.json", 0),
        ("flake8-before.txt", 3),
        ("flake8-after.txt", 0),
        ("pylint-before.txt", 8),
        ("pylint-before.json", 7),  # without its extension about complexity
        ("pylint-after.txt", 0),
        ("pylint-after.json", 0),
        ("mypy-before.txt", 1),
        ("mypy-before.json", 1),
        ("mypy-after.txt", 0),
        ("mypy-after.json", 0),
        ("coverage-before.txt", 80),
        ("coverage-before.json", 80.43),
        ("coverage-before.xml", 80.43),
        ("coverage-after.txt", 97),
    ],
)
def test_outputs_of_real_tools_are_measured(name, value):
    assert tool_output.parse_measure(name.partition("-")[0], "error_count", (DATA / name).read_text()) == (value, True)


@pytest.mark.parametrize(("tool", "value"), [("ruff", 1), ("flake8", 1), ("pylint", 1)])
def test_only_messages_about_complexity_count_for_that_metric(tool, value):
    assert tool_output.parse_measure(tool, "complexity", (DATA / f"{tool}-before.txt").read_text()).value == value


def test_unrecognized_output_is_rejected_or_counted_by_lines():
    assert tool_output.parse_measure("vulture", "error_count", "a\n\nb\n") == (2, False)
    for tool in ("ruff", "flake8", "pylint", "mypy", "coverage"):
        for text in ("# Guide\n\nSome words.\n", "[1]", '{"a": 1}', "[{}]", "{broken"):
            with pytest.raises(OutputUnreadable):
                tool_output.parse_measure(tool, "error_count", text)
    for text in ("<html/>", "<coverage lines-valid='x'/>", LAUGHS, "TOTAL  9  0  900%\n"):
        with pytest.raises(OutputUnreadable):
            tool_output.parse_measure("coverage", "coverage", text)


def test_outputs_that_were_made_to_keep_a_reader_busy_do_not():
    for text in ("TOTAL " + "1" * 300_000, "TOTAL" + " 1" * 150_000, "\n" * 300_000, "a" + ":1" * 150_000):
        for tool in ("ruff", "flake8", "pylint", "mypy", "coverage"):
            with contextlib.suppress(OutputUnreadable):
                tool_output.parse_measure(tool, "error_count", text)


def test_evidence_scores_match_the_documented_weights():
    assert evidence_records.combine_weights([], 0) == 0
    assert evidence_records.combine_weights([evidence_records.FIXED], 0) == evidence_records.THRESHOLD == 0.7, (
        "one fixed test is just enough"
    )
    assert evidence_records.combine_weights([0.7, 0.7], 1) == 0.637
    assert evidence_records.combine_weights([0.7] * 1000, 0) == 1
    assert evidence_records.weigh_transition("error", "pass") == 0.7
    assert [
        evidence_records.weigh_transition(*outcomes)
        for outcomes in (("pass", "pass"), ("skip", "pass"), ("fail", "error"))
    ] == [0, 0, 0]
    assert [
        evidence_records.weigh_resolution("x", verified=True),
        evidence_records.weigh_resolution("x", verified=False),
    ] == [0.6, 0.2]
    assert evidence_records.weigh_resolution(" ", verified=True) == 0
    assert evidence_records.compute_improvement(10, 9, points=False) == 10
    assert evidence_records.compute_improvement(10, 20, points=False) == -100
    assert [evidence_records.compute_improvement(0, after, points=False) for after in (0, 1)] == [0, -100]
    assert evidence_records.compute_improvement(80, 75, points=True) == -5, "falling coverage is no improvement"
    assert [evidence_records.weigh_check(change, points=False) for change in (None, -5, 0, 10, 20, 90)] == [
        0,
        0,
        0,
        0.2,
        0.4,
        0.4,
    ]
    assert evidence_records.weigh_check(5, points=True) == 0.2

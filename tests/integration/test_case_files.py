"""Files of `vmrag check` and `vmrag verify` for CI services, compared with the formats of the
services.

The schemas are written by hand: they contain the part of the published schemas that vmrag writes,
with the names of the originals next to them.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

import jsonschema
import pytest
from lxml import etree

from tests.support import code_history, terminal
from tests.support.terminal import Project
from vmrag_link.ops.case_files.case_formats import FORMATS
from vmrag_link.ops.case_files.cases import QUERY_MISSED, QUERY_RULES, CaseList, CaseProblem, CheckCase

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project
built, forked_once, forked = code_history.built, code_history.forked_once, code_history.forked
world = code_history.world

FILE = ".vmrag/queries.yaml"
HASH = "^[0-9a-f]{64}$"


def closed(**properties: Any) -> dict[str, Any]:
    """An object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def many(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT, COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}
SARIF = closed(  # docs.oasis-open.org: sarif-schema-2.1.0.json
    **{"$schema": {"type": "string", "pattern": r"/sarif-schema-2\.1\.0\.json$"}},
    version={"const": "2.1.0"},
    runs=many(
        closed(
            tool=closed(
                driver=closed(name=TEXT, version=TEXT, rules=many(closed(id=TEXT, shortDescription=closed(text=TEXT))))
            ),
            automationDetails=closed(id={"type": "string", "pattern": "^vmrag-(check|verify)/$"}),
            results=many(
                closed(
                    ruleId=TEXT,
                    ruleIndex={"type": "integer", "minimum": 0},
                    level={"enum": ["none", "note", "warning", "error"]},
                    message=closed(text=TEXT),
                    locations=many(
                        closed(
                            physicalLocation=closed(
                                artifactLocation=closed(uri=TEXT, uriBaseId=TEXT), region=closed(startLine=COUNT)
                            )
                        )
                    ),
                    partialFingerprints=closed(primaryLocationLineHash={"type": "string", "pattern": HASH}),
                )
            ),
        )
    ),
)
CODE_QUALITY = many(  # docs.gitlab.com: ci/testing/code_quality
    closed(
        description=TEXT,
        check_name=TEXT,
        fingerprint={"type": "string", "pattern": HASH},
        severity={"enum": ["info", "minor", "major", "critical", "blocker"]},
        location=closed(path={"type": "string", "pattern": "^[^/]"}, lines=closed(begin=COUNT)),
    )
)
# jenkinsci/xunit-plugin: junit-10.xsd
JUNIT = """\
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:complexType name="outcome" mixed="true">
    <xs:attribute name="type"/><xs:attribute name="message"/>
  </xs:complexType>
  <xs:element name="testsuites"><xs:complexType><xs:sequence>
    <xs:element name="testsuite"><xs:complexType>
      <xs:sequence><xs:element name="testcase" minOccurs="0" maxOccurs="unbounded"><xs:complexType>
        <xs:choice minOccurs="0" maxOccurs="unbounded">
          <xs:element name="skipped" type="outcome"/>
          <xs:element name="failure" type="outcome"/>
          <xs:element name="system-out" type="xs:string"/>
        </xs:choice>
        <xs:attribute name="name" use="required"/><xs:attribute name="classname"/>
      </xs:complexType></xs:element></xs:sequence>
      <xs:attribute name="name" use="required"/><xs:attribute name="tests" use="required"/>
      <xs:attribute name="failures" use="required"/><xs:attribute name="errors" use="required"/>
      <xs:attribute name="skipped"/>
    </xs:complexType></xs:element>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>
"""


def outcomes_of(junit: str) -> dict[str, ET.Element | None]:
    """Return the outcome of each test by name; None if it passed without output."""
    root = etree.fromstring(junit.encode())
    etree.XMLSchema(etree.fromstring(JUNIT)).assertValid(root)
    suite = root[0]
    assert int(suite.get("tests")) == len(suite)
    assert int(suite.get("failures")) == len(suite.findall(".//failure"))
    assert int(suite.get("skipped")) == len(suite.findall(".//skipped"))
    return {test.get("name"): next(iter(test), None) for test in suite}


def results_of(sarif: str) -> list[dict[str, Any]]:
    document = json.loads(sarif)
    jsonschema.validate(document, SARIF)
    run = document["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [result["ruleId"] for result in run["results"]]
    return list(run["results"])


def entries_of(code_quality: str) -> list[dict[str, Any]]:
    entries = json.loads(code_quality)
    jsonschema.validate(entries, CODE_QUALITY)
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)
    return list(entries)


@pytest.fixture
def golden(project: Project) -> Project:
    """One query that is answered as expected, and two that are not."""
    project.write(
        FILE,
        "queries:\n"
        "  - {query: certificates, mode: keyword, first: handbook/deep/tls.txt}\n"
        "  - {query: install the program, id: install, k: 1, expect: handbook/gone.md}\n"
        "  - {query: 'a ]]> #1 {0} [x](http://y)\\z', first: handbook/setup.md, mode: keyword}\n",
    )
    return project


STRANGE = "a ]]> #1 {0} [x](http://y)\\z"


def written(project: Project, command: str, *arguments: str, code: int = 1) -> list[str]:
    names = ["junit", "sarif", "code-quality"]
    options = [option for name in names for option in (f"--{name}", f"out.{name}")]
    project.vmrag(command, *arguments, *options, code=code)
    return [(project.top / f"out.{name}").read_text() for name in names]


def test_all_formats_identify_queries_and_show_expected_and_actual(golden):
    junit, sarif, code_quality = written(golden, "check")
    tests = outcomes_of(junit)
    assert [*tests] == ["certificates", "install", STRANGE]
    assert tests["certificates"] is None
    failure = tests["install"]
    assert failure is not None
    assert failure.get("type") == "QUERY_MISSED"
    assert "wanted: handbook/gone.md among the first 1\ngot:    1. handbook/" in (failure.text or "")
    assert f"at {FILE}:3" in (failure.text or "")
    assert [name for name, outcome in tests.items() if outcome is not None] == ["install", STRANGE]
    results, entries = results_of(sarif), entries_of(code_quality)
    lines = [result["locations"][0]["physicalLocation"]["region"]["startLine"] for result in results]
    assert lines == [entry["location"]["lines"]["begin"] for entry in entries] == [3, 4]
    assert results[1]["message"]["text"].startswith(r"a \]\]> #1 {{0}} \[x\](http://y)\\z: ")


def test_problem_keeps_its_identity_with_other_lines_scores_and_ranks(golden):
    before = entries_of(written(golden, "check")[2])
    golden.put("more.md", "Install the program, install the program.")
    text = (golden.top / FILE).read_text()
    golden.write(FILE, f"# One line more.\n{text}")
    after = entries_of(written(golden, "check")[2])
    assert [issue["fingerprint"] for issue in after] == [issue["fingerprint"] for issue in before]
    assert [issue["description"] for issue in after] != [issue["description"] for issue in before]


def test_queries_of_one_text_get_numbered_names_and_repeated_id_fails(golden):
    golden.write(FILE, "queries:\n" + 2 * "  - {query: install, ranking: []}\n")
    tests = outcomes_of(golden.vmrag("check", "--junit", "-", code=1).out)
    assert [*tests] == ["install", "install (2)", "recorded rankings can be compared"]
    golden.write(FILE, "queries:\n" + 2 * "  - {query: install, id: a, ranking: []}\n")
    assert golden.vmrag("check", "--json", code=2).error["code"] == "QUERIES_INVALID"


def test_standard_output_accepts_only_one_format(golden):
    assert results_of(golden.vmrag("check", "--sarif", "-", code=1).out)
    assert golden.vmrag("check", "--sarif", "-", "--junit", "-", "--json", code=2).error["code"] == "INVALID_PARAMETER"
    assert golden.vmrag("check", "--sarif", "-", "--json", code=2).error["code"] == "INVALID_PARAMETER"
    assert golden.vmrag("verify", "--junit", "no/such", "--json", code=3).error["code"] == "FILE_SYSTEM_ERROR"
    assert golden.vmrag("check", "--sarif", "out", "--json", code=1).json["missed"] == 2


def test_removed_option_names_its_replacement(golden):
    error = golden.vmrag("verify", "--tap", "out", "--json", code=2).error
    assert (error["code"], error["message"]) == ("INVALID_PARAMETER", "'--tap' was removed.")
    assert "--junit FILE" in error["hint"]


def test_verify_has_a_case_for_each_rule_in_every_run(forked):
    whole = outcomes_of(written(forked, "verify", "base..HEAD", code=0)[0])
    forked.git("merge", "-q", "-s", "ours", "--no-edit", "side")
    junit, sarif, code_quality = written(forked, "verify", "base..HEAD")
    tests = outcomes_of(junit)
    assert [*tests] == [*whole]
    failed = [name for name, outcome in tests.items() if outcome is not None and outcome.tag == "failure"]
    assert failed == ["no commit drops documents (KNOWLEDGE_DROPPED)"]
    skipped = [name for name, outcome in tests.items() if outcome is not None and outcome.tag == "skipped"]
    assert len(skipped) == 1
    (result,), (entry,) = results_of(sarif), entries_of(code_quality)
    assert (result["ruleId"], result["level"], entry["severity"]) == ("KNOWLEDGE_DROPPED", "error", "critical")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == ".dolt-version"
    assert "vmrag merge --repair" in result["message"]["text"]


HOSTILE = "\x00\x1b[31m\x85\u2028\u202e\ufffe\uffff\ud800 ]]> <&\"' ok 2 - x\n  ...\nnot ok 9\n::error::x"


@pytest.mark.parametrize("name", FORMATS)
def test_untrusted_texts_break_no_format(name):
    problem = CaseProblem(QUERY_MISSED, "error", HOSTILE, (HOSTILE,), (HOSTILE, "#"))
    case_problem = CaseProblem(QUERY_MISSED, "information", HOSTILE, ("b",))
    cases = [
        CheckCase(HOSTILE, FILE, 7, (problem, case_problem)),
        CheckCase("#", FILE, 7, (CaseProblem(QUERY_MISSED, "information", "c", ("c",)),)),
        CheckCase("s", FILE, 1, (), HOSTILE),
    ]
    text = FORMATS[name](CaseList("check", QUERY_RULES, tuple(cases)))
    text.encode()
    assert not {*text} & {*"\x00\x1b\x85\u2028\u202e\ufffe\uffff"}
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
    read = {"junit": outcomes_of, "sarif": results_of, "code_quality": entries_of}[name](text)
    assert len(read) == 3


def test_files_without_cases_are_valid_in_all_formats():
    texts = {name: write(CaseList("check", QUERY_RULES, ())) for name, write in FORMATS.items()}
    assert not any([outcomes_of(texts["junit"]), results_of(texts["sarif"]), entries_of(texts["code_quality"])])


@pytest.mark.parametrize("link", ["reports", "reports/check.xml"])
def test_reports_are_not_written_through_links_in_the_repository(golden, tmp_path, link):
    target = tmp_path / "outside"
    target.mkdir()
    (target / "check.xml").write_text("theirs")
    (golden.top / link).parent.mkdir(exist_ok=True)
    (golden.top / link).symlink_to(target if link == "reports" else target / "check.xml")
    for arguments in (["check", "--junit"], ["verify", "--sarif"], ["report", "HEAD", "--html"]):
        for path in ("reports/check.xml", f"{golden.top}/a/../reports/check.xml"):
            error = golden.vmrag(*arguments, path, "--json", code=None).error
            assert (error["code"], f"{golden.top / link} is a link" in error["message"]) == ("FILE_SYSTEM_ERROR", True)
    assert (target / "check.xml").read_text() == "theirs"
    golden.vmrag("check", "--junit", str(target / "check.xml"), code=None)
    assert "testsuites" in (target / "check.xml").read_text()

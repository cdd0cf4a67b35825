"""`vmrag check --trec`, and the plot of earlier answers on a report's page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link.ops.check.thresholds import CommitQuality, GoldenMetrics, QualityHistory
from vmrag_link.ops.report import plot

template, project = terminal.template, terminal.project
pytestmark = pytest.mark.hooks("off")

QUERIES = """\
queries:
  - {query: certificates for TLS, mode: keyword, first: handbook/deep/tls.txt}
  - {query: setup, expect: [handbook/setup.md, handbook/rest.md]}
  - {query: nothing of that kind, mode: keyword, expect: [handbook/faq.md]}
  - {query: recorded alone, ranking: []}
"""


@pytest.fixture
def golden(project: Project) -> Project:
    project.write(".vmrag/queries.yaml", QUERIES)
    return project


def rows(file: Path) -> list[list[str]]:
    return [line.split(" ") for line in file.read_text().splitlines()]


def test_check_writes_expected_and_returned_documents(golden):
    report = golden.vmrag("check", "--trec", "trec", "--json", code=None).json
    qrels, run = rows(golden.top / "trec/qrels.txt"), rows(golden.top / "trec/run.txt")
    assert [(document, grade) for _, _, document, grade in qrels] == [
        ("handbook/deep/tls.txt", "1"),
        ("handbook/rest.md", "1"),
        ("handbook/setup.md", "1"),
        ("handbook/faq.md", "1"),
    ]
    ids = list(dict.fromkeys(row[0] for row in qrels))
    assert ids == ["certificates%20for%20TLS", "setup", "nothing%20of%20that%20kind"]
    assert {row[0] for row in run} <= {*ids}
    for name, query in zip(ids, report["queries"], strict=False):
        returned = [row[2] for row in run if row[0] == name]
        assert returned == list(dict.fromkeys(chunk["document"] for chunk in query["found"]))
        scores = [int(row[4]) for row in run if row[0] == name]
        assert scores == sorted(set(scores), reverse=True)


def test_check_prints_measures_with_their_confidence(golden):
    printed = golden.vmrag("check", "--trec", "trec", code=None).out
    assert re.search(r"^ndcg \d\.\d{4} \(\d\.\d\d to \d\.\d\d\), mrr \d\.\d{4} .* of 3 queries", printed, re.MULTILINE)
    metrics = golden.vmrag("check", "--json", code=None).json["metrics"]
    for name in ("mrr", "ndcg"):
        low, high = metrics[f"{name}_interval"]
        assert 0 <= low < metrics[name] < high <= 1


def test_trec_needs_a_query_that_names_documents(golden):
    golden.write(".vmrag/queries.yaml", "queries: [{query: a, ranking: []}]\n")
    error = golden.vmrag("check", "--trec", "trec", "--json", code=2).error
    assert error["code"] == "QUERIES_INVALID"
    assert not (golden.top / "trec").exists()


@pytest.mark.long
def test_ir_measures_computes_the_same_from_the_files(golden, tmp_path):
    """`ir_measures` brings scipy (100 MB), so it is installed for this test alone."""
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin/pip", "install", "-q", "ir-measures==0.4.3"], check=True)
    metrics = golden.vmrag("check", "--trec", "trec", "--json", code=None).json["metrics"]
    program = "from ir_measures import RR, nDCG, calc_aggregate, read_trec_qrels as q, read_trec_run as r; import json; print(json.dumps({str(k): v for k, v in calc_aggregate([nDCG, RR], list(q('trec/qrels.txt')), list(r('trec/run.txt'))).items()}))"
    result = subprocess.run(
        [environment / "bin/python", "-c", program], cwd=golden.top, capture_output=True, text=True, check=True
    )
    assert eval(result.stdout) == pytest.approx({"nDCG": metrics["ndcg"], "RR": metrics["mrr"]})


def test_report_plots_the_quality_of_earlier_commits(golden):
    golden.git("add", ".")
    golden.git("commit", "-q", "-m", "Queries <b>bold</b>")
    golden.drop("deep/tls.txt")
    golden.vmrag("commit", "-m", "dropped")
    golden.git("commit", "-q", "-am", "No <script>certificates</script>")
    golden.vmrag("report", "HEAD~1", "--html", "page.html", "--history", "2")
    page = (golden.top / "page.html").read_text()
    (drawn,) = re.findall(r"<svg class=\"plot\".*?</svg>", page)
    dots = ET.fromstring(drawn).findall("circle[@class='mrr']")
    assert len(dots) == 2
    assert float(dots[0].get("cy")) < float(dots[1].get("cy"))  # the answers became worse
    assert "No &lt;script&gt;certificates" in page
    assert golden.vmrag("report", "HEAD~1", "--json", "--history", "2").json["summary"]["history"]["commits"][0][
        "missed"
    ]
    golden.vmrag("report", "HEAD~1", "--html", "plain.html")
    assert '<svg class="plot"' not in (golden.top / "plain.html").read_text()


def test_plot_has_a_gap_at_an_unanswerable_commit():
    def quality(mrr: float | None) -> CommitQuality:
        metrics = None if mrr is None else GoldenMetrics(4, 1.0, mrr, mrr, (mrr / 2, mrr), (mrr / 2, mrr))
        return CommitQuality("1" * 40, "2026-11-29", "subject", 0, metrics)

    drawn = ET.fromstring(plot.draw_history(QualityHistory(tuple(map(quality, [1.0, None, 0.5, 0.0])), shallow=False)))
    lines = [line.get("points") for line in drawn.findall("polyline[@class='mrr']")]
    assert [len(points.split()) for points in lines] == [2, 1]
    heights = [float(point.split(",")[1]) for points in lines for point in points.split()]
    assert heights == sorted(heights, reverse=True)
    assert plot.draw_history(QualityHistory((quality(None),), shallow=False)) == ""

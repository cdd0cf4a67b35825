"""Which errors of a step are shown at the pin, and which findings fail it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from vmrag_action import failures, findings
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import errors, markdown_text
from vmrag_link.ops.case_files.cases import CaseList


@pytest.mark.parametrize(
    ("error", "title", "at_pin"),
    [
        (errors.PinMalformed("x", hint="y"), "PIN_MALFORMED", True),
        (errors.PinMissing("x", hint="y"), "NO_PIN", True),
        (errors.NotInitialized("x", hint="y"), "NOT_INITIALIZED", True),
        (errors.RemoteNotTrusted("x", hint="y"), "REMOTE_NOT_TRUSTED", True),
        (errors.PinRevisionMissing("x", cause="PIN_MISSING_REVISION"), "PIN_MISSING_REVISION", True),
        (
            errors.PinRevisionMissing("x", cause="REMOTE_UNREACHABLE"),
            "The job's environment: REMOTE_UNREACHABLE",
            False,
        ),
        (errors.KnowledgeElsewhere("x", cause="REMOTE_NOT_FOUND"), "The job's environment: REMOTE_NOT_FOUND", False),
        (errors.AuthenticationFailed("x"), "The job's environment: AUTHENTICATION_FAILED", False),
        (errors.HistoryMissing("x"), "The job's environment: GIT_FAILED", False),
        (errors.SchemaTooNew("x"), "The job's environment: SCHEMA_TOO_NEW", False),
        (errors.FileFailed("x"), "The job's environment: FILE_SYSTEM_ERROR", False),
        (errors.Busy("x"), "The job's environment: BUSY", False),
        (errors.UsageInvalid("x"), "INVALID_PARAMETER", False),
        (errors.ConfigInvalid("x"), "CONFIG_INVALID", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_are_annotated_at_the_pin_only_if_it_caused_them(error, title, at_pin, capsys):
    failures.annotate_error(Runner(), error)
    said = capsys.readouterr().out
    assert f"title={title.replace(':', '%3A')}" in said
    assert ("file=.dolt-version" in said) == at_pin
    assert (failures.PIN_NOT_CHECKED in said) == title.startswith(failures.ENVIRONMENT)


@pytest.mark.parametrize(
    ("fail_on", "level", "failed"),
    [
        ("error", "error", True),
        ("error", "information", False),
        ("information", "information", True),
        ("information", "error", True),
        ("never", "error", False),
    ],
)
def test_findings_fail_the_step_from_the_given_level_on(monkeypatch, capsys, fail_on, level, failed):
    monkeypatch.setenv("INPUT_FAIL_ON", fail_on)
    result = [findings.ActionFinding(level, "KNOWLEDGE_DROPPED", "0123456", "It drops some.", "vmrag merge")]
    code = findings.report_findings(Runner(), "Verify", result, "1 finding")
    assert (code == errors.FAILED_CHECK) is failed
    assert ("::error " in capsys.readouterr().out) is failed


@pytest.mark.parametrize("text", ["a", "\u200b", "\U000e0041\n", "::x\n"], ids=ascii)
def test_annotation_stays_below_the_runners_limit_and_keeps_its_hint(capsys, text):
    Runner().annotate("error", text * 5000, hint="git fetch origin", title=text * 500)
    command, _, message = capsys.readouterr().out.removesuffix("\n").partition(" ")[2].partition("::")
    assert len(unquote(message)) <= 4096
    assert unquote(message).endswith("…\ngit fetch origin")
    assert len(unquote(command.removeprefix("title="))) <= 255


def test_summary_of_a_step_stays_below_the_hosts_limit(tmp_path, monkeypatch):
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    for letter in "abc":
        Runner().append_summary(f"{letter}\n" * 300_000)
    assert path.stat().st_size <= 1024 * 1024
    assert (path.read_text().count("a\n"), path.read_text().count("b\n")) == (300_000, 0)
    assert path.read_text().endswith("More results are in the log.\n")


def test_summary_of_findings_counts_characters_after_escaping(tmp_path, monkeypatch):
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    monkeypatch.setenv("INPUT_FAIL_ON", "never")
    hidden = "\U000e0041" * 20_000
    problems = [findings.ActionFinding("error", "QUERY_MISSED", hidden, hidden, hidden) for _ in range(20)]
    findings.report_findings(Runner(), "Golden queries", problems, "20 findings")
    assert 100_000 < path.stat().st_size <= markdown_text.MAX_BYTES
    assert "U000e0041" in path.read_text()


# -- results


def keep(workspace: Path, monkeypatch, results_path: str) -> None:
    monkeypatch.setenv("INPUT_RESULTS_PATH", results_path)
    findings.keep_results(WorkflowJob(workspace, workspace, "push", ""), CaseList("verify", {}, ()))


@pytest.fixture
def workspace(tmp_path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("theirs")
    return folder


@pytest.mark.parametrize("results_path", ["reports", "./a/../reports/deep/", "ABSOLUTE/reports"])
def test_results_are_written_below_the_workspace(workspace, monkeypatch, results_path):
    keep(workspace, monkeypatch, results_path.replace("ABSOLUTE", str(workspace)))
    assert sorted(path.name for path in workspace.rglob("*.*")) == ["verify.junit.xml", "verify.sarif"]


def test_results_replace_a_link_and_not_its_target(workspace, tmp_path, monkeypatch):
    (workspace / "reports").mkdir()
    (workspace / "reports" / "verify.junit.xml").symlink_to(tmp_path / "outside" / "file")
    (workspace / "reports" / "verify.sarif").symlink_to(tmp_path / "outside" / "new")
    keep(workspace, monkeypatch, "reports")
    assert (tmp_path / "outside" / "file").read_text() == "theirs"
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["file"]
    assert "<testsuites>" in (workspace / "reports" / "verify.junit.xml").read_text()


@pytest.mark.parametrize("link", ["reports", "reports/deep", "reports/deep/er"])
def test_results_refuse_a_folder_behind_a_link(workspace, tmp_path, monkeypatch, link):
    (workspace / link).parent.mkdir(parents=True, exist_ok=True)
    (workspace / link).symlink_to(tmp_path / "outside")
    with pytest.raises(errors.FileFailed, match="results-path"):
        keep(workspace, monkeypatch, "reports/deep/er")
    assert [path.name for path in (tmp_path / "outside").rglob("*")] == ["file"]


@pytest.mark.parametrize("results_path", ["..", "../outside", "a/../../outside", "/", "/tmp/elsewhere"])
def test_results_refuse_a_folder_outside_of_the_workspace(workspace, monkeypatch, results_path):
    with pytest.raises(errors.UsageInvalid, match="results-path must be a folder in the workspace"):
        keep(workspace, monkeypatch, results_path)

"""The project's own workflows: what they run is what the README shows, and they may do no more than
they need.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import vmrag_link
from clients import sbom

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS: dict[str, Any] = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
JOBS = {f"{name}.{job}": value for name, workflow in WORKFLOWS.items() for job, value in workflow["jobs"].items()}
CHECKS = (ROOT / ".ci" / "run").read_text().splitlines()[-1]  # the README shows it, as another test checks
PINNED = re.compile(r"uses: ([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)\n")

each_job = pytest.mark.parametrize("name", JOBS)


def steps(name: str) -> list[Any]:
    return list(JOBS[name]["steps"])


def bash(script: str, folder: Path, **environ: str) -> int:
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(argv, cwd=folder, env=os.environ | environ, capture_output=True, check=False).returncode


def test_every_python_that_is_offered_is_tested() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    offered = re.findall(r"Python :: (3\.\d+)$", "\n".join(classifiers), re.MULTILINE)
    for name in ("tests.checks", "tests.elsewhere"):
        assert JOBS[name]["strategy"]["matrix"]["python"] == offered


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("tests.checks", ""),
        ("tests.elsewhere", ""),
        ("tests.dolt", " --dolt"),
        ("long.long", " --long"),
        ("release.build", ""),
    ],
)
def test_check_workflows_run_the_command_of_the_readme(name: str, rest: str) -> None:
    assert [step["run"] for step in steps(name) if "check.py" in step.get("run", "")] == [CHECKS + rest]


def test_remaining_jobs_do_not_run_the_checks() -> None:
    running = {name for name in JOBS if "check.py" in str(steps(name))}
    assert running == {"tests.checks", "tests.elsewhere", "tests.dolt", "long.long", "release.build"}


@each_job
def test_job_ends_and_declares_its_permissions(name: str) -> None:
    job = JOBS[name]
    assert job["timeout-minutes"] <= 180
    expected = {"contents": "read"} if any("actions/checkout" in str(step) for step in steps(name)) else {}
    if name == "release.publish":
        expected = {"id-token": "write"}
    if name == "release.attest":
        expected = {"attestations": "write", "id-token": "write"}
    if name == "release.clients":
        expected = {"contents": "write"}  # it gives a release files
    assert job["permissions"] == expected
    assert "secrets." not in str(job)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_grants_nothing_by_default_and_runs_once_at_a_time(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {}
    assert "${{ github.workflow }}" in WORKFLOWS[name]["concurrency"]["group"]


def test_action_is_pinned_to_one_commit_and_version_everywhere() -> None:
    pins: dict[str, set[tuple[str, str]]] = {}
    files = [
        *FOLDER.glob("*.yml"),
        ROOT / "action" / "action.yml",
        *(ROOT / "ci" / "github").glob("*.yml"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
    ]
    for path in files:
        for line in path.read_text().splitlines(keepends=True):
            if "uses:" not in line or re.search(r"uses: (vmrag/vmrag-link(/action)?@SHA|\$/action)\b", line):
                continue
            match = PINNED.search(line)
            if match is None:
                assert path.suffix == ".md", f"{path.name}: {line}"
                assert "uses: `" in line or not re.search(r"uses: \S+/", line), f"{path.name}: {line}"
                continue
            pins.setdefault(match[1], set()).add((match[2], match[3]))
    assert {name: pin for name, pin in pins.items() if len(pin) > 1} == {}
    assert {"actions/checkout", "actions/setup-python", "pypa/gh-action-pypi-publish"} <= pins.keys()


# -- the rule for branches


def test_required_check_needs_every_job_of_the_tests_workflow() -> None:
    job = JOBS["tests.passed"]
    assert job["name"] == "tests passed"
    assert set(job["needs"]) == set(WORKFLOWS["tests"]["jobs"]) - {"passed", "elsewhere", "refused"}
    assert job["if"] == "${{ always() }}"


@pytest.mark.parametrize("results", ["success failure", "cancelled success", "success skipped", "skipped skipped"])
def test_check_that_a_rule_names_passes_only_if_all_did(results: str, tmp_path: Path) -> None:
    [step] = steps("tests.passed")
    assert bash(step["run"], tmp_path, RESULTS="success success") == 0
    assert bash(step["run"], tmp_path, RESULTS=results) != 0


@pytest.mark.parametrize("name", ["tests", "knowledge"])
def test_required_workflows_run_in_the_merge_queue(name: str) -> None:
    events = WORKFLOWS[name][True]  # YAML 1.1 reads `on` so
    assert {"push", "pull_request", "merge_group"} == events.keys()
    assert "pull_request_target" not in str(WORKFLOWS)


@pytest.mark.parametrize(
    ("said", "code", "passes"),
    [
        ("error: the embedded engine, doltlite, is made for this and that only.", 3, True),
        ("error: vmrag runs on Linux and macOS, not on Windows.", 2, True),
        ("Traceback (most recent call last):\nNo module named 'fcntl'\nnot on Windows.", 1, False),
        ("error: git is not on PATH.", 3, False),
        ("Started a knowledge base: it is made for this only.", 0, False),
    ],
)
def test_rejected_system_must_be_reported(said: str, code: int, passes: bool, tmp_path: Path) -> None:
    vmrag = tmp_path / "vmrag"
    vmrag.write_text(f'#!/bin/sh\nprintf "%s\\n" "{said}" >&2\nexit {code}\n')
    vmrag.chmod(0o755)
    environ = {"RUNNER_TEMP": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert (bash(steps("tests.refused")[-1]["run"], tmp_path, **environ) == 0) == passes


# -- Dolt, and releases


def test_dolt_is_the_version_that_the_documents_were_printed_with() -> None:
    version = JOBS["tests.dolt"]["env"]["DOLT_VERSION"]
    assert re.search(rf"\bDolt {re.escape(version)}\b", (ROOT / "docs" / "sharing.md").read_text())
    assert re.fullmatch(r"[0-9a-f]{64}", JOBS["tests.dolt"]["env"]["DOLT_SHA256"])


VERSION = vmrag_link.__version__


@pytest.mark.parametrize(
    ("tag", "heading", "released"),
    [
        (f"v{VERSION}", f"## {VERSION} (2026-01-31)", True),
        ("v0.0.1", f"## {VERSION} (2026-01-31)", False),
        (VERSION, f"## {VERSION} (2026-01-31)", False),
        (f"v{VERSION}", f"## {VERSION} (unreleased)", False),
        (f"v{VERSION}", f"## 9{VERSION} (2026-01-31)", False),
    ],
)
def test_release_has_a_tag_and_an_entry_of_its_version(tag: str, heading: str, released: bool, tmp_path: Path) -> None:
    [script] = [step["run"] for step in steps("release.build") if "TAG" in step.get("env", {})]
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n\nText.\n")
    assert (bash(script, tmp_path, TAG=tag, PYTHONPATH=str(ROOT)) == 0) == released


def test_release_publishes_only_checked_and_built_files() -> None:
    build, publish = steps("release.build"), steps("release.publish")
    assert build[-1]["with"]["path"] == publish[0]["with"]["path"] == "dist/"
    assert build[-1]["with"]["name"] == publish[0]["with"]["name"]
    assert JOBS["release.publish"]["needs"] == ["build"]
    assert JOBS["release.publish"]["environment"]["name"] == "pypi"
    assert not any(
        "run" in step or "checkout" in step["uses"] for step in publish
    )  # no vmrag code next to the identity
    attest = steps("release.attest")
    assert not any("run" in step or "checkout" in step["uses"] for step in attest)
    assert [step["with"]["name"] for step in attest[:2]] == ["dist", "clients"]
    assert attest[-1]["with"]["sbom-path"] == f"clients/{sbom.FILE}"

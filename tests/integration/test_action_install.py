"""Packages that the Action installs for a mode, how it installs them, and when the workflow's cache
has them.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.actions_runner import read_pairs
from vmrag_action import install, packages
from vmrag_action.inputs import MODES

OF_THE_INDEX = {"numpy", "pydantic-core", "simsimd", "tree-sitter", "tree-sitter-python"}
OF_THE_WEB = {"httpx", "httpcore", "certifi"}
OF_REPORTS = {"jinja2", "markupsafe"}
NEVER = {"pygithub", "requests", "cryptography", "chromadb", "hatchling", "pytest"}
"""Packages of actions-toolkit, of Chroma's users only, and of builds and tests."""

# -- which packages


@pytest.mark.parametrize(
    ("modes", "installed", "missing"),
    [
        ({"link", "verify"}, set(), OF_THE_INDEX | OF_THE_WEB | OF_REPORTS),
        ({"repair", "update"}, OF_THE_WEB, OF_THE_INDEX | OF_REPORTS),
        ({"sync", "check"}, OF_THE_INDEX | OF_THE_WEB, OF_REPORTS),
        ({"report"}, OF_THE_INDEX | OF_THE_WEB | OF_REPORTS, set()),
    ],
)
def test_mode_needs_these_packages_and_no_others(modes: set[str], installed: set[str], missing: set[str]) -> None:
    """The tests of each mode's step run with them alone (`tests.support.actions_runner`)."""
    for mode in modes:
        package_names = set(packages.list_package_names(packages.list_mode_extras([mode])))
        assert installed | {"actions-toolkit", "doltlite", "msgspec"} <= package_names
        assert package_names.isdisjoint(missing | NEVER)


def brought(name: str, extras: frozenset[str] = frozenset()) -> set[tuple[str, frozenset[str]]]:
    """Return the requirements of an installed package on this machine, by its metadata."""
    result = set()
    for requirement in map(Requirement, importlib.metadata.requires(name) or []):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            result.add((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return result


@pytest.mark.parametrize("mode", MODES)
def test_package_names_match_installed_metadata(mode: str) -> None:
    """Another way to the same list: it has no more than the versions of other Pythons besides."""
    new = brought("vmrag-link", frozenset(packages.list_mode_extras([mode])))
    result: set[tuple[str, frozenset[str]]] = set()
    while new:
        result |= new
        new = {package for name, extras in new for package in brought(name, extras)} - result
    expected = {name for name, _ in result} | {"actions-toolkit"}
    listed = set(packages.list_package_names(packages.list_mode_extras([mode])))
    assert expected <= listed
    assert listed - expected <= {"typing-extensions"}  # of Python 3.12 and older


def test_everything_that_is_listed_has_hashes() -> None:
    for extra in packages.list_offered_extras():
        entries = packages.format_requirements([extra]).split("\n")
        names = [number for number, line in enumerate(entries) if line and not line.startswith(" ")]
        assert len(names) >= len(packages.list_package_names([extra]))
        assert all(entries[number + 1].startswith("    --hash=sha256:") for number in names)


@pytest.mark.parametrize(
    ("inputs", "extras"),
    [
        ({}, {"code", "index", "web"}),
        ({"MODE": "verify"}, set()),
        ({"MODE": "verify, link", "EXTRAS": "mcp"}, {"mcp"}),
        ({"MODE": "link", "CHROMA": "true"}, {"chroma"}),
        ({"MODE": "verify", "EXTRAS": "index minilm"}, {"index", "minilm"}),
    ],
)
def test_inputs_add_packages_to_those_of_the_mode(tmp_path: Path, inputs: dict[str, str], extras: set[str]) -> None:
    environ = {"RUNNER_TEMP": str(tmp_path), **{f"INPUT_{name}": value for name, value in inputs.items()}}
    assert set(install.read_request(environ).extras) == extras


# -- a job, with an index of one package


@dataclass
class Machine:
    """A runner whose index is a folder: `brick`, of which the mode needs nothing else."""

    folder: Path
    request: install.InstallRequest

    def step(self, name: str, **environ: str) -> tuple[int, dict[str, str]]:
        output = self.folder / "output"
        output.unlink(missing_ok=True)
        step_environ = {
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_OUTPUT": str(output),
            "RUNNER_ENVIRONMENT": "github-hosted",
        }
        code = install.main([name], step_environ | {"INPUT_MODE": "verify"} | environ)
        return code, read_pairs(output.read_text()) if output.exists() else {}

    @property
    def shelf(self) -> Path:
        return install.packages_folder({"RUNNER_TEMP": str(self.folder)})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    index = tmp_path / "index"
    index.mkdir()
    wheel = index / "brick-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("brick.py", "")
        archive.writestr("brick-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: brick\nVersion: 1.0\n")
        archive.writestr("brick-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("brick-1.0.dist-info/RECORD", "brick.py,,\n")
    for name in ("PIP", "UV"):
        monkeypatch.setenv(f"{name}_NO_INDEX", "1")
        monkeypatch.setenv(f"{name}_FIND_LINKS", str(index))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    listed = f"brick==1.0 --hash=sha256:{digest}\n"
    monkeypatch.setattr(packages, "format_requirements", lambda extras: listed)
    return Machine(tmp_path, install.InstallRequest("", ()))


def program(machine: Machine, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a program named `uv` on PATH."""
    path = machine.folder / "path" / "uv"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


UV = next((str(path) for path in [Path(sys.prefix) / "bin" / "uv"] if path.exists()), shutil.which("uv"))
needs_uv = pytest.mark.skipif(UV is None, reason="uv is not installed")


@needs_uv
def test_runners_uv_installs_by_hash(machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    program(machine, monkeypatch, f'exec "{UV}" "$@"')
    assert machine.step("install") == (0, {"fresh": "true"})
    assert (machine.shelf / "brick.py").exists()
    assert "::warning" not in capfd.readouterr().out
    assert machine.step("install") == (0, {"fresh": "false"})


@pytest.mark.parametrize("text", ["exit 1", "[ $1 = --version ] && echo uv 99.0.0 || exit 1", "echo uv 0.4.30"])
@pytest.mark.sample(1)
def test_pip_installs_with_a_warning_if_uv_does_not_work(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd, text: str
) -> None:
    """pip finds no uv in this index, either."""
    program(machine, monkeypatch, text)
    assert machine.step("install") == (0, {"fresh": "true"})
    assert (machine.shelf / "brick.py").exists()
    warnings = [line for line in capfd.readouterr().out.splitlines() if line.startswith("::warning")]
    assert len(warnings) == 1
    assert "pip installs them" in warnings[0]


@pytest.mark.parametrize("text", ["exit 1", pytest.param(f'exec "{UV}" "$@"', marks=needs_uv)], ids=["pip", "uv"])
def test_package_of_another_hash_is_not_installed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd, text: str
) -> None:
    program(machine, monkeypatch, text)
    with zipfile.ZipFile(machine.folder / "index" / "brick-1.0-py3-none-any.whl", "a") as archive:
        archive.writestr("evil.py", "")
    assert machine.step("install") == (1, {})
    assert not machine.shelf.exists()
    assert "::error title=vmrag::Neither uv nor pip" in capfd.readouterr().out


@needs_uv
def test_settings_in_the_work_tree_do_not_lead_uv_elsewhere(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    work = machine.folder / "work"
    work.mkdir()
    (work / "uv.toml").write_text("this is no TOML that uv would take = ")
    monkeypatch.chdir(work)
    program(machine, monkeypatch, f'exec "{UV}" "$@"')
    monkeypatch.setattr(install, "_PIP", ("false",))
    assert machine.step("install") == (0, {"fresh": "true"})


def test_restored_packages_are_reused_if_complete_and_for_this_request(machine: Machine, monkeypatch) -> None:
    machine.shelf.mkdir()
    install.mark_packages(machine.shelf, machine.request)
    monkeypatch.setattr(install, "_install_with", lambda *given: pytest.fail("it was installed again"))
    assert machine.step("choose")[1]["restore"] == "false"
    assert machine.step("install") == (0, {"fresh": "false"})


@pytest.mark.parametrize("marker", [None, "", "0" * 64 + " \n"])
@pytest.mark.sample(1)
def test_library_that_is_broken_or_of_other_packages_is_made_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, marker: str | None
) -> None:
    program(machine, monkeypatch, "exit 1")
    machine.shelf.mkdir()
    (machine.shelf / "brick.py").write_text("raise SystemExit")
    if marker is not None:
        (machine.shelf / install.MARKER).write_text(marker)
    assert machine.step("install") == (0, {"fresh": "true"})
    assert (machine.shelf / "brick.py").read_text() == ""


def test_later_step_keeps_the_packages_of_an_earlier_one(machine: Machine) -> None:
    environ = {"RUNNER_TEMP": str(machine.folder), "INPUT_MODE": "check"}
    home = install.action_folder(environ)
    home.mkdir()
    install.mark_environment(home, install.read_request(environ))
    assert install.read_request(environ | {"INPUT_MODE": "link"}).extras == ("code", "index", "web")
    assert install.read_request(environ | {"INPUT_MODE": "report"}).extras == ("code", "index", "report", "web")
    assert machine.step("install", INPUT_MODE="link") == (0, {"fresh": "false"})
    assert not (home / "venv").exists()


def test_second_checkout_of_the_action_in_a_job_runs_itself(machine: Machine, monkeypatch) -> None:
    machine.shelf.mkdir()
    install.mark_packages(machine.shelf, machine.request)
    environment = install.action_folder({"RUNNER_TEMP": str(machine.folder)}) / "venv"
    for root in (packages.ROOT, machine.folder / "other"):
        monkeypatch.setattr(packages, "ROOT", root)
        assert machine.step("install") == (0, {"fresh": "false"})
        [paths] = environment.rglob("vmrag.pth")
        assert paths.read_text().splitlines()[1] == str(root)


# -- the cache


@pytest.mark.parametrize(
    ("environ", "restored"),
    [
        ({}, "true"),
        ({"INPUT_ENABLE_CACHE": "auto", "GITHUB_EVENT_NAME": "pull_request"}, "true"),
        ({"INPUT_ENABLE_CACHE": "false"}, "false"),
        ({"INPUT_ENABLE_CACHE": "yes"}, "false"),
        ({"GITHUB_EVENT_NAME": "pull_request_target"}, "false"),
        ({"GITHUB_EVENT_NAME": "release"}, "false"),
        ({"GITHUB_REF": "refs/tags/v1"}, "false"),
        ({"GITHUB_REF": "refs/tags/v1", "INPUT_ENABLE_CACHE": "true"}, "true"),
        ({"RUNNER_ENVIRONMENT": "self-hosted"}, "false"),
    ],
)
def test_package_cache_is_read_by_the_readers_of_the_vector_cache(
    machine: Machine, environ: dict[str, str], restored: str
) -> None:
    code, said = machine.step("choose", **environ)
    assert (code, said["restore"]) == (0, restored)
    assert said["key"].startswith(said["restore-keys"])


def test_index_version_is_not_kept_because_its_dependencies_are_unknown(machine: Machine) -> None:
    assert machine.step("choose", INPUT_VERSION="0.2.0") == (0, {"restore": "false"})


def test_key_names_the_packages_and_the_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def prefix() -> str:
        return machine.step("choose", RUNNER_OS="Linux", RUNNER_ARCH="ARM64")[1]["restore-keys"]

    before = prefix()
    assert before.startswith("vmrag-packages-1-Linux-ARM64-")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version", "3.12.99")
        assert prefix() != before
    assert prefix() == before
    monkeypatch.setattr(packages, "format_requirements", lambda extras: "brick==1.1 --hash=sha256:0\n")
    assert prefix() != before

"""Which extras are installed, and how a missing one is had."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vmrag_link import extras

DECLARED = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ONLY_FILES = {"mammoth": "markitdown", "pptx": "markitdown"}
"""Modules of what an extra's requirement brings by an extra of its own."""
SUMS = {"all", "dev"}
ELSEWHERE = {"doltcli"}
"""What is done without on a newer Python, and so tells nothing."""


def own(extra: str) -> list[Requirement]:
    return [each for each in map(Requirement, DECLARED[extra]) if each.name != "vmrag-link"]


def test_every_extra_that_installs_something_is_known_by_its_modules() -> None:
    assert set(extras.MODULES) | SUMS == set(DECLARED)
    assert own("all") == []


@pytest.mark.parametrize("extra", sorted(extras.MODULES))
def test_the_modules_of_an_extra_are_those_that_its_requirements_install(extra: str) -> None:
    by_module = packages_distributions()
    missing = [each for each in extras.MODULES[extra] if each not in by_module]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    found = {canonicalize_name(ONLY_FILES.get(each, by_module[each][0])) for each in extras.MODULES[extra]}
    assert found == {canonicalize_name(each.name) for each in own(extra)} - ELSEWHERE


def test_an_extra_is_installed_if_all_of_its_modules_are(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"pypdfium2", "numpy", "tokenizers"}
    monkeypatch.setattr(extras, "find_spec", lambda name: name if name in there else None)
    assert extras.installed() == ["pdf"]


@pytest.mark.parametrize(
    ("made_by", "command"),
    [
        ("venv/pip", "pip install 'vmrag-link[chroma]'"),
        ("venv", "uv pip install 'vmrag-link[chroma]'"),
        ("vmrag-link/uv-receipt.toml", "uv tool install 'vmrag-link[chroma,pdf]'"),
        ("vmrag-link/pipx_metadata.json", "pipx install --force 'vmrag-link[chroma,pdf]'"),
        ("archive-v0/dtML1dvO-bQQsejf", "uvx --from 'vmrag-link[chroma,pdf]' vmrag"),
    ],
)
def test_a_missing_extra_is_added_as_the_environment_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_by: str, command: str
) -> None:
    """The environments of tools are made again, without the extras that are not named."""
    folder, _, receipt = made_by.partition("/")
    if folder == "archive-v0":
        folder, receipt = made_by, ""
    prefix = tmp_path / folder
    prefix.mkdir(parents=True)
    if receipt:
        (prefix / receipt).touch()
    monkeypatch.setattr("sys.prefix", str(prefix))
    monkeypatch.setattr(extras, "find_spec", lambda name: name in ("pypdfium2", receipt) or None)
    error = extras.missing("chroma", "A sentence.", package="chromadb")
    assert (error.message, error.hint) == ("A sentence.", command)
    assert error.details == {"extra": "chroma", "package": "chromadb"}


def test_hints_name_extras_that_there_are() -> None:
    """In every module, whoever writes the hint."""
    root = Path(__file__).parents[2]
    for folder in ("vmrag_link", "hooks", "mcp_server", "action"):
        for path in (root / folder).rglob("*.py"):
            for named in re.findall(r"vmrag-link\[([a-z,]+)\]", path.read_text()):
                assert set(named.split(",")) <= set(DECLARED), path

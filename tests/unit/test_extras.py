"""Which extras are installed, and how a missing one is had."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vmrag_link import extras

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ONLY_FILES = {"mammoth": "markitdown", "pptx": "markitdown"}
"""Modules of what an extra's requirement brings by an extra of its own."""
SUMS = {"all", "dev"}
ELSEWHERE = {"doltcli"}
"""Package that newer Pythons do without, so it shows nothing."""


def own(extra: str) -> list[Requirement]:
    return [requirement for requirement in map(Requirement, DECLARED[extra]) if requirement.name != "vmrag-link"]


def test_every_extra_that_installs_something_is_known_by_its_modules() -> None:
    assert set(extras.MODULES) | SUMS == set(DECLARED)
    assert own("all") == []


@pytest.fixture(scope="module")
def by_module() -> Mapping[str, list[str]]:
    """Which distributions bring a module: by the lists of all installed files, which take long."""
    return packages_distributions()


@pytest.mark.parametrize("extra", sorted(extras.MODULES))
def test_modules_of_an_extra_are_those_that_its_requirements_install(
    extra: str, by_module: Mapping[str, list[str]]
) -> None:
    missing = [module for module in extras.MODULES[extra] if module not in by_module]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    result = {canonicalize_name(ONLY_FILES.get(module, by_module[module][0])) for module in extras.MODULES[extra]}
    assert result == {canonicalize_name(requirement.name) for requirement in own(extra)} - ELSEWHERE


def test_extra_is_installed_if_all_of_its_modules_are(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"pypdfium2", "numpy", "tokenizers"}
    monkeypatch.setattr(extras, "find_spec", lambda name: name if name in installed else None)
    assert extras.list_installed_extras() == ["pdf"]


@pytest.mark.parametrize(
    ("made_by", "command"),
    [
        ("venv/pip", 'pip install "vmrag-link[chroma]"'),
        ("venv", 'pip install "vmrag-link[chroma]"'),
        ("venv/pyvenv.cfg", 'uv pip install "vmrag-link[chroma]"'),
        ("vmrag-link/uv-receipt.toml", 'uv tool install "vmrag-link[chroma,pdf]"'),
        ("vmrag-link/pipx_metadata.json", 'pipx install --force "vmrag-link[chroma,pdf]"'),
        ("vmrag-action/venv", "with: extras: chroma"),
        ("archive-v0/dtML1dvO-bQQsejf", 'uvx --from "vmrag-link[chroma,pdf]" vmrag'),
    ],
)
def test_missing_extra_is_added_as_the_environment_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_by: str, command: str
) -> None:
    """The environments of tools are made again, without the extras that are not named."""
    folder, _, receipt = made_by.partition("/")
    if folder in ("archive-v0", "vmrag-action"):
        folder, receipt = made_by, ""
    prefix = tmp_path / folder
    prefix.mkdir(parents=True)
    if receipt:
        (prefix / receipt).write_text("home = /usr/bin\nuv = 0.13.9\n")
    monkeypatch.setattr("sys.prefix", str(prefix))
    monkeypatch.setattr(extras, "find_spec", lambda name: name in ("pypdfium2", receipt) or None)
    error = extras.missing_extra_error("chroma", "A sentence.", package="chromadb")
    assert error.message == "A sentence."
    assert f"'{command}'" in error.hint
    assert error.details == {"extra": "chroma", "package": "chromadb"}


@pytest.mark.parametrize(
    ("prefix", "programs", "command"),
    [
        ("venv", "on PATH", "vmrag"),
        ("a venv", "beside Python", '"{prefix}/bin/vmrag"'),
        ("venv", "", "{prefix}/bin/python -P -m vmrag_link.cli.main"),
        ("archive-v0/dtML1dvO", "beside Python", 'uvx --from "vmrag-link[pdf]" vmrag'),
        ("archive-v0/dtML1dvO", "on PATH", 'uvx --from "vmrag-link[pdf]" vmrag'),
    ],
)
def test_shell_command_is_found_by_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, programs: str, command: str
) -> None:
    """The environment of `uvx` is on no other program's PATH."""
    folder = tmp_path / prefix / "bin"
    folder.mkdir(parents=True)
    for name in ("python", *(["vmrag"] if programs else [])):
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr("sys.prefix", str(folder.parent))
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    monkeypatch.setattr("sys.argv", ["-m"])
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(folder))
    monkeypatch.setattr(extras, "find_spec", lambda name: True if name == "pypdfium2" else None)
    monkeypatch.setenv("PATH", str(folder) if programs == "on PATH" else "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    assert extras.find_shell_command() == command.format(prefix=folder.parent)


def brought(extra: str) -> set[str]:
    """The names of all packages that come with an extra here, ours not counted."""
    result: set[str] = set()
    base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    requirements = [Requirement(text) for text in (*base, *DECLARED[extra])]
    while requirements:
        requirement = requirements.pop()
        if requirement.name == "vmrag-link":
            requirements += [Requirement(text) for other in requirement.extras for text in DECLARED[other]]
            continue
        key = f"{canonicalize_name(requirement.name)}[{','.join(sorted(requirement.extras))}]"
        if key in result or (requirement.marker and not requirement.marker.evaluate()):
            continue
        result.add(key)
        for text in map(Requirement, requires(requirement.name) or ()):
            chosen = [{"extra": name} for name in (*requirement.extras, "")]
            if text.marker is None or any(text.marker.evaluate(one) for one in chosen):
                text.marker = None
                requirements.append(text)
    return {text.partition("[")[0] for text in result}


def test_server_for_agents_brings_a_bounded_number_of_packages() -> None:
    """At most fifty without the grammars, including vmrag's; a change that adds one explains its
    use here.
    """
    try:
        with_grammars, grammars = brought("mcp"), {text for text in brought("code") if text.startswith("tree-sitter")}
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed")
    assert len(grammars) == 16
    assert 1 + len(with_grammars - grammars) <= 44  # simsimd: queries load no numpy
    assert with_grammars.isdisjoint({"chromadb", "httpx", "huggingface-hub", "jinja2", "protego", "tokenizers"})


def test_pages_name_every_extra_and_its_cost() -> None:
    described = (ROOT / "docs" / "installing.md").read_text()
    costs = (ROOT / "bench" / "README.md").read_text().partition("<!-- what installing costs -->")[2]
    rows = re.findall(r"^\| (?:`\[([\w-]+)\]`|(none)) \| (\d+) \| (\d+) \|", costs, re.MULTILINE)
    assert {row[0] for row in rows} == {"", *DECLARED} - {"dev"}
    extras = described.partition("## Extras\n")[2].partition("\n## ")[0]
    first_cells = re.findall(r"^\| (`.+?`) \|", extras, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"`([\w-]+)`", cell)} == set(DECLARED) - {"dev"}
    try:
        counted = {row[0]: 1 + len(brought(row[0])) for row in rows if row[0] in ("index", "mcp", "all")}
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed")
    counts = {row[0]: int(row[2]) for row in rows if row[0] in counted}
    assert all(abs(counts[extra] - counted[extra]) <= 2 for extra in counted), (counts, counted)


def test_hints_name_existing_extras() -> None:
    """In each module with hints."""
    for folder in ("vmrag_link", "hooks", "mcp_server", "action"):
        for path in (ROOT / folder).rglob("*.py"):
            for named in re.findall(r"vmrag-link\[([a-z,-]+)\]", path.read_text()):
                assert set(named.split(",")) <= set(DECLARED), path


@pytest.mark.parametrize(
    "folders", [["some_package-1.2.dist-info"], ["some_package-1.2.dist-info", "some_package-1.2.extra.dist-info"]]
)
def test_version_is_read_even_beside_a_second_metadata_folder(tmp_path, monkeypatch, folders):
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").touch()
    for folder in folders:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "METADATA").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert extras.read_version("some-package") == "1.2"
    for folder in folders:
        (tmp_path / folder).rename(tmp_path / folder.replace("1.2", "1.3"))
        (tmp_path / folder.replace("1.2", "1.3") / "METADATA").write_text("Name: some-package\nVersion: 1.3\n")
    os.utime(tmp_path, ns=(0, 0))
    assert extras.read_version("some-package") == "1.3", "after an upgrade"

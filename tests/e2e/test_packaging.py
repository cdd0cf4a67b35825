"""Contents of the wheel, and functions of a base installation: everything except search."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import vmrag_link
from tests.support.repos import Repo, isolate, make_repo
from tests.support.templates import build_once
from vmrag_link.embedding import static
from vmrag_link.engines.dolt import program

ROOT = Path(__file__).parents[2]
VERSION = vmrag_link.__version__
PACKAGES = {"vmrag_action", "vmrag_hooks", "vmrag_link", "vmrag_mcp"}
OF_EXTRAS = (
    "actions_toolkit",
    "chromadb",
    "doltcli",
    "httpx",
    "jinja2",
    "jsonschema",
    "mcp",
    "numpy",
    "onnxruntime",
    "protego",
    "pymysql",
    "pypdfium2",
    "simsimd",
    "tokenizers",
)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that was built from it."""
    build = [sys.executable, "-m", "build", "--no-isolation", str(ROOT), "--outdir"]
    return build_once(tmp_path_factory, "dist", lambda folder: _done([*build, str(folder)]))


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@dataclass(frozen=True)
class Installed:
    """An environment of its own, with the wheel and what it requires."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def vmrag(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        argv = [str(self.folder / "bin" / "vmrag"), *arguments]
        return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    def install(folder: Path) -> None:
        venv.create(folder, symlinks=True)
        _done([sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q", str(wheel)])

    return Installed(build_once(tmp_path_factory, "base", install))


def requirements(wheel: Path) -> list[Requirement]:
    metadata = Parser().parsestr(zipfile.ZipFile(wheel).read(f"vmrag_link-{VERSION}.dist-info/METADATA").decode())
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    isolate(monkeypatch, tmp_path / "home")
    repo = make_repo(tmp_path / "repo")
    repo.commit("first", **{"a.txt": "a"})
    return repo


def _done(argv: list[str]) -> None:
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == PACKAGES | {f"vmrag_link-{VERSION}.dist-info"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert f"vmrag_link-{VERSION}.dist-info/licenses/LICENSE" in names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "vmrag_link").rglob("*.py")}
    assert modules == {name for name in names if name.startswith("vmrag_link/") and name.endswith(".py")}


@pytest.mark.long
def test_two_builds_have_equal_bytes(built: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)  # with other times
    _done([sys.executable, "-m", "build", "--no-isolation", str(copy), "--outdir", str(tmp_path / "dist")])
    checksums = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}
        for folder in (built, tmp_path / "dist")
    ]
    assert checksums[0] == checksums[1]
    assert len(checksums[0]) == 2


def test_metadata_is_valid_in_wheel_and_sdist(built: Path, wheel: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = archive.extractfile(f"vmrag_link-{VERSION}/PKG-INFO")
        assert packed is not None
        texts = [packed.read(), zipfile.ZipFile(wheel).read(f"vmrag_link-{VERSION}.dist-info/METADATA")]
    for text in texts:
        metadata = Metadata.from_email(text, validate=True)
        assert (metadata.name, str(metadata.version)) == ("vmrag-link", VERSION)
        assert metadata.description_content_type == "text/markdown"
        assert {"langchain", "llama-index"} <= {*(metadata.provides_extra or ())}


@pytest.mark.long
def test_people_install_the_wheel_with_pip_pipx_uv_tool_and_uvx(wheel: Path, tmp_path: Path) -> None:
    """Run the command of the release, with the programs in a separate environment."""
    programs = tmp_path / "programs"
    venv.create(programs, with_pip=True, symlinks=True)
    uv = ["--require-hashes", "-r", str(ROOT / ".ci" / "uv.txt")]
    for expected in (uv, ["pipx"]):
        _done([str(programs / "bin" / "pip"), "install", "-q", *expected])
    (tmp_path / "home").mkdir()  # pipx makes folders there
    environ = os.environ | {"PATH": f"{programs / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path / "home")}
    argv = ["bash", str(ROOT / ".ci" / "try"), str(wheel)]
    result = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("timeouts.md") == 4


OWN_TOOLSETS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["vmrag.toolsets"]


def test_wheel_has_the_commands_and_the_pytest_plugin(wheel: Path) -> None:
    entry_points = zipfile.ZipFile(wheel).read(f"vmrag_link-{VERSION}.dist-info/entry_points.txt").decode()
    assert entry_points.replace(" ", "").split() == [
        "[console_scripts]",
        "chroma-mcp-client=vmrag_link.toolsets.learning.command:main",
        "vmrag=vmrag_link.cli.main:main",
        "vmrag-link=vmrag_link.cli.mcp:main",
        "vmrag-mcp=vmrag_link.cli.mcp:main",
        "[pytest11]",
        "vmrag=vmrag_link.pytest_plugin.plugin",
        "[vmrag.toolsets]",
        *(f"{name}={value}" for name, value in sorted(OWN_TOOLSETS.items())),
    ]


def test_wheel_requires_index_packages_only_for_extras(wheel: Path) -> None:
    required = requirements(wheel)
    base = {canonicalize_name(requirement.name) for requirement in required if "extra" not in str(requirement.marker)}
    assert "doltlite" in base
    assert base.isdisjoint(canonicalize_name(extra) for extra in OF_EXTRAS)
    assert {"chromadb", "numpy"} <= {canonicalize_name(requirement.name) for requirement in required}


def test_wheel_has_the_table_of_tools(wheel: Path) -> None:
    assert "vmrag_mcp/tools.json" in zipfile.ZipFile(wheel).namelist()


def test_wheel_contains_the_parts_of_the_report_page(wheel: Path) -> None:
    parts = {f"vmrag_link/ops/report/page/{name}" for name in ("page.html", "parts.html", "page.css", "page.js")}
    assert parts <= set(zipfile.ZipFile(wheel).namelist())


def test_wheel_has_the_default_model_and_its_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    stated = {
        static.TABLE: static.TABLE_SHA256,
        static.CHARACTERS: static.CHARACTERS_SHA256,
        static.MERGES: static.MERGES_SHA256,
        static.GROUPS: static.GROUPS_SHA256,
    }
    for name, sha256 in stated.items():
        content = archive.read(f"vmrag_link/embedding/default_model/{name}")
        assert hashlib.sha256(content).hexdigest() == sha256
    notice = "vmrag_link/embedding/default_model/NOTICE"
    assert {notice, f"vmrag_link-{VERSION}.dist-info/licenses/{notice}"} <= set(archive.namelist())


def test_sdist_contains_the_files_for_the_checks(built: Path) -> None:
    with tarfile.open(built / f"vmrag_link-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "tests/check.py", "docs/commands.md"}
    assert expected <= names
    assert not {name for name in names if name.startswith((".venv", "dist", ".hypothesis", ".mypy_cache"))}


@pytest.mark.long
def test_base_installation_leaves_the_index_out(base: Installed) -> None:
    program = f"import importlib.util as u; print([n for n in {OF_EXTRAS!r} if u.find_spec(n)])"
    result = subprocess.run([base.python, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.long
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_base_installation_starts(base: Installed, tmp_path: Path, option: str) -> None:
    result = base.vmrag(option, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    version = f"vmrag, version {VERSION}\nextras: none\n"
    assert result.stdout == version if option == "--version" else "status" in result.stdout


def test_version_is_printed_without_loading_anything_of_weight(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom vmrag_link.cli.main import run\nrun(['--version'])\n"
        "print(sorted({'msgspec', 'yaml', 'rich', 'sqlite3', 'subprocess'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.long
def test_base_installation_keeps_documents_and_reports_missing_features(base: Installed, repo: Repo) -> None:
    """An index without documents needs no library."""
    started = base.vmrag("init", "--knowledge-base", "--no-sources", cwd=repo.top)
    assert started.returncode == 0, started.stderr
    assert (repo.top / ".dolt-version").exists()

    repo.write("docs/a.md", "# A\n")
    for command in (("import", "docs", "--collection", "handbook", "--copy"), ("commit", "-m", "first")):
        outcome = base.vmrag(*command, cwd=repo.top)
        assert outcome.returncode == 0, outcome.stderr
        assert 'pip install "vmrag-link[index]"' in outcome.stdout

    status = base.vmrag("status", "--json", cwd=repo.top)
    assert (status.returncode, status.stderr) == (1, "")
    report = json.loads(status.stdout)
    assert (report["state"], report["in_sync"], report["kb"]["engine"]) == ("drift", False, "doltlite")
    assert (report["pin"]["dolt_commit"], report["kb"]["documents"]) == (report["kb"]["revision"], 1)

    result = base.vmrag("query", "anything", "--json", cwd=repo.top)
    assert (result.returncode, result.stdout) == (2, "")
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["hint"]) == (
        "INDEX_EXTRA_MISSING",
        "run 'pip install \"vmrag-link[index]\"' to install it",
    )


@pytest.mark.long
def test_commands_without_doltlite_fail_and_create_nothing(
    wheel: Path, repo: Repo, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def install(folder: Path) -> None:
        venv.create(folder, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
        _done([*pip, "install", "-q", str(wheel)])
        _done([*pip, "uninstall", "-q", "-y", "doltlite"])

    without = Installed(build_once(tmp_path_factory, "without-doltlite", install))
    assert without.vmrag("--version", cwd=repo.top).returncode == 0
    for command in (("init", "--knowledge-base"), ("doctor",)):
        result = without.vmrag(*command, cwd=repo.top)
        said = result.stdout + result.stderr
        assert result.returncode, said
        assert "the embedded engine is not installed" in said
        assert "pip install --force-reinstall doltlite==" in said
    assert not (repo.top / ".dolt-version").exists()


@pytest.mark.long
def test_git_works_with_the_hooks_of_a_base_installation(base: Installed, repo: Repo) -> None:
    assert base.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks", cwd=repo.top).returncode == 0
    installed = base.vmrag("install", "--json", cwd=repo.top)
    assert installed.returncode == 0, installed.stderr
    hook = repo.top / ".git" / "hooks" / "post-checkout"
    assert os.access(hook, os.X_OK)

    repo.write("docs/a.md", "# A\n")
    base.vmrag("import", "docs", "--collection", "handbook", "--copy", cwd=repo.top)
    base.vmrag("commit", "-m", "first", cwd=repo.top)
    repo.git("commit", "-qm", "pin")
    moved = repo.run("checkout", "-q", "-b", "other")
    assert moved.returncode == 0
    assert 'pip install "vmrag-link[index]"' in moved.stderr
    assert "Traceback" not in moved.stderr

    assert base.vmrag("uninstall", cwd=repo.top).returncode == 0
    assert not hook.exists()


# -- the extra `dolt`


def required_on(wheel: Path, version: str) -> list[str]:
    """List the requirements of the wheel's extra `dolt` for a Python version, without the base."""
    environment = {"python_version": version, "python_full_version": f"{version}.0", "extra": "dolt"}
    result = [
        (f"{requirement.name}{requirement.specifier}", requirement.marker)
        for requirement in requirements(wheel)
        if "extra" in str(requirement.marker)
    ]
    return [name for name, marker in result if marker and marker.evaluate(environment)]


@pytest.mark.parametrize(("version", "expected"), [("3.11", 1), ("3.12", 0), ("3.13", 0), ("3.14", 0)])
def test_above_python_3_11_the_extra_requires_no_doltcli(wheel: Path, version: str, expected: int) -> None:
    needed = required_on(wheel, version)
    assert needed
    assert sum(text.startswith("doltcli") for text in needed) == expected


@pytest.mark.long
def test_extra_dolt_is_installed_without_a_compiler(wheel: Path, base: Installed, tmp_path: Path) -> None:
    """Into a copy of nothing: only what the extra adds, on the Python that runs this."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    pip = [sys.executable, "-m", "pip", "--python", base.python, "install", "-q", "--only-binary", ":all:"]
    _done([*pip, "--target", str(tmp_path / "extra"), *required_on(wheel, version)])
    names = {path.name for path in (tmp_path / "extra").iterdir()}
    assert "pymysql" in names
    assert ("doltcli" in names) == (sys.version_info < (3, 12))


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_packages_above_python_3_11_need_no_compiler_and_include_doltcli(
    wheel: Path, tmp_path: Path, version: str
) -> None:
    """pip judges markers by the Python that runs it, so they are judged here."""
    needed = required_on(wheel, version)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--only-binary", ":all:", "--no-deps"]
    _done([*pip, "--target", str(tmp_path), "--python-version", version, *needed, program.DOLTCLI])

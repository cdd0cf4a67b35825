"""Finding and rejecting the library, and messages of its failures."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from vmrag_link.engines.doltlite import library
from vmrag_link.engines.doltlite.library import Library, has_wheel_for, locate_library, sqlite_error
from vmrag_link.errors import Busy, EngineFailed

PATH = Path("/kb/kb.doltlite")
ROOT = Path(__file__).parents[2]
WHERE = {
    ("linux", "x86_64"): True,
    ("linux", "aarch64"): True,
    ("darwin", "arm64"): True,
    ("darwin", "x86_64"): False,
    ("linux", "armv7l"): False,
    ("linux", "ppc64le"): False,
    ("win32", "AMD64"): False,
    ("win32", "ARM64"): False,
}
"""Systems and machines in the notation of markers: whether doltlite has a wheel."""


def requirements() -> dict[str, str]:
    """Return the requirement of doltlite by file."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pinned = {name: (ROOT / name).read_text() for name in ("constraints.txt", "constraints-dev.txt")}
    lines = {"pyproject.toml": declared} | {name: text.splitlines() for name, text in pinned.items()}
    return {name: next(text for text in of if text.startswith("doltlite==")) for name, of in lines.items()}


@pytest.mark.parametrize(("system", "machine"), WHERE)
def test_library_is_required_on_platforms_with_a_wheel(system: str, machine: str) -> None:
    is_required = WHERE[system, machine]
    assert has_wheel_for(system, machine, glibc=system == "linux") == is_required
    for name, line in requirements().items():
        marker = Requirement(line.removesuffix("\\")).marker
        assert marker is not None
        assert marker.evaluate({"sys_platform": system, "platform_machine": machine}) == is_required, name


def test_musl_has_no_wheel_despite_the_markers() -> None:
    assert not has_wheel_for("linux", "x86_64", glibc=False)
    if sys.platform == "linux":
        libc = subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True, text=True, check=False).stdout
        assert library._has_glibc() == libc.startswith("glibc ")


def test_library_is_found_without_importing_its_package() -> None:
    program = (
        "import os, sys, sqlite3; before = dict(os.environ), sqlite3.sqlite_version\n"
        "from vmrag_link.engines.doltlite.connection import Connection\n"
        "from pathlib import Path\n"
        "version = Connection(Path(':memory:'), access='create').execute('SELECT sqlite_version()')[0][0]\n"
        "assert 'doltlite' not in sys.modules\n"
        "assert before == (dict(os.environ), sqlite3.connect(':memory:').execute('SELECT sqlite_version()').fetchone()[0])\n"
        "assert version != before[1], version"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_missing_wheel_error_names_the_installation_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(EngineFailed) as missing:
        locate_library()
    assert f"doltlite=={library.VERSION}" in missing.value.hint


def test_wheel_without_library_error_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "doltlite").mkdir()
    (tmp_path / "doltlite" / "__init__.py").write_text("raise AssertionError('never imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngineFailed, match=str(tmp_path)):
        locate_library()


def test_unloadable_library_raises_engine_failed(tmp_path: Path) -> None:
    broken = tmp_path / "libdoltlite.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(EngineFailed):
        Library(broken)


def test_different_version_is_rejected_by_name() -> None:
    mine = Library(locate_library())
    with pytest.raises(EngineFailed, match=r"v0\.52\.0.*0\.51\.3"):
        mine.require_version("v0.52.0")
    assert not mine.version_checked
    mine.require_version("v0.51.3")
    assert mine.version_checked


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (13, "full"),
        (8, "read-only"),
        (1032, "read-only"),
        (11, "damaged"),
        (26, "not a knowledge base"),
        (778, "file system"),
    ],
)
def test_failure_is_a_sentence_for_a_person_with_a_hint(code: int, word: str) -> None:
    error = sqlite_error(code, "what SQLite said", PATH)
    assert isinstance(error, EngineFailed)
    assert word in error.message
    assert error.hint
    assert error.details == {"sqlite_code": code, "sqlite_message": "what SQLite said", "path": str(PATH)}


def test_foreign_writer_is_busy() -> None:
    assert isinstance(sqlite_error(517, "m", PATH), Busy)

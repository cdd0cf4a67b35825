"""The files of a Dolt database: tables of pieces, and the manifests that name them.

A repository of links lets Dolt open some of these files and change none.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from vmrag_link.engines.base import DOLT_FOLDER, ROOT_BRANCH
from vmrag_link.engines.dolt import program
from vmrag_link.errors import EngineFailed
from vmrag_link.paths import read_regular, write_atomically

MANIFEST = "manifest"
JOURNAL = "v" * 32
"""The table to which Dolt appends what is written here. A remote has none."""

_ARCHIVE = ".darc"
_OLDER = "oldgen"
_LONGEST_MANIFEST = 10_000_000
_HASH = r"[0-9a-v]{32}"
_TABLES = re.compile(rf"5:__DOLT__((?::{_HASH}){{3}})((?::{_HASH}:[0-9]{{1,10}})*)")
_CHECKED_NAME = "checked-tables.json"
_NO_STATE = f'{{"head": "refs/heads/{ROOT_BRANCH}", "remotes": {{}}, "backups": {{}}, "branches": {{}}}}'

_EMPTY_ROOT = "6moj336e6hdf3rpabcs94mo9uivoins7"
_EMPTY_TABLE = "2bh2nf90jhvhn65820hf1mdjhr5vdocn"
_EMPTY_CONTENT = bytes.fromhex(
    "8c01f08b1b0000881000000053545254000006000800040006000000040000006c0000001b0000681c000000"
    "4144524d0000000000000e001c00180014001000000004000e0000000100000000000000000000000c000000"
    "20000000240000001400000000000000000000000000000000000000000000000200000000000c000c000000"
    "776f726b696e67536574732f36154e8b35b1318cce345af10000000000000094ef2a5b38925b09f4bf895f87"
    "00000001000000000000008cffb5d8c22463ee50"
)
"""A table with the root of a database that has no branch, as Dolt writes one."""


def read_manifest(folder: Path) -> bytes:
    """The manifest of the tables in a folder. Raises `OSError`."""
    return read_regular(folder / MANIFEST, _LONGEST_MANIFEST)


def parse_table_counts(manifest: bytes) -> dict[str, str] | None:
    """How many pieces each table has that a manifest names; None for any other text."""
    found = _TABLES.fullmatch(manifest.decode(errors="replace"))
    words = found[2].split(":")[1:] if found else []
    return dict(zip(words[::2], words[1::2], strict=True)) if found else None


def find_table_file(folder: Path, name: str) -> Path | None:
    """The file of a table, of either format."""
    return next((path for path in (folder / name, folder / f"{name}{_ARCHIVE}") if path.is_file()), None)


@contextlib.contextmanager
def linked_repository(manifest: bytes, tables: Iterable[Path]) -> Iterator[Path]:
    """A repository in a temporary folder that has this manifest, and links to the tables."""
    with tempfile.TemporaryDirectory(prefix="vmrag-dolt-") as folder:
        noms = Path(folder, DOLT_FOLDER, "noms")
        (noms / _OLDER).mkdir(parents=True)
        for file in tables:
            (noms / file.name).symlink_to(file)
        (noms / MANIFEST).write_bytes(manifest)
        Path(folder, DOLT_FOLDER, "repo_state.json").write_text(_NO_STATE)
        yield Path(folder)


def require_valid_tables(folder: Path, binary: str) -> None:
    """Check that every piece of the tables that came since the last check is what its hash names.

    Dolt believes what a remote says. Raises `EngineFailed`.
    """
    noms = folder / DOLT_FOLDER / "noms"
    tables = _tables_in(noms / _OLDER) | _tables_in(noms)
    new = {path: count for path, count in tables.items() if path.name not in _read_checked(folder)}
    if new:
        names = ":".join(f"{path.name.removesuffix(_ARCHIVE)}:{count}" for path, count in new.items())
        manifest = f"5:__DOLT__:{_EMPTY_ROOT}:{_EMPTY_ROOT}:{'0' * 32}:{_EMPTY_TABLE}:1:{names}".encode()
        with linked_repository(manifest, new) as repository:
            (repository / DOLT_FOLDER / "noms" / _EMPTY_TABLE).write_bytes(_EMPTY_CONTENT)
            program.check_repository(repository, binary)
    with contextlib.suppress(OSError):  # it spares the next fetch a check
        write_atomically(folder / _CHECKED_NAME, msgspec.json.encode([path.name for path in tables]), durable=False)


def _tables_in(folder: Path) -> dict[Path, str]:
    """The tables that the manifest of a folder names, with their counts, but for the journal."""
    try:
        counts = parse_table_counts(read_manifest(folder))
    except FileNotFoundError:
        return {}
    files = {find_table_file(folder, name): count for name, count in (counts or {}).items() if name != JOURNAL}
    if counts is None or None in files:
        raise EngineFailed(f"The manifest in {folder} names files that are not there.", hint="vmrag doctor")
    return {path: count for path, count in files.items() if path}


def _read_checked(folder: Path) -> frozenset[str]:
    try:
        return msgspec.json.decode((folder / _CHECKED_NAME).read_bytes(), type=frozenset[str])
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return frozenset()

"""The files of a Dolt database: table files, and the manifests that name them.

Dolt opens a linked repository with some of these files and changes none of them.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from vmrag_link.engines.dolt import program
from vmrag_link.engines.folder import DOLT_FOLDER
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.errors import EngineFailed
from vmrag_link.file_access import read_regular, write_atomically

MANIFEST = "manifest"
JOURNAL = "v" * 32
"""The table file to which Dolt appends new data. A remote has none."""

_ARCHIVE = ".darc"
_OLDER = "oldgen"
_MAX_MANIFEST_BYTES = 10_000_000
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
"""A table file with the root of a database that has no branch, in Dolt's format."""


def read_manifest(folder: Path) -> bytes:
    """Return the manifest of the table files in a folder. Raises `OSError`."""
    return read_regular(folder / MANIFEST, _MAX_MANIFEST_BYTES)


def parse_table_counts(manifest: bytes) -> dict[str, str] | None:
    """Return the number of chunks of each table file in a manifest, or None for another text."""
    match = _TABLES.fullmatch(manifest.decode(errors="replace"))
    words = match[2].split(":")[1:] if match else []
    return dict(zip(words[::2], words[1::2], strict=True)) if match else None


def find_table_file(folder: Path, name: str) -> Path | None:
    """Return the path of a table file, in either format, or None."""
    return next((path for path in (folder / name, folder / f"{name}{_ARCHIVE}") if path.is_file()), None)


@contextlib.contextmanager
def linked_repository(manifest: bytes, tables: Iterable[Path]) -> Iterator[Path]:
    """Create a temporary repository with this manifest and links to the table files."""
    with tempfile.TemporaryDirectory(prefix="vmrag-dolt-") as folder:
        noms = Path(folder, DOLT_FOLDER, "noms")
        (noms / _OLDER).mkdir(parents=True)
        for file in tables:
            (noms / file.name).symlink_to(file)
        (noms / MANIFEST).write_bytes(manifest)
        Path(folder, DOLT_FOLDER, "repo_state.json").write_text(_NO_STATE)
        yield Path(folder)


def require_valid_tables(folder: Path, binary: str) -> None:
    """Check that every chunk in new table files matches the hash that names it.

    Dolt does not check the data of a remote. Files that an earlier call checked are skipped. Raises
    `EngineFailed`.
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
    with contextlib.suppress(OSError):  # the file only saves the next fetch a check
        write_atomically(folder / _CHECKED_NAME, msgspec.json.encode([path.name for path in tables]), durable=False)


def _tables_in(folder: Path) -> dict[Path, str]:
    """Return the table files in the manifest of a folder, with their counts.

    The journal is left out.
    """
    try:
        counts = parse_table_counts(read_manifest(folder))
    except FileNotFoundError:
        return {}
    files = {find_table_file(folder, name): count for name, count in (counts or {}).items() if name != JOURNAL}
    if counts is None or None in files:
        raise EngineFailed(
            f"the manifest in {folder} refers to missing files.", hint="run 'vmrag doctor' to find the problem"
        )
    return {path: count for path, count in files.items() if path}


def _read_checked(folder: Path) -> frozenset[str]:
    try:
        return msgspec.json.decode((folder / _CHECKED_NAME).read_bytes(), type=frozenset[str])
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return frozenset()

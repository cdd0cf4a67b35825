"""Whether to trust an index directory: its name, its format and its seal.

A checkout asks that of indexes that are there, and loads no more than this needs.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec

from vmrag_link.errors import IndexFailed
from vmrag_link.index import seal
from vmrag_link.models import canonical_json

FORMAT = "3"
"""Rises with every change of what lies in an index directory or of how texts are cut.

Where answers change with it, `retrieval.fusion.VERSION` rises, too.
"""


def directory_suffix(**decisive: object) -> str:
    """Eight hex digits of what decides a directory besides a revision's own rows: the format, and
    `decisive` values.

    The rows name models, chunking and distances. A checksum suffices for the few possible values,
    and saves every checkout from loading cryptography.
    """
    return f"{zlib.crc32(canonical_json({'format': FORMAT, **decisive}).encode()):08x}"


SUFFIX = directory_suffix()
"""Of the directories of indexes."""


def unusable(folder: Path, problem: str) -> IndexFailed:
    return IndexFailed(
        f"The index {folder.name} does not verify: {problem}.",
        hint="It is derived; 'vmrag sync --rebuild' builds it again.",
        folder=str(folder),
    )


def problem_of(folder: Path, *, revision: str) -> str:
    """Why a sealed index must not be served; empty if it verifies.

    Reads two small files, and the contents of the others where `seal` says that this is due.
    """
    if not folder.is_dir():
        return "it is not there"
    try:
        found = seal.read(folder)
    except FileNotFoundError:
        return "it was never finished" if folder.is_dir() else "it is being removed"
    except (IsADirectoryError, UnicodeDecodeError, msgspec.DecodeError) as error:
        return f"{seal.SEAL} cannot be read ({error})"
    if (found.format, found.revision) != (FORMAT, revision):
        return f"it was sealed as revision {found.revision} in format {found.format}"
    return seal.problem(folder)

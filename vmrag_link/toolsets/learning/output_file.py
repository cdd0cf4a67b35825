"""Where a result may be written that an agent asks for.

An agent may have the path from a stranger's text. So the file has a name that no other program
reads, and nothing is overwritten but an earlier result.
"""

from __future__ import annotations

from pathlib import Path

from vmrag_link.errors import UsageInvalid
from vmrag_link.models import json_from_user
from vmrag_link.ops.documents import named_files as files
from vmrag_link.paths import read_regular
from vmrag_link.workspace import Workspace

ENDING = "evidence.json"

_MOST = 1_000_000
"""Bytes of a result that is there."""


def find(ws: Workspace, path: str) -> Path:
    """The file that an agent means, in a folder that is there and none of whose names begins with a
    dot.

    Raises `AccessDenied` as `files.find`, and `UsageInvalid`.
    """
    found = files.find(ws, path)
    hidden = any(part.startswith(".") for part in Path(files.key_of(ws.places, found)).parts)
    if not found.path.name.endswith(ENDING) or hidden or found.path != found.target:
        raise _refusal(path, f"its name must end in {ENDING}, outside of folders that begin with a dot, and be no link")
    if not found.path.parent.is_dir():
        raise _refusal(path, "its folder is not there")
    if found.path.exists() and not _is_result(found.path):
        raise _refusal(path, "it holds something else already, which is not overwritten")
    return found.path


def _is_result(path: Path) -> bool:
    try:
        held = json_from_user(read_regular(path, _MOST).decode())
    except ValueError:
        return False
    return isinstance(held, dict) and "evidence_id" in held


def _refusal(path: str, why: str) -> UsageInvalid:
    return UsageInvalid(
        f"{path!r} is not written: {why}.", hint=f"For example: {ENDING}", parameter="output_file", value=path
    )

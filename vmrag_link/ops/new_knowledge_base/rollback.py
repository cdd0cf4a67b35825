"""Revert a failed start of a knowledge base, for tools and for the first document of a command."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from vmrag_link.errors import GitFailed
from vmrag_link.file_access import write_atomically
from vmrag_link.git import listing, own_keys
from vmrag_link.ops.new_knowledge_base.knowledge_base import require_no_links
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins.pinning import ATTRIBUTES

_KEPT_NAMES = frozenset(("locks", "logs", "embeddings.sqlite"))
"""Names in the folder of the knowledge base that the next attempt also needs."""


@contextlib.contextmanager
def all_or_nothing(ws: Workspace) -> Iterator[None]:
    """If the block fails, remove the knowledge base, and restore work tree, index and
    configuration.
    """
    require_no_links(ws.places)
    files = (ws.places.config, ws.places.pin, ws.places.top / ATTRIBUTES)
    contents = {path: path.read_bytes() if path.is_file() else None for path in files}
    index_entries = listing.read_index_entries(ws.places, files)
    code_branch = ws.read_trigger().branch or ""
    kb_branch = own_keys.find_kb_branch(ws.places, code_branch)
    names_by_folder = {folder: _list_names(folder) for folder in (ws.places.shared, ws.places.work_tree_folder)}
    try:
        yield
    except BaseException:  # also if the call was cancelled
        ws.close()
        ws.reload_settings()
        for folder, names in names_by_folder.items():
            _remove_new_paths(folder, names)
        for path, content in contents.items():
            _restore_file(path, content)
        with contextlib.suppress(GitFailed):  # the error of the block is more helpful
            listing.restore_index_entries(ws.places, files, index_entries)
        if kb_branch is None:
            own_keys.forget_kb_branch(ws.places, code_branch)
        else:
            own_keys.set_kb_branch(ws.places, code_branch, kb_branch)
        raise


def _list_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _remove_new_paths(folder: Path, names_before: Collection[str]) -> None:
    for name in _list_names(folder).difference(names_before, _KEPT_NAMES):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _restore_file(path: Path, content: bytes | None) -> None:
    """Write the former content, or remove a file that did not exist (None)."""
    if content is None:
        path.unlink(missing_ok=True)
    elif not path.is_file() or path.read_bytes() != content:
        write_atomically(path, content)

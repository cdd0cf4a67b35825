"""The files of HEAD's commit that are in Chroma's store on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.errors import VmragError, file_failures
from vmrag_link.git import plumbing
from vmrag_link.index.view import SUFFIX
from vmrag_link.sync.chroma_state import CommittedFiles, name_files
from vmrag_link.workspace.source_index import require_complete

if TYPE_CHECKING:
    from vmrag_link.settings import Config
    from vmrag_link.workspace import Workspace


def bind_files(ws: Workspace) -> None:
    """Index the files of HEAD's commit, and bind them to this worktree's store.

    Edited files are left out, because a store does not change. The files of all collections are
    indexed. A collection that the knowledge base also stores is hidden later, when the store is
    built (`OpenIndex`). Raises `SourcesIncomplete`, and the errors of
    `SourceIndex.open_commit`.
    """
    chroma, commit = ws.chroma.local, plumbing.read_head(ws.places).commit
    if not chroma.rules or commit is None:
        with file_failures():
            chroma.bind_files(None)
        return
    config = select_sources(ws, ws.sources.read_config_at(commit))
    previous_percent = -1
    while True:  # each turn continues indexing
        with file_failures(), ws.source_index.open_commit(commit, config, stored=()) as opened:
            if opened is None or opened.is_complete:
                view = opened.folder.name.removesuffix(f"-{SUFFIX}") if opened and opened.collections else ""
                chroma.bind_files(CommittedFiles(commit, chroma.rules, view))
                return
            percent = opened.indexed
        if percent <= previous_percent:  # no progress, so this raises an error
            require_complete({}, (), indexed=percent)
        previous_percent = percent


def select_sources(ws: Workspace, config: Config) -> Config:
    """Return the settings with only those sources whose files are in a store."""
    if ws.config.chroma.sources == "all":
        return config
    sources = tuple(source for source in config.sources if source.kind == "document")
    return msgspec.structs.replace(config, sources=sources)


def bind_lacking_files(ws: Workspace, log: Callable[[str], None]) -> None:
    """Update the files of this worktree's store if they are at another commit than HEAD.

    A failure is recorded, and the store is built without files.
    """
    chroma = ws.chroma.local
    if not chroma.lacks_files():
        return
    name = name_files(plumbing.read_head(ws.places).commit)
    chroma.note_start(name)
    try:
        bind_files(ws)
    except VmragError as error:
        log(f"failed: {error.message}")
        chroma.bind_files(None)
        chroma.note_failure(name, error)
    else:
        chroma.forget_failure(name)

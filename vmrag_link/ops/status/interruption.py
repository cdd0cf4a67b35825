"""Describe what a command that you interrupted by Ctrl-C has left.

A *stamp* is a value that changes if a program writes to the files of the knowledge base.
"""

from __future__ import annotations

from vmrag_link.engines import opening
from vmrag_link.engines.folder import SERVER_FILE, Stamp
from vmrag_link.journal import ReplayEntry
from vmrag_link.sync import background
from vmrag_link.workspace import Workspace


def take_stamp(ws: Workspace) -> Stamp:
    """Return the stamp before a command, for `describe_interruption`."""
    return opening.read_stamp(ws.places.kb)


def describe_interruption(ws: Workspace, before: Stamp) -> str:
    """Describe what is stored after an interrupted command, and what later commands continue.

    It only reads files: it waits for nothing and updates nothing.
    """
    shared = (ws.places.kb / SERVER_FILE).exists()  # a server has no stamp
    if not shared and take_stamp(ws) == before:
        sentences = ["The knowledge base did not change."]
    else:
        sentences = ["Everything stored before the interruption is kept (vmrag status)."]
    if _has_unfinished_commit(ws):
        sentences.append("The next vmrag command finishes the interrupted commit.")
    elif _is_index_behind(ws):
        sentences.append("The next vmrag command updates the index.")
    if ws.places.merge.exists() or ws.places.merge_in_git.exists():
        sentences.append("Decisions about the merge are kept; 'vmrag resolve' continues it.")
    if background.is_running(background.get_sync_job(ws.places)):
        sentences.append("A sync continues in the background (vmrag status).")
    return " ".join(sentences)


def _has_unfinished_commit(ws: Workspace) -> bool:
    git_dir = str(ws.places.git_dir)
    return any(
        isinstance(entry, ReplayEntry) or (entry and entry.git_dir == git_dir) for _, entry in ws.journal.list_entries()
    )


def _is_index_behind(ws: Workspace) -> bool:
    position = ws.position
    bound = position.binding
    if position.followed and (bound is None or bound.revision != position.followed):
        return True
    marks = (*ws.places.working_copies.glob("*.writing"), *ws.places.working_copies.glob("*.behind"))
    return bool(marks)

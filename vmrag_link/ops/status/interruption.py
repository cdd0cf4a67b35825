"""What a command that was interrupted leaves behind."""

from __future__ import annotations

from vmrag_link.engines import opening
from vmrag_link.engines.base import SERVER_FILE
from vmrag_link.engines.base_session import Stamp
from vmrag_link.journal import ReplayEntry
from vmrag_link.sync import background
from vmrag_link.workspace import Workspace


def take_stamp(ws: Workspace) -> Stamp:
    """Where the knowledge base stands before a command: `sentence` compares it."""
    return opening.read_stamp(ws.places.kb)


def describe_interruption(ws: Workspace, before: Stamp) -> str:
    """What is stored of an interrupted command, and what goes on later.

    Looks at files alone: nothing is waited for or brought anywhere.
    """
    shared = (ws.places.kb / SERVER_FILE).exists()  # there nothing tells
    unchanged = not shared and take_stamp(ws) == before
    said = ["The knowledge base is as it was." if unchanged else "What was stored until then is kept (vmrag status)."]
    if _begun(ws):
        said.append("The next vmrag command finishes the commit that was begun.")
    elif _behind(ws):
        said.append("The index follows with the next vmrag command.")
    if ws.places.merge.exists() or ws.places.merge_in_git.exists():
        said.append("What was decided about the merge is kept; vmrag resolve goes on with it.")
    if background.is_running(background.get_sync_job(ws.places)):
        said.append("A sync goes on in the background (vmrag status).")
    return " ".join(said)


def _begun(ws: Workspace) -> bool:
    entries = (entry for _, entry in ws.journal.list_entries())
    return any(isinstance(each, ReplayEntry) or (each and each.git_dir == str(ws.places.git_dir)) for each in entries)


def _behind(ws: Workspace) -> bool:
    position = ws.position
    bound, followed = position.binding, position.followed
    if followed and (bound is None or bound.revision != followed):
        return True
    return any(any(ws.places.working_copies.glob(f"*.{mark}")) for mark in ("writing", "behind"))

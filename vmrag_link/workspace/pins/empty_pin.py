"""Advise to remove the pin of a knowledge base without documents.

`vmrag init --sources` of version 0.1 wrote such pins. Now files need neither a knowledge base nor a
pin.
"""

from __future__ import annotations

import contextlib

from vmrag_link import hints, permissions
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins import history_pins

MESSAGE = "the knowledge base of this repository has no documents, so it needs no pin."
UNINSTALL = "vmrag uninstall --all"
REMOVE_PIN = f'{UNINSTALL} && git checkout -- {CONFIG_NAME} && git commit -am "Remove the empty pin"'

_MARKER = "empty-pin"
"""Name of a file in `.git/vmrag`, which exists after `describe_once` was called in this clone."""


def is_empty(ws: Workspace) -> bool:
    """Return whether files answer, and neither a KB branch nor a pin in a git ref has documents."""
    if not (ws.is_initialized and ws.sources.configured):
        return False
    engine = ws.engine
    if any(branch.dirty or engine.count_documents(branch.head) for branch in engine.list_branches()):
        return False
    revisions = {pin.dolt_commit for pin, _ in history_pins.read_pins(ws.places, reflogs=False)}
    return all(engine.has_revision(revision) and not engine.count_documents(revision) for revision in revisions)


def describe_once(ws: Workspace) -> str:
    """Return the hint to remove an empty pin.

    The text is empty for other pins, and after the first call in a clone.
    """
    is_first_call = ws.is_initialized and bool(ws.sources.configured) and mark_clone(ws)
    if not (is_first_call and is_empty(ws)):
        return ""
    return hints.suggest_command(REMOVE_PIN, "remove the pin, which has no documents")


def form_uninstall(ws: Workspace) -> str:
    """Return the command that removes an empty knowledge base, if HEAD has no pin."""
    return f"{UNINSTALL} && git checkout -- {CONFIG_NAME}" if ws.places.config.exists() else UNINSTALL


def mark_clone(ws: Workspace) -> bool:
    """Mark this clone as checked. Return whether the mark is new."""
    marker = ws.places.shared / _MARKER
    if marker.exists():
        return False
    with contextlib.suppress(OSError):
        permissions.make_file(marker)
    return marker.exists()

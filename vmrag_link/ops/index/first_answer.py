"""What an answer says once where nothing is set up, and files of sources answered."""

from __future__ import annotations

import contextlib

from vmrag_link import permissions
from vmrag_link.ops.follow.provenance import KbBlock
from vmrag_link.paths import TREE
from vmrag_link.workspace import Workspace

SAID = "said"
"""In `.git/vmrag/tree`: it was said in this repository."""

NOT_SET_UP = "Nothing is set up here: files that git tracks have answered. To keep it so for everybody: vmrag init"


def how_to_keep(ws: Workspace, kb: KbBlock) -> str:
    """What to type to go on from an answer; empty where there is a knowledge base, or it was said
    before.
    """
    if kb.commit or kb.sources is None or not ws.sources.proposed:
        return ""
    folder = ws.places.shared / TREE
    marker = folder / SAID
    if marker.exists():
        return ""
    with contextlib.suppress(OSError):
        permissions.make_folder(folder)
        permissions.make_file(marker)
    return NOT_SET_UP

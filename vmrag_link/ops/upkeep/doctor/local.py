"""What stays on this machine alone, if `system.versioned` says so: thoughts, chats, evidence."""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_link.ops.system import relocation
from vmrag_link.ops.upkeep.doctor.findings import Finding, Topic
from vmrag_link.workspace import Workspace


def check(ws: Workspace) -> Iterator[Finding]:
    """Is it sound, as the knowledge base has to be? And is everything where the setting says?"""
    folder = ws.places.local_kb
    if ws.local.there and (damage := ws.local.engine.damage()):
        yield Finding("LOCAL_DAMAGED", "error", damage, ws.local.remedy, str(folder))
    if ws.initialized and (told := relocation.told(ws, committed=True)):
        yield Finding("SYSTEM_MISPLACED", "note", told, relocation.COMMAND, str(folder))


TOPIC = Topic("this machine's own", check)

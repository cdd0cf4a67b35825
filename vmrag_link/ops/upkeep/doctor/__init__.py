"""`vmrag doctor`: the topics that it checks, with the repairs that lose nothing."""

from __future__ import annotations

from vmrag_link.ops.upkeep.doctor import chroma, committed, indexes, knowledge, machine, processes
from vmrag_link.ops.upkeep.doctor.findings import DoctorReport, Finding, Looked, Mended, Topic, doctor

__all__ = ["TOPICS", "DoctorReport", "Finding", "Looked", "Mended", "Topic", "doctor"]

TOPICS = (
    machine.PROGRAMS,
    machine.DISK,
    processes.LOCKS,
    committed.SETTINGS,
    committed.TOOLSETS,
    knowledge.KNOWLEDGE,
    knowledge.JOURNAL,
    knowledge.LOCAL,
    committed.PIN,
    committed.ATTRIBUTED,
    indexes.VECTORS,
    indexes.VIEWS,
    indexes.COPIES,
    chroma.STORES,
    chroma.SERVER,
    indexes.SYNC,
    knowledge.REMOTE,
    knowledge.LINKS,
    processes.LEFT,
)
"""In the order of checks and repairs: causes come before their consequences."""

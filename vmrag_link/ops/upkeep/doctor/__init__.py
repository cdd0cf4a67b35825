"""`vmrag doctor`: one module a topic, each of which looks at what can be broken there and knows the repairs that lose nothing."""

from __future__ import annotations

from vmrag_link.ops.upkeep.doctor import configuration, disk, indexes, knowledge, pinned, processes, programs, remote
from vmrag_link.ops.upkeep.doctor.examination import DoctorReport, Looked, Mended, doctor
from vmrag_link.ops.upkeep.doctor.findings import Finding, Topic

__all__ = ["TOPICS", "DoctorReport", "Finding", "Looked", "Mended", "Topic", "doctor"]

TOPICS = (
    programs.TOPIC,
    disk.TOPIC,
    processes.LOCKS,
    configuration.TOPIC,
    knowledge.KNOWLEDGE,
    knowledge.JOURNAL,
    pinned.PIN,
    pinned.ATTRIBUTED,
    indexes.VECTORS,
    indexes.SNAPSHOTS,
    indexes.COPIES,
    indexes.SYNC,
    remote.TOPIC,
    knowledge.LINKS,
    processes.LEFT,
)
"""In the order in which they are looked at and mended: causes come before what follows from them.
"""

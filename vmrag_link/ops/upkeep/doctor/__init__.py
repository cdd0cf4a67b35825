"""`vmrag doctor`: a module per topic, with checks and the repairs that lose nothing."""

from __future__ import annotations

from vmrag_link.ops.upkeep.doctor import (
    chroma,
    chroma_server,
    configuration,
    disk,
    indexes,
    knowledge,
    local,
    pinned,
    processes,
    programs,
    remote,
)
from vmrag_link.ops.upkeep.doctor.examination import DoctorReport, Looked, Mended, doctor
from vmrag_link.ops.upkeep.doctor.findings import Finding, Topic

__all__ = ["TOPICS", "DoctorReport", "Finding", "Looked", "Mended", "Topic", "doctor"]

TOPICS = (
    programs.TOPIC,
    disk.TOPIC,
    processes.LOCKS,
    configuration.TOPIC,
    configuration.TOOLSETS,
    knowledge.KNOWLEDGE,
    knowledge.JOURNAL,
    local.TOPIC,
    pinned.PIN,
    pinned.ATTRIBUTED,
    indexes.VECTORS,
    indexes.VIEWS,
    indexes.COPIES,
    chroma.TOPIC,
    chroma_server.TOPIC,
    indexes.SYNC,
    remote.TOPIC,
    knowledge.LINKS,
    processes.LEFT,
)
"""In the order of checks and repairs: causes come before their consequences."""

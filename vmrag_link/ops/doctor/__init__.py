"""`vmrag doctor`: the topics that it checks, with repairs that lose nothing."""

from __future__ import annotations

from vmrag_link.ops.doctor import chroma, committed, indexes, knowledge, leftovers, machine, remotes

TOPICS = (
    machine.PROGRAMS,
    machine.DISK,
    leftovers.LOCKS,
    committed.SETTINGS,
    committed.TOOLSETS,
    knowledge.KNOWLEDGE,
    knowledge.JOURNAL,
    knowledge.LOCAL,
    committed.PIN,
    committed.PIN_ATTRIBUTES,
    indexes.VECTORS,
    indexes.VIEWS,
    indexes.COPIES,
    indexes.SOURCES,
    indexes.NOTES,
    indexes.LOCAL_INDEX,
    chroma.STORES,
    chroma.SERVER,
    indexes.SYNC,
    remotes.COPIES,
    remotes.REMOTE,
    knowledge.LINKS,
    leftovers.LEFTOVERS,
)
"""In the order of checks and repairs: causes come before their consequences."""

"""The expected state in plain dictionaries: git's commits by the documents they pin, KB branches by
their uncommitted documents.

git itself provides the ancestry of commits and the content of its own files; this module decides
the meaning of a pin and the location of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Key = tuple[str, str]
"""Collection and document id."""
Docs = Mapping[Key, str]
"""Texts."""


class Join(NamedTuple):
    """Three document sets merged; a document in `conflicts` is as in ours."""

    docs: Docs
    conflicts: frozenset[Key]


def three_way(base: Docs, ours: Docs, theirs: Docs) -> Join:
    """Accept a change of one side, and equal changes of both sides; all else is a conflict."""
    docs, conflicts = dict(ours), set()
    for key in {*base, *ours, *theirs}:
        before, our, their = base.get(key), ours.get(key), theirs.get(key)
        if their in (our, before):
            continue
        if our != before:
            conflicts.add(key)
        elif their is None:
            del docs[key]
        else:
            docs[key] = their
    return Join(docs, frozenset(conflicts))


def settled(base: Docs, ours: Docs, theirs: Docs, side: str) -> Docs:
    """The merge with every conflict decided for one side: `ours` or `theirs`."""
    join = three_way(base, ours, theirs)
    if side == "ours":
        return join.docs
    docs = {key: text for key, text in join.docs.items() if key not in join.conflicts}
    return docs | {key: theirs[key] for key in join.conflicts if key in theirs}


def changed(base: Docs, docs: Docs) -> dict[Key, str]:
    """How each document differs: added, modified or removed."""
    kinds = {key: "added" if key not in base else "modified" for key in docs if base.get(key) != docs[key]}
    return kinds | {key: "removed" for key in base if key not in docs}


class Unsaved(NamedTuple):
    """The documents of a KB branch, uncommitted ones included, and the revision that they were
    written on.
    """

    base: str
    docs: Docs


class Memory(NamedTuple):
    """Changes of `base` that the revision `head` contains, too: with them the documents are `docs`.

    `shown`: the documents after the KB branch moved to `head`.
    """

    base: str
    docs: Docs
    head: str
    shown: Docs


@dataclass
class Model:
    """The model of one repository.

    `claims`: (code branch, KB branch) in the order of the git configuration; a KB branch belongs to
    the first claim of it. `kept`: documents that a conflict has stashed, by the KB branch in the
    message.
    """

    revisions: dict[str, Docs] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    claims: list[tuple[str, str]] = field(default_factory=list)
    unsaved: dict[str, Unsaved] = field(default_factory=dict)
    kept: dict[str, Unsaved] = field(default_factory=dict)

    def docs(self, commit: str) -> Docs:
        return self.revisions[self.commits[commit]]

    # -- KB branches -------------------------------------------------------------------------------

    def kb_branch(self, code: str | None) -> str | None:
        for claimant, kb in self.claims:
            if claimant == code and self.owner(kb) == code:
                return kb
        return None

    def owner(self, kb: str) -> str | None:
        return next((claimant for claimant, name in self.claims if name == kb), None)

    def claim(self, code: str, kb: str) -> None:
        """git replaces a branch's existing entry, or appends a new one."""
        places = [number for number, (claimant, _) in enumerate(self.claims) if claimant == code]
        for number in places[:1]:
            self.claims[number] = (code, kb)
        if not places:
            self.claims.append((code, kb))

    def rename_branch(self, old: str, new: str) -> None:
        self.claims = [(new if code == old else code, kb) for code, kb in self.claims]

    def copy_branch(self, old: str, new: str) -> None:
        """git puts the copy right behind the original."""
        for number, (code, kb) in enumerate(self.claims):
            if code == old:
                self.claims.insert(number + 1, (new, kb))
                return

    def delete_branch(self, code: str) -> None:
        self.claims = [claim for claim in self.claims if claim[0] != code]

    # -- documents ---------------------------------------------------------------------------------

    def visible(self, code: str | None, pin: str) -> Docs:
        kb = self.kb_branch(code)
        return self.unsaved[kb].docs if kb in self.unsaved else self.revisions[pin]

    def follow(
        self, code: str | None, pin: str, memory: Memory | None, is_ancestor: Callable[[str, str], bool]
    ) -> str | None:
        """Move uncommitted documents as a sync does: replay them if the pin has moved, and stash
        them on a conflict.

        Returns the KB branch of the conflict.
        """
        kb = self.kb_branch(code)
        if kb is None or not (kb in self.unsaved or memory):
            return None
        held = self.unsaved.get(kb) or Unsaved(memory.head, self.revisions[memory.head]) if memory else self.unsaved[kb]
        if held.base == pin:
            return None
        join = self.restored(held, pin, memory, is_ancestor)
        if join is None:
            join = three_way(self.revisions[held.base], self.revisions[pin], held.docs)
        if join.conflicts:
            self.unsaved.pop(kb, None)
            return kb
        self.store(kb, pin, join.docs)
        return None

    def restored(
        self, held: Unsaved, pin: str, memory: Memory | None, is_ancestor: Callable[[str, str], bool]
    ) -> Join | None:
        """The documents with those changes that the last revision contained; None if they do not
        apply.
        """
        if memory is None or memory.head != held.base:
            return None
        if is_ancestor(held.base, pin) and not is_ancestor(held.base, memory.base):
            return None
        everything = three_way(memory.shown, memory.docs, held.docs)
        if everything.conflicts:
            return None
        join = three_way(self.revisions[memory.base], self.revisions[pin], everything.docs)
        return None if join.conflicts else join

    def store(self, kb: str, base: str, docs: Docs) -> None:
        if docs == self.revisions[base]:
            self.unsaved.pop(kb, None)
        else:
            self.unsaved[kb] = Unsaved(base, docs)


def virtual_base(
    bases: Sequence[str], docs: Callable[[str], Docs], merge_bases: Callable[[str, str], Sequence[str]]
) -> Docs:
    """Return the base of a merge with several best common ancestors: git merges them first.

    A document that conflicts there equals neither side.
    """
    merged = docs(bases[0])
    for number, other in enumerate(bases[1:]):
        join = three_way(virtual_base(merge_bases(bases[number], other), docs, merge_bases), merged, docs(other))
        merged = {**join.docs, **dict.fromkeys(join.conflicts, f"{bases} in conflict")}
    return merged

"""What was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vmrag_link.errors import CollectionMissing


def nearest(name: str, there: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The most similar of the names, None if none is similar enough (`difflib`'s ratio, 0 to 1)."""
    import difflib  # only where something is wrong already

    found = difflib.get_close_matches(name, list(there), n=1, cutoff=cutoff)
    return found[0] if found else None


def no_collection(name: str, there: Sequence[str]) -> CollectionMissing:
    near = nearest(name, there)
    return CollectionMissing(
        f"There is no collection {name!r}." + (f" Is it {near!r}?" if near else ""),
        hint=f"There are: {', '.join(there)}." if there else "vmrag import DIR --collection NAME (makes the first one)",
        collection_name=name,
        collections=list(there),
    )

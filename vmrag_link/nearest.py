"""What was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, there: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The most similar of the names, None if none is similar enough (`difflib`'s ratio, 0 to 1)."""
    import difflib  # only where something is wrong already

    found = difflib.get_close_matches(name, list(there), n=1, cutoff=cutoff)
    return found[0] if found else None

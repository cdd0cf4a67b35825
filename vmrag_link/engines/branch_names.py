"""Which names branches of a knowledge base can have, in every engine."""

from __future__ import annotations

import re

_ILLEGAL = r"""(?x)[^!-~] | [~^:?*\[\\] | \.\. | // | @\{ | ^[-/] | [/.]$ | (^|/)\. | \.lock(/|$) | ^@$"""
_TAKEN = frozenset({"head", "working", "staged"})
_LONGEST = 200
_REVISION = r"(?i)[0-9a-f]{40}|[0-9a-v]{32}"


def legal(name: str) -> bool:
    """Whether each engine can carry a branch of that name, so that a knowledge base can change its
    engine.
    """
    return (
        0 < len(name) <= _LONGEST
        and not re.search(_ILLEGAL, name)
        and name.lower() not in _TAKEN
        and not re.fullmatch(_REVISION, name)
    )

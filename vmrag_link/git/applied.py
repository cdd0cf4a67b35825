"""The file `applied`: HEAD's symbolic name and the pin's bytes, as last applied to a work tree.

    refs/heads/main | detached
    pin | nopin
    <the pin's bytes, verbatim>

Written by Python, compared by the hook shims with nothing but `read`: hence lines, and no JSON.
"""

from __future__ import annotations

import os

DETACHED = b"detached"
PIN = b"pin"
NO_PIN = b"nopin"


def encode_applied(symbolic: str | None, pin: bytes | None) -> bytes:
    """`symbolic`: a full name such as `refs/heads/main`, None for a detached HEAD.

    `pin`: None for no pin.
    """
    head = DETACHED if symbolic is None else os.fsencode(symbolic)
    return b"\n".join((head, NO_PIN if pin is None else PIN, pin or b""))


def decode_applied(data: bytes) -> tuple[str | None, bytes | None] | None:
    """The pair that was encoded. None for any other bytes: then nothing counts as applied."""
    head, _, rest = data.partition(b"\n")
    kind, separator, pin = rest.partition(b"\n")
    if not separator or not (head == DETACHED or head.startswith(b"refs/")):
        return None
    symbolic = None if head == DETACHED else os.fsdecode(head)
    if kind == PIN:
        return symbolic, pin
    return (symbolic, None) if kind == NO_PIN and not pin else None

"""The versions of what the program writes: a newer one than this program knows is refused, never
half read.

A file in JSON that cannot be made again says its version as `format`; one without it is of the
first. docs/architecture.md lists all formats.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from vmrag_link import __version__
from vmrag_link.errors import FormatTooNew, ProgramTooOld

UPGRADE = "python -m pip install --upgrade vmrag-link"

SOURCES_VERSION = "0.2.0"
"""The lowest version that knows every key of a source, and repositories with sources and no pin.

Commands that write sources require it.
"""

_VERSION = r"(?a)\d{1,4}(\.\d{1,4}){0,3}"


def require_known_format(content: bytes, known: int, *, what: str, path: Path) -> None:
    """Raises `FormatTooNew` for a JSON object whose `format` is above the known one.

    Anything else is left to the reader. `what` begins the sentence.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return
    found = value.get("format") if isinstance(value, dict) else None
    if isinstance(found, int) and found > known:
        raise FormatTooNew(
            f"{what} has format {found}; this program knows formats up to {known}: a newer one wrote {path}.",
            hint=UPGRADE,
            path=str(path),
            found=found,
            known=known,
        )


def find_version_flaw(text: str) -> str | None:
    """Why a text is no version of a program; None if it is one, or empty."""
    if not text or re.fullmatch(_VERSION, text):
        return None
    return 'must be a version such as "0.2": up to four numbers with dots between them'


def require_program_version(wanted: str, label: str) -> None:
    """Raises `ProgramTooOld` where this program's version is below the wanted one.

    `label` names the place that asks. What is no version is left to the reader.
    """
    if wanted and not find_version_flaw(wanted) and is_below(__version__, wanted):
        raise ProgramTooOld(
            f"{label}: this repository requires vmrag-link {wanted} or newer; this is {__version__}.",
            hint=f"python -m pip install --upgrade 'vmrag-link>={wanted}'",
            required=wanted,
            version=__version__,
        )


def is_below(version: str, minimum: str) -> bool:
    """Return whether a version is below another one. A text that is not a version is below all."""
    return _numbers(version) < _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    """Equal for equal versions: `0.2` is `0.2.0`, and `0.2.0.dev1` counts as that."""
    found = re.match(_VERSION, version)
    numbers = [int(each) for each in found[0].split(".")] if found else []
    return tuple(numbers + [0] * (4 - len(numbers)))

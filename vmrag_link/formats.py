"""Versions of the files that vmrag writes. A newer version is refused, and never half read.

A JSON file that cannot be rebuilt has its version as `format`. Without that key, the version is 1.
docs/architecture.md lists all formats.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from vmrag_link import __version__
from vmrag_link.errors import FormatTooNew, ProgramTooOld

UPGRADE = "run 'python -m pip install --upgrade vmrag-link' to upgrade it"

SOURCES_VERSION = "0.2.0"
"""The lowest version that knows every key of a source, and repositories with sources and without a
pin.

Commands that write sources require it.
"""

_VERSION = r"(?a)\d{1,4}(\.\d{1,4}){0,3}"


def require_known_format(content: bytes, newest: int, *, what: str, path: Path) -> None:
    """Raise `FormatTooNew` for a JSON object whose `format` is above `known`.

    The reader of the file handles other content. `what` begins the message.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return
    version = value.get("format") if isinstance(value, dict) else None
    if isinstance(version, int) and version > newest:
        raise FormatTooNew(
            f"{what} has format {version}; this program knows formats up to {newest}: a newer one wrote {path}.",
            hint=UPGRADE,
            path=str(path),
            found=version,
            known=newest,
        )


def find_version_flaw(text: str) -> str | None:
    """Return why a text is not a version of vmrag, or None if it is one or empty."""
    if not text or re.fullmatch(_VERSION, text):
        return None
    return 'must be a version such as "0.2": up to four numbers with dots between them'


def require_program_version(required: str, label: str) -> None:
    """Raise `ProgramTooOld` if this version of vmrag is below `required`.

    `label` names the place of the requirement. Texts that are not versions are left to the reader
    of the file.
    """
    if required and not find_version_flaw(required) and is_below(__version__, required):
        raise ProgramTooOld(
            f"{label}: this repository requires vmrag-link {required} or newer; this is {__version__}.",
            hint=f"run 'python -m pip install --upgrade \"vmrag-link>={required}\"' to upgrade vmrag-link",
            required=required,
            version=__version__,
        )


def is_below(version: str, minimum: str) -> bool:
    """Return whether a version is below another one. A text that is not a version is below all."""
    return _parse_numbers(version) < _parse_numbers(minimum)


def _parse_numbers(version: str) -> tuple[int, ...]:
    """Return four numbers, which are equal for equal versions.

    `0.2` is `0.2.0`, and so is `0.2.0.dev1`.
    """
    match = re.match(_VERSION, version)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    return tuple(numbers + [0] * (4 - len(numbers)))

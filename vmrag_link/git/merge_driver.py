"""vmrag's merge driver in git's configuration, and the attribute that assigns the pin to it."""

from __future__ import annotations

import os

from vmrag_link.git.run import build_failure, check_git, run_git
from vmrag_link.paths import PIN_NAME, Places

DRIVER = "vmrag"
ATTRIBUTE = f"{PIN_NAME} merge={DRIVER} -text"
"""Line of `.gitattributes`. `-text`, because a pin has one encoding, including its line ends."""

_MARKER_SIZE = 7
_SECTION = f"merge.{DRIVER}"
_NO_SUCH_SECTION = "no such section"


def driver_settings(command: str) -> dict[str, str]:
    """Return all keys of the driver's section."""
    return {"name": "the knowledge of both sides", "driver": command}


def register_driver(places: Places, command: str) -> bool:
    """Write the driver's section to the repository's own configuration, and return whether it
    changed.
    """
    settings = driver_settings(command)
    if read_driver(places) == settings:
        return False
    for key, value in settings.items():
        check_git(places, "config", "--local", "--replace-all", f"{_SECTION}.{key}", value)
    return True


def forget_driver(places: Places) -> bool:
    """Remove the whole section, and return whether it existed. git fails on a driver with a name
    and no command.
    """
    arguments = ("config", "--local", "--remove-section", _SECTION)
    finished = run_git(places, *arguments)
    if finished.returncode and _NO_SUCH_SECTION not in finished.error_text.lower():
        raise build_failure(arguments, finished)
    return finished.returncode == 0


def read_driver(places: Places) -> dict[str, str]:
    """Return the keys of the driver's section in the repository's own configuration."""
    finished = run_git(places, "config", "--local", "--null", "--get-regexp", rf"^merge\.{DRIVER}\.")
    entries = (entry.partition("\n") for entry in finished.text.split("\0") if entry)
    return {key.removeprefix(f"{_SECTION}."): value for key, _, value in entries}


def is_attributed(places: Places) -> bool:
    """Return whether an attributes file assigns the pin to our driver."""
    return _read_attribute(places, "merge") == DRIVER


def names_driver(attributes: bytes) -> bool:
    """Return whether this attributes file assigns the pin to our driver, regardless of other
    files.
    """
    lines = (os.fsdecode(line).split() for line in attributes.splitlines())
    return any(f"merge={DRIVER}" in words and words[0].rpartition("/")[2] == PIN_NAME for words in lines)


def read_marker_size(places: Places) -> int:
    """Return the length of conflict markers in the pin (%L).

    It is larger while git merges several merge bases.
    """
    size = _read_attribute(places, "conflict-marker-size")
    return int(size) if size.isdecimal() and int(size) else _MARKER_SIZE


def _read_attribute(places: Places, name: str) -> str:
    return check_git(places, "check-attr", "-z", name, "--", PIN_NAME).text.split("\0")[2]

"""The real `dolt` program, for the tests that need it."""

from __future__ import annotations

import os
import shutil

import pytest

REQUIRED = os.environ.get("VMRAG_REQUIRE_DOLT") == "1"
"""Set where a run must not leave these tests out."""


def require_dolt() -> str:
    """The path of the program; skips the test where there is none."""
    path = shutil.which("dolt")
    if path is None:
        (pytest.fail if REQUIRED else pytest.skip)("dolt is not installed")
    return path

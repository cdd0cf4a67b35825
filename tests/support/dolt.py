"""Where tests find the dolt program, which no package registry carries."""

from __future__ import annotations

import os
import shutil

import pytest

REQUIRED = "VMRAG_REQUIRE_DOLT"
"""Set to 1, tests that need the program fail where it is absent."""


def require() -> str:
    """The program's path; skips the test, by the program's name, where `dolt` is not on PATH."""
    if path := shutil.which("dolt"):
        return path
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"dolt is not on PATH, and {REQUIRED} is set")
    pytest.skip("needs the program dolt on PATH")

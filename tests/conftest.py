"""No test sees this machine: no configuration of git, no home directory; and on CI no test is skipped for want of a program."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repos import isolate

NOT_FROM_PYPI = {"busybox", "chromium", "dash", "fish", "git-lfs", "sshd", "zsh"}
"""Programs that the line which CI runs cannot install: a test that needs one may be skipped there, too."""

PIP_CACHE = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip")
"""The one thing of this machine that a test may use: what installing the project has downloaded already."""

_MISSING = re.compile(r"\b([\w.-]+) is not installed")


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The home directory is a file: whoever looks for something in it finds nothing, whoever writes there fails."""
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder / "configured")
        (folder / "home-is-out-of-bounds").touch()
        patch.setenv("HOME", str(folder / "home-is-out-of-bounds"))
        patch.setenv("PIP_CACHE_DIR", PIP_CACHE)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and isinstance(report.longrepr, tuple):
        missing = _MISSING.search(report.longrepr[2])
        if missing and missing[1] not in NOT_FROM_PYPI:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: {missing[0]}, but CI has everything that the extra `dev` names"
    return report

"""Days of a team whose files are documents; `week.py` has the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import week
from tests.support.repos import isolate

pytestmark = pytest.mark.hooks("on")

WEEK = list(week.DAYS)
ONE_DAY = [day for day in WEEK if day.startswith("Monday")]


@pytest.mark.parametrize("days", [ONE_DAY, pytest.param(WEEK, marks=pytest.mark.long)], ids=["one day", "week"])
def test_files_answer_like_git_and_git_works_like_without_vmrag(
    days: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path / "home")
    prepared = week.prepare(tmp_path)
    prepared.type_days(days)
    assert prepared.answers > prepared.typed / 2

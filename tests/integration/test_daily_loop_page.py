"""docs/daily-loop.md shows what the commands print."""

from __future__ import annotations

from tests.daily_loop import document


def test_the_page_shows_what_the_commands_print() -> None:
    assert document.page() == document.PAGE.read_text(), "run: python -m tests.daily_loop.document"

"""docs/daily-loop.md shows what the commands print after `git add`."""

from __future__ import annotations

from tests.git_add import document


def test_the_page_shows_what_the_commands_print() -> None:
    assert document.page() == document.PAGE.read_text(), "run: python -m tests.git_add.document"

"""docs/toolsets/compounding.md shows what the commands print."""

from __future__ import annotations

from tests.toolsets.compounding import document


def test_the_page_shows_what_the_commands_print() -> None:
    assert document.page() == document.PAGE.read_text(), "run: python -m tests.toolsets.compounding.document"

"""docs/merging.md shows what the commands print at an old tag."""

from __future__ import annotations

from tests.old_tags import document


def test_the_page_shows_what_the_commands_print() -> None:
    assert document.page() == document.PAGE.read_text(), "run: python -m tests.old_tags.document"

"""tests/old_tags/stories.md shows what the commands print at an old tag."""

from __future__ import annotations

from tests.old_tags import document


def test_page_matches_the_output_at_old_tags() -> None:
    assert document.PAGE.read_text() == document.page(), "run: python -m tests.old_tags.document"

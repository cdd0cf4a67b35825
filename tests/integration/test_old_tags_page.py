"""docs/merging.md and tests/old_tags/stories.md show what the commands print at an old tag."""

from __future__ import annotations

from tests.old_tags import document


def test_pages_show_what_commands_print_at_old_tags() -> None:
    for path, text in document.write().items():
        assert path.read_text() == text, "run: python -m tests.old_tags.document"

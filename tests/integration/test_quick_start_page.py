"""docs/quick-start.md, documents.md, search.md and merging.md show what the commands print."""

from __future__ import annotations

from tests.quick_start import document


def test_pages_match_the_output_of_commands() -> None:
    for path, text in document.write().items():
        assert path.read_text() == text, "run: python -m tests.quick_start.document"

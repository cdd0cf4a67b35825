"""tests/dolt/stories.md shows what Dolt's program prints."""

from __future__ import annotations

from tests.dolt import document
from tests.support import dolt


def test_page_matches_the_output_of_dolt() -> None:
    dolt.require()
    for path, text in document.write().items():
        assert path.read_text() == text, "run: python -m tests.dolt.document"

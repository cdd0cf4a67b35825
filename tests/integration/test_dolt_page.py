"""docs/sharing.md and tests/dolt/stories.md show what Dolt's program prints."""

from __future__ import annotations

from tests.dolt import document
from tests.support import dolt


def test_pages_match_the_output_of_dolt() -> None:
    dolt.require()
    for path, text in document.write().items():
        assert path.read_text() == text, "run: python -m tests.dolt.document"

"""docs/dolt.md shows what Dolt's program says."""

from __future__ import annotations

from tests.dolt import document
from tests.support import dolt


def test_the_page_shows_what_the_program_says_of_a_knowledge_base() -> None:
    dolt.require()
    assert document.page() == document.PAGE.read_text(), "run: python -m tests.dolt.document"

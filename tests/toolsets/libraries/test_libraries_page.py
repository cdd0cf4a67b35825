"""docs/toolsets.md and printed.txt show what the commands print."""

from __future__ import annotations

from tests.toolsets.libraries import document


def test_page_and_session_match_the_output_of_the_commands() -> None:
    now = document.printed()
    assert now == document.PRINTED.read_text(), "run: python -m tests.toolsets.libraries.document"
    assert document.page(now) == document.PAGE.read_text(), "run: python -m tests.toolsets.libraries.document"

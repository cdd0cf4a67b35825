"""docs/pull-requests.md shows what the commands print, and so does tests/hosting/printed.txt."""

from __future__ import annotations

from tests.hosting import document


def test_page_and_stories_match_the_output_of_the_commands() -> None:
    outputs = document.stories()
    assert document.printed(outputs) == document.PRINTED.read_text(), "run: python -m tests.hosting.document"
    assert document.page(outputs) == document.PAGE.read_text(), "run: python -m tests.hosting.document"

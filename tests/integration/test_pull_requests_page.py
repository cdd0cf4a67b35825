"""tests/hosting/printed.txt shows what the commands around a host's merge buttons print."""

from __future__ import annotations

from tests.hosting import document


def test_stories_match_the_output_of_the_commands() -> None:
    printed = document.printed(document.stories())
    assert printed == document.PRINTED.read_text(), "run: python -m tests.hosting.document"

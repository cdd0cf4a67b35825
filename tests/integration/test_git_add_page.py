"""tests/git_add/stories.md shows what the commands print after `git add`."""

from __future__ import annotations

import pytest

from tests.git_add import document


@pytest.mark.long
def test_pages_match_the_output_after_git_add() -> None:
    for path, text in document.write().items():
        assert path.read_text() == text, "run: python -m tests.git_add.document"

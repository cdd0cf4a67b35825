from __future__ import annotations

from pathlib import Path

from tests.contract.document import document

TOOLS = Path(__file__).parents[2] / "docs" / "tools.md"


def test_reference_of_the_tools_is_up_to_date():
    """Otherwise: python -m tests.contract.document > docs/tools.md"""
    assert TOOLS.read_text() == document()

"""`tests/check.py --changed` runs the tests that depend on a change, and skips the rest."""

from __future__ import annotations

import pytest

from tests import changed


@pytest.mark.parametrize(
    ("file", "runs", "spares"),
    [
        ("vmrag_link/toolsets/thinking/think.py", "toolsets/thinking/test_thinking.py", "toolsets/libraries/test_libraries.py"),
        ("vmrag_link/toolsets/libraries/tools.json", "toolsets/libraries/test_libraries.py", "unit/test_pin.py"),
        ("vmrag_link/cli/diff.py", "integration/test_document_history.py", "unit/test_pin.py"),
        ("vmrag_link/conversion/child/markup_text.py", "toolsets/libraries/test_libraries.py", "unit/test_pin.py"),
        ("action/vmrag_action/github_api.py", "e2e/test_action.py", "integration/test_merge_ops.py"),
        ("docs/mcp.md", "integration/test_mcp_options.py", "integration/test_merge_ops.py"),
        ("tests/support/chroma.py", "integration/test_chroma_contract.py", "unit/test_pin.py"),
        ("tests/unit/test_pin.py", "unit/test_pin.py", "unit/test_plan.py"),
    ],
)  # fmt: skip
def test_change_runs_only_the_tests_that_depend_on_it(file: str, runs: str, spares: str) -> None:
    tests = changed.tests_of([file])
    assert tests is not None
    assert f"tests/{runs}" in tests
    assert f"tests/{spares}" not in tests
    assert changed.ALWAYS in tests


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints-dev.txt", "tests/conftest.py"])
def test_change_of_common_file_runs_all_tests(file: str) -> None:
    assert changed.tests_of([file]) is None


def test_only_project_rules_run_without_changes() -> None:
    assert changed.tests_of([]) == [changed.ALWAYS]

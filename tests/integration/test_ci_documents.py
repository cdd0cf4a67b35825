"""The workflows that docs/ shows are valid, and unsafe in nothing that zizmor knows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = Path(sys.executable).parent
CHECKS = (
    ("check-jsonschema", "--builtin-schema", "vendor.github-workflows"),
    ("zizmor", "--offline", "--no-progress", "--quiet", "--persona=pedantic"),
)


def workflows(page: Path) -> list[str]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [each.replace("@SHA", "@" + "0123456789" * 4) for each in blocks if "\njobs:" in each]


@pytest.mark.parametrize("page", sorted(each.name for each in DOCS.glob("ci*.md")))
def test_the_workflows_of_a_page_are_valid_and_safe(page: str, tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    shown = workflows(DOCS / page)
    assert shown
    files = []
    for number, text in enumerate(shown):
        files.append(folder / f"{number}.yml")
        files[-1].write_text(text)
    for check in CHECKS:
        done = subprocess.run(
            [PROGRAMS / check[0], *check[1:], *files], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

"""Workflows that the documents show are ones that GitHub takes and zizmor has nothing against."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent


def test_the_workflows_in_the_documents_are_valid_and_safe(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for page in sorted((ROOT / "docs").glob("ci*.md")):
        for number, block in enumerate(re.findall(r"(?ms)^```yaml\n(.*?)^```", page.read_text())):
            if block.startswith("name:"):
                (folder / f"{page.stem}-{number}.yml").write_text(block.replace("@SHA", f"@{'0' * 40}"))
    files = [str(path) for path in folder.iterdir()]
    assert files
    for argv in (
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files],
        ["zizmor", "--offline", "--no-progress", "--persona=pedantic", str(tmp_path)],
    ):
        done = subprocess.run([TOOLS / argv[0], *argv[1:]], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

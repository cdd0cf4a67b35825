"""printed.txt shows what the commands print, and docs/toolsets.md has a part of it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.contract_states import DATA_FOLDER

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

PAGE = Path(__file__).parents[3] / "docs" / "toolsets.md"
PRINTED = Path(__file__).with_name("printed.txt")
FILES = {
    "before.xml": "own-before.xml",
    "after.xml": "own-after.xml",
    "ruff-before.txt": "ruff-before.txt",
    "ruff-after.txt": "ruff-after.txt",
}
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_page_matches_the_output_of_the_commands(project):
    page = PAGE.read_text()
    for name, data in FILES.items():
        project.write(name, (DATA_FOLDER / data).read_text())
    project.write("vmrag_link/retrieval/fusion.py", "share = score / (best or 1)\n")
    project.git("add", "vmrag_link")
    section = page.partition("## Learnings and chats\n")[2].partition("\n## ")[0]
    [changes] = re.findall(r"^ *```json\n( *\[.*?)^ *```", section, re.MULTILINE | re.DOTALL)
    project.write("changes.json", changes)
    ids: dict[str, str] = {}
    """Ids on the page, and current ids."""

    def now(text: str) -> str:
        return ID.sub(lambda match: ids.get(match[0], match[0]), text)

    printed_before = PRINTED.read_text()
    for block in re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        assert block in printed_before
    shown = re.split(r"^\$ ", printed_before, flags=re.MULTILINE)[1:]
    assert len(shown) == 7
    for document in shown:
        command, _, expected = document.partition("\n")
        printed = project.vmrag(*shlex.split(now(command))[1:]).out
        ids |= dict(zip(ID.findall(expected), ID.findall(printed), strict=True))
        assert printed == now(expected), command

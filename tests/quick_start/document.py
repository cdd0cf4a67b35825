"""Write what the commands of four pages print: `python -m tests.quick_start.document`.

The commands are one session, which begins in docs/quick-start.md and continues in the other pages.
They are typed in a shell, because the reader types them there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support import pages
from tests.support.repos import ON

PAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "quick-start.md": {
        "begin": (
            "git init -q -b main shop && cd shop",
            r"mkdir docs && printf '# Releases\n\n## When\n\nWe release on Tuesdays.\n\n## Keys\n\nAsk Ada for the key.\n' > docs/releases.md",
            r"printf 'def send(url):\n    print(url)\n\n\ndef fetch(url):\n    send(url)\n' > client.py",
            'git add . && git commit -qm "Begin"',
        ),
        "search": ('vmrag query "who has the key" -k 1',),
        "init": ("vmrag init", 'git commit -qm "Set up vmrag"'),
        "note": (
            'vmrag add -m "We release on Tuesdays, because all of support is at work." --id release-day --commit',
            'vmrag query "why Tuesdays" -k 1',
        ),
        "store": (
            'vmrag add -m "The supplier answers within 30 seconds." --collection contracts --id supplier',
            'vmrag commit --git -m "Store the contract"',
            'vmrag query "how fast is the supplier" -k 1',
        ),
        "change": (
            "git switch -qc new-contract",
            'vmrag add -m "The supplier answers within 5 seconds." --collection contracts --id supplier',
            "vmrag diff",
            'vmrag commit --git -m "Negotiate the contract again"',
            "git switch -q main",
            'vmrag query "how fast is the supplier" -k 1',
            'vmrag query "how fast is the supplier" -k 1 --at new-contract',
        ),
        "merge": ("git merge -q new-contract", "vmrag log --oneline", "vmrag status"),
        "share": (
            "git init -q --bare -b main ../shop.git && git remote add origin ../shop.git",
            "git push -q origin main",
            "git clone -q ../shop.git ../colleague && cd ../colleague",
            "vmrag install",
            'vmrag query "how fast is the supplier" -k 1',
        ),
    },
    "documents.md": {
        "import": (
            r"mkdir ../wiki && printf '# Backups\n\nBackups are kept for thirty days.\n' > ../wiki/backups.md",
            "vmrag import ../wiki --collection wiki --base ../wiki",
            'vmrag commit --git -m "Import the wiki"',
        ),
        "undo": (
            'vmrag add -m "Draft" --collection contracts --id supplier',
            "vmrag restore --yes",
        ),
    },
    "search.md": {
        "context": (
            'vmrag query "who has the key" -k 1 --context 1',
            "vmrag grep -i key",
        ),
        "calls": ("vmrag query --symbols fetch", "vmrag query --callers send"),
    },
    "merging.md": {
        "history": (
            "vmrag log --oneline contracts/supplier",
            "vmrag diff --stat HEAD~2 HEAD",
            "vmrag show HEAD~2:contracts/supplier",
        ),
    },
}  # fmt: skip


def write() -> dict[Path, str]:
    """Return the pages with what the program prints today."""
    with pages.folder() as home:
        folder = home
        printed = []
        for page, parts in PAGES.items():
            for mark, steps in parts.items():
                lines = []
                for step in steps:
                    output, folder = _type(step, folder)
                    lines.append(f"$ {step}\n{output}")
                printed.append((page, mark, "".join(lines)))
        text = re.sub(pages.TIME, "2026-01-31T12:00:00Z", _BETWEEN.join(output[2] for output in printed))
        outputs = pages.normalize_revisions(text).replace(str(home), "/home/ada").split(_BETWEEN)
    made: dict[Path, str] = {}
    for page in PAGES:
        blocks = {mark: pages.console(text) for (of, mark, _), text in zip(printed, outputs, strict=True) if of == page}
        made[pages.DOCS / page] = pages.fill_page(pages.DOCS / page, blocks)
    return made


_BETWEEN = "\n\0\n"
_END = "\0 folder: "


def _type(step: str, folder: Path) -> tuple[str, Path]:
    """Return what a step prints in a shell, and the folder in which it ends."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", f"{step}\nprintf '\\0 folder: %s' \"$PWD\""],
        cwd=folder,
        env=os.environ | ON | {"PATH": path, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    output, _, ended = result.stdout.rpartition(_END)
    if output and not output.endswith("\n"):
        output += "\n"
    return output, Path(ended)


if __name__ == "__main__":
    for path, text in write().items():
        path.write_text(text)

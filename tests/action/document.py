"""Writes what follows from `action/action.yml`: `python -m tests.action.document`.

The `action.yml` at the top, which the Marketplace wants, and the tables of inputs and outputs in
docs/action.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.support import pages

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "action" / "action.yml"
AT_THE_TOP = ROOT / "action.yml"
PAGE = pages.DOCS / "action.md"
HEAD = "# Written by `python -m tests.action.document` from action/action.yml.\n"


def at_the_top() -> str:
    """The same steps, seen from the folder above."""
    text = SOURCE.read_text()
    below = '"$GITHUB_ACTION_PATH/vmrag_action/'
    assert below in text
    return HEAD + text.replace(below, '"$GITHUB_ACTION_PATH/action/vmrag_action/')


def tables() -> str:
    definition = yaml.safe_load(SOURCE.read_text())
    inputs = [
        f"| `{name}` | {_default(str(value.get('default', '')))} | {_summarize(value['description'])} |"
        for name, value in definition["inputs"].items()
    ]
    outputs = [f"| `{name}` | {_summarize(output['description'])} |" for name, output in definition["outputs"].items()]
    return "\n".join(
        [
            "| input | default | description |",
            "|---|---|---|",
            *inputs,
            "",
            "| output | description |",
            "|---|---|",
            *outputs,
        ]
    )


def page() -> str:
    """Return docs/action.md with the current tables."""
    return pages.fill_page(PAGE, {"tables": tables()})


def _summarize(description: str) -> str:
    """Return the first sentence, and the default that is not a value. action.yml has the others."""
    first, *others = re.split(r"(?<=\.)\s+(?=[A-Z`])", " ".join(description.split()))
    if first.startswith("Modes,"):
        return "Modes, separated by commas."
    return " ".join([first, *(sentence for sentence in others if sentence.startswith("Default:"))])


def _default(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    AT_THE_TOP.write_text(at_the_top())
    PAGE.write_text(page())

"""A project of documents as files of the work tree, for the tools of the toolset `compounding`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = ".river-docs/config.json"
DOCS = "river-docs"

CONFIGURATION: dict[str, Any] = {
    "project_name": "rivers",
    "external_docs": {"path": "./manual", "exclude_patterns": ["**/drafts/**"]},
    "custom_doc_types": [
        {
            "name": "api-contract",
            "description": "What the gauges answer",
            "folder": "api-contracts",
            "schema_file": "./schemas/api-contract.yaml",
        }
    ],
}

SCHEMA = """\
type: object
required: [title, version]
properties:
  version: {type: string, pattern: '^[0-9]+[.][0-9]+$'}
"""

FILES = {
    "river-docs/problems/flood.md": """\
---
title: "The flood gauge reported nothing"
date: 2026-03-02
summary: The gauge's battery froze
significance: correctness
related_docs: [../tools/gauge.md]
tags: [gauge, winter]
---
# Flood gauge

The flood gauge reported nothing in January. Its battery had frozen in the cold night.

## Solution

Batteries of gauges are kept in an insulated box now. See [how the box is built](../codebase/box.md "the box").
""",
    "river-docs/tools/gauge.md": """\
---
title: Gauges and their batteries
promotion_level: critical
---
A gauge measures the height of the water every ten minutes. Its battery lasts for two years.
""",
    "river-docs/codebase/box.md": """\
# The insulated box

The box is made of two walls with cork between them. It weighs four kilograms.
""",
    "river-docs/insights/ferry.md": """\
---
doc_type: insight
title: Ferries and low water
---
Ferries stop at low water. Passengers hear of it by text message.
""",
    "river-docs/api-contracts/levels.md": """\
---
title: Levels
version: "1.2"
---
The endpoint for levels answers a list of numbers, one an hour.
""",
    "river-docs/notes.md": "No type says what this is.\n",
    "river-docs/api-contracts/bad.md": "---\ntitle: Bad\nversion: two\n---\nNothing.\n",
    "manual/setup.md": "# Setup\n\nThe pump is switched on by the green button. It needs oil once a year.\n",
    "manual/drafts/later.md": "# Later\n\nThe pump will be blue.\n",
}


def write(top: Path, **changes: Any) -> Path:
    """The project's files in a work tree; returns its configuration's path."""
    files = {CONFIG: json.dumps(CONFIGURATION | changes), ".river-docs/schemas/api-contract.yaml": SCHEMA, **FILES}
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    link = top / DOCS / "tools" / "link.md"
    if not link.is_symlink():
        link.symlink_to("gauge.md")
    return top / CONFIG

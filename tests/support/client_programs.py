"""Programs of MCP clients from npm, on a Node from PyPI.

Claude Code is not among them, because its licence does not permit it. The others (Claude Desktop,
Cursor, VS Code, Windsurf, Zed, Junie, Kiro) are in no registry.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import npm
from tests.support.templates import build_once

PACKAGES = (
    "@anthropic-ai/mcpb@2.1.2",
    "@openai/codex@0.171.0",
    "@google/gemini-cli@0.61.0",
    "opencode-ai@1.18.33",
    "@aaif/goose@0.20.1",
    "@qwen-code/qwen-code@0.24.4",
)
PROGRAMS = {
    "codex": "@openai/codex/bin/codex.js",
    "gemini": "@google/gemini-cli/bundle/gemini.js",
    "opencode": "opencode-*/bin/opencode",
    "goose": "@aaif/goose-binary-*/bin/goose",
    "qwen": "@qwen-code/qwen-code/cli-entry.js",
    "mcpb": "@anthropic-ai/mcpb/dist/cli/cli.js",
}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the command that starts each program that exists for this kind of machine."""
    folder = build_once(tmp_path_factory, "clients", _install)
    files = {name: sorted((folder / "node_modules").glob(pattern)) for name, pattern in PROGRAMS.items()}
    return {
        name: [*([str(npm.node())] if paths[0].suffix == ".js" else []), str(paths[-1])]
        for name, paths in files.items()
        if paths
    }


def _install(folder: Path) -> None:
    (folder / "package.json").write_text("{}")
    npm.install(folder, "--ignore-scripts", "--cache", str(folder / "cache"), *PACKAGES)

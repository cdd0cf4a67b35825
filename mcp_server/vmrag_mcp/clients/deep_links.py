"""Links that put this server into an editor by a click. `docs/mcp.md` has them.

They serve people who have not installed it: uv fetches the package, and the editor says which
project is open.
"""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from vmrag_mcp.clients.server_command import SERVER

COMMAND = "uvx"
ARGUMENTS = ("--with", "vmrag-link[mcp]", "vmrag-link")


def cursor() -> str:
    """https://cursor.com/docs/context/mcp/install-links; by the web, as pages show no other."""
    config = base64.b64encode(_json({"command": COMMAND, "args": [*ARGUMENTS]}).encode()).decode()
    return f"https://cursor.com/en/install-mcp?name={SERVER}&config={quote(config, safe='')}"


def vscode() -> str:
    """https://code.visualstudio.com/api/extension-guides/ai/mcp: `vscode:mcp/install?` and JSON."""
    return f"vscode:mcp/install?{quote(_json({'name': SERVER, 'command': COMMAND, 'args': [*ARGUMENTS]}), safe='')}"


def vscode_page() -> str:
    """The same through a page of its makers, for pages that show no other links."""
    config = quote(_json({"command": COMMAND, "args": [*ARGUMENTS]}), safe="")
    return f"https://insiders.vscode.dev/redirect/mcp/install?name={SERVER}&config={config}"


def _json(value: dict[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))

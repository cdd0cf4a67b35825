"""Build the files of a release for MCP clients: the bundle, and the `server.json` that names it.

    python clients/bundle.py FOLDER

The bundle is the same to the last byte wherever it is made, so its checksum can be compared.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("manifest.json", "pyproject.toml", "server.py")
RELEASES = "https://github.com/vmrag/vmrag-link/releases/download"
_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16


def bundle(folder: Path) -> Path:
    """A ZIP file with the manifest at its root: https://github.com/modelcontextprotocol/mcpb."""
    version = json.loads((ROOT / "clients" / "mcpb" / "manifest.json").read_text())["version"]
    path = folder / f"vmrag-link-{version}.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name in FILES:
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = _MODE
            made.writestr(entry, (ROOT / "clients" / "mcpb" / name).read_bytes(), zipfile.ZIP_DEFLATED)
    return path


def registry_entry(path: Path) -> str:
    """`server.json` with the bundle beside the package; clients compare its checksum."""
    server = json.loads((ROOT / "server.json").read_text())
    server["packages"].append(
        {
            "registryType": "mcpb",
            "identifier": f"{RELEASES}/v{server['version']}/{path.name}",
            "fileSha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "transport": {"type": "stdio"},
        }
    )
    return json.dumps(server, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.json").write_text(registry_entry(bundle(folder)))


if __name__ == "__main__":
    main()

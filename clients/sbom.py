"""The software bill of materials of a release, as CycloneDX JSON.

    python clients/sbom.py FOLDER

It lists each package of `constraints.txt` with the checksums of its files. The
versions are those that the checks used.
Every machine prints the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = "sbom.cdx.json"
_PACKAGE = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\\n]+?))?(?P<rest>(?: \\\n +--hash=\S+)+)",
    re.MULTILINE,
)


def list_components() -> list[dict[str, Any]]:
    """Return the packages in the order of the file."""
    components = []
    for package in _PACKAGE.finditer((ROOT / "constraints.txt").read_text()):
        name, version = package["name"], package["version"]
        purl = f"pkg:pypi/{name}@{version}"
        marker = package["marker"]
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "externalReferences": [
                    {
                        "type": "distribution",
                        "url": f"https://pypi.org/project/{name}/{version}/",
                        "hashes": [
                            {"alg": "SHA-256", "content": content}
                            for content in re.findall(r"sha256:([0-9a-f]{64})", package["rest"])
                        ],
                    }
                ],
            }
            | ({"properties": [{"name": "python:marker", "value": marker}]} if marker else {})
        )
    return components


def describe_release() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    purl = f"pkg:pypi/{name}@{version}"
    components = list_components()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": sorted(component["bom-ref"] for component in components)}],
    }


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(describe_release(), indent=1) + "\n")


if __name__ == "__main__":
    main()

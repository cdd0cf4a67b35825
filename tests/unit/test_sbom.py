"""The bill of materials of a release."""

from __future__ import annotations

import json
import re
from pathlib import Path

import vmrag_link
from clients import sbom

CONSTRAINTS = (Path(__file__).parents[2] / "constraints.txt").read_text()


def test_bill_lists_each_package_with_its_checksums() -> None:
    release = json.loads(json.dumps(sbom.describe_release()))
    assert release["metadata"]["component"]["version"] == vmrag_link.__version__
    components = release["components"]
    assert [f"{row['name']}=={row['version']}" for row in components] == re.findall(
        r"^[\w.-]+==[^\s;]+", CONSTRAINTS, re.MULTILINE
    )
    hashes = [entry["content"] for row in components for entry in row["externalReferences"][0]["hashes"]]
    assert hashes == re.findall(r"--hash=sha256:(\w+)", CONSTRAINTS)
    assert len({row["bom-ref"] for row in components}) == len(components)
    assert release["dependencies"][0]["dependsOn"] == sorted(row["purl"] for row in components)

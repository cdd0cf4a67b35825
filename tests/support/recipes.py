"""The recipes of `ci/` as each service starts them: their lines, and the variables that it sets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CI = Path(__file__).parents[2] / "ci"
TARGETS = {
    "gitlab": "CI_MERGE_REQUEST_TARGET_BRANCH_NAME",
    "jenkins": "CHANGE_TARGET",
    "azure": "SYSTEM_PULLREQUEST_TARGETBRANCH",
    "bitbucket": "BITBUCKET_PR_DESTINATION_BRANCH",
    "buildkite": "BUILDKITE_PULL_REQUEST_BASE_BRANCH",
}
"""The variable with the branch that a pull request goes into, by service."""

FOLDERS = {"jenkins": "WORKSPACE_TMP", "azure": "AGENT_TEMPDIRECTORY"}
SERVICES = (*TARGETS, "shell")
WORKFLOWS = CI / "github"
"""Whole workflows for GitHub, by file name. docs/ci.md shows one more."""
_VMRAG = Path(sys.executable).with_name("vmrag")


def gitlab_documents() -> tuple[Any, Any]:
    """The inputs with their defaults, and the jobs as GitLab fills these in."""
    head, _, body = (CI / "gitlab" / "vmrag.yml").read_text().partition("\n---\n")
    spec = yaml.safe_load(head)
    inputs = {name: value["default"] for name, value in spec["spec"]["inputs"].items()}
    return spec, yaml.safe_load(re.sub(r"\$\[\[ inputs\.(\w+) ]]", lambda match: inputs[match[1]], body))


def lines(service: str) -> str:
    """Return the script that the service's own program passes to bash."""
    match service:
        case "gitlab":
            return "\n".join(["set -eo pipefail", *gitlab_documents()[1]["knowledge"]["script"]])
        case "jenkins":
            [script] = re.findall(r"sh '''(.*?)'''", (CI / "Jenkinsfile").read_text(), re.DOTALL)
            return str(script)
        case "azure":
            [_, step, _] = yaml.safe_load((CI / "azure-pipelines.yml").read_text())["jobs"][0]["steps"]
            return str(step["bash"])
        case "bitbucket":
            [step] = yaml.safe_load((CI / "bitbucket-pipelines.yml").read_text())["definitions"]["steps"]
            return "\n".join(["set -e", *step["step"]["script"]])
        case "buildkite":
            [step] = yaml.safe_load((CI / "buildkite.yml").read_text())["steps"]
            assert not re.search(r"(?<!\$)\$(?!\$)", step["command"])  # the upload would fill it in
            return str(step["command"]).replace("$$", "$")
    return (CI / "knowledge.sh").read_text()


class Ran(NamedTuple):
    code: int
    said: str


def run(service: str, folder: Path, *, target: str = "", **more: str) -> Ran:
    """Run a recipe in a checkout, with a home directory and an environment of its own.

    Its one line that downloads is left out: what that installs is in the `PATH`. So is pip, which
    nothing else asks: three seconds for each environment.
    """
    script, downloads = re.subn(r"(?m)^ *pip install -q 'vmrag-link\[index,code]==[\d.]+'\n", "", lines(service) + "\n")
    assert downloads == 1
    script = script.replace("python3 -m venv ", "python3 -m venv --without-pip ")
    home = folder.with_name(f"{folder.name}-home")
    (home / "tmp").mkdir(parents=True)
    environ = {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PATH": os.pathsep.join([str(_VMRAG.parent), os.environ["PATH"]]),
        "LANG": "C.UTF-8",
        "CI": "true",
    }
    if service in FOLDERS:
        environ[FOLDERS[service]] = str(home / "tmp")
    if service in TARGETS and target:
        environ[TARGETS[service]] = f"refs/heads/{target}" if service == "azure" else target
    argv = ["bash", "-c", script, "recipe", *([target] if service == "shell" and target else [])]
    result = subprocess.run(
        argv, cwd=folder, env=environ | more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return Ran(result.returncode, result.stdout)

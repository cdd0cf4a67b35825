"""Workflows of ci/ and of the pages are valid for GitHub and GitLab and pass zizmor. They use
existing inputs of the Action, and have the permissions that its modes need.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

import vmrag_link
from tests.support import recipes
from vmrag_action.inputs import MODES

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
DOCS = ROOT / "docs"
ACTION = yaml.safe_load((ROOT / "action" / "action.yml").read_text())
NOTHING = "\N{EN DASH}"
OURS = re.compile(r"vmrag/vmrag-link(/action)?@SHA")


class Example(NamedTuple):
    """A workflow that a page shows, or a file of ci/github/."""

    page: str
    number: int
    text: str

    @property
    def jobs(self) -> dict[str, Any]:
        return dict(yaml.safe_load(self.text)["jobs"])

    @property
    def events(self) -> set[str]:
        content = yaml.safe_load(self.text)[True]  # YAML 1.1 reads `on` so
        return {content} if isinstance(content, str) else set(content)

    def uses(self) -> Iterator[tuple[Any, Any]]:
        """Each job that uses the Action, and what it gives it."""
        for job in self.jobs.values():
            for step in job["steps"]:
                if OURS.fullmatch(step.get("uses", "")):
                    yield job, step.get("with", {})


def blocks(start: str) -> list[Example]:
    result = []
    for page in sorted(DOCS.glob("*.md")):
        texts = re.findall(r"(?ms)^```yaml\n(.*?)^```", page.read_text())
        result += [Example(page.stem, n, text) for n, text in enumerate(texts) if text.startswith(start)]
    return result


WORKFLOWS = [
    *blocks("name:"),
    *(Example(path.stem, 0, path.read_text()) for path in sorted(recipes.WORKFLOWS.glob("*.yml"))),
]
OF_GITLAB = blocks("# .gitlab-ci.yml")

each_workflow = pytest.mark.parametrize("example", WORKFLOWS, ids=lambda example: f"{example.page}-{example.number}")


def run(*argv: str) -> None:
    result = subprocess.run([TOOLS / argv[0], *argv[1:]], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_workflows_in_the_documents_are_valid_and_safe(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for page, number, text in WORKFLOWS:
        (folder / f"{page}-{number}.yml").write_text(text.replace("@SHA", f"@{'0' * 40}"))
    run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, folder.iterdir()))
    run("zizmor", "--offline", "--no-progress", "--persona=pedantic", str(tmp_path))


def test_gitlab_examples_of_documents_are_valid(tmp_path: Path) -> None:
    assert OF_GITLAB
    for _, number, text in OF_GITLAB:
        (tmp_path / f"{number}.yml").write_text(text)
    run("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", *map(str, tmp_path.iterdir()))


SCHEMAS = {
    "azure-pipelines": (
        "vendor.azure-pipelines",
        "--data-transform",
        "azure-pipelines",
        "--regex-variant",
        "nonunicode",
    ),
    "bitbucket-pipelines": ("vendor.bitbucket-pipelines", "--regex-variant", "nonunicode"),
    "buildkite": ("vendor.buildkite",),
    "forgejo/knowledge": ("vendor.github-workflows",),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_recipe_is_valid_for_its_service(name: str) -> None:
    run("check-jsonschema", "--builtin-schema", *SCHEMAS[name], str(recipes.CI / f"{name}.yml"))


def test_file_for_gitlab_is_valid_with_filled_inputs(tmp_path: Path) -> None:
    documents = recipes.gitlab_documents()
    for number, document in enumerate(documents):
        (tmp_path / f"{number}.yml").write_text(yaml.safe_dump(document))
    run("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", *map(str, tmp_path.iterdir()))
    used = set(re.findall(r"inputs\.(\w+)", (recipes.CI / "gitlab" / "vmrag.yml").read_text()))
    assert used == documents[0]["spec"]["inputs"].keys()


def test_page_names_every_recipe() -> None:
    page = (DOCS / "ci.md").read_text()
    for path in recipes.CI.rglob("*"):
        assert path.is_dir() or f"(../ci/{path.relative_to(recipes.CI).as_posix()})" in page


@each_workflow
def test_example_uses_existing_inputs_and_outputs_of_the_action(example: Example) -> None:
    for job, given in example.uses():
        assert given.keys() <= ACTION["inputs"].keys()
        assert job["timeout-minutes"] <= 60
        [step] = [step for step in job["steps"] if OURS.fullmatch(step.get("uses", ""))]
        for name in re.findall(r"steps\.vmrag\.outputs\.([\w-]+)", example.text):
            assert step["id"] == "vmrag"
            assert name in ACTION["outputs"]


def test_documents_install_the_version_that_they_belong_to() -> None:
    recipe_files = [path for path in recipes.CI.rglob("*") if path.is_file()]
    for file in (DOCS / "ci.md", *recipe_files):
        for version in re.findall(r"vmrag-link(?:\[\w+\])?==([\w.]+)", file.read_text()):
            assert version == vmrag_link.__version__
    assert f"(`@SHA # v{vmrag_link.__version__}`)" in (DOCS / "ci.md").read_text()
    assert f"rev: v{vmrag_link.__version__} " in (DOCS / "hooks.md").read_text()
    assert recipes.gitlab_documents()[0]["spec"]["inputs"]["version"]["default"] == vmrag_link.__version__


# -- which mode on which event


def table() -> dict[str, dict[str, str]]:
    """The rows of the table in action.md, by mode, then by the first line."""
    text = (DOCS / "action.md").read_text().partition("<!-- modes -->\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    names = [cell.strip("`") for cell in rows[0]]
    return {row[0].strip("`"): dict(zip(names, row, strict=True)) for row in rows[2:]}


def needed(modes: str) -> dict[str, str]:
    """Return the permissions that these modes need according to the table."""
    result: dict[str, str] = {}
    for mode in modes.split(","):
        for name, access in re.findall(r"`([\w-]+): (read|write)`", table()[mode.strip()]["permissions"]):
            result[name] = "write" if "write" in (access, result.get(name)) else "read"
    return result


def test_table_names_every_mode_in_the_order_in_which_they_run() -> None:
    assert tuple(table()) == MODES
    assert all(needed(mode) for mode in MODES)


@each_workflow
def test_example_has_the_permissions_of_its_modes(example: Example) -> None:
    for job, given in example.uses():
        allowed = job["permissions"]
        expected = {"actions": "read"} if example.events == {"workflow_run"} else needed(given.get("mode", "sync"))
        if given.get("pull-request") or given.get("comment"):
            expected["pull-requests"] = "write"
        for name, access in expected.items():
            assert allowed.get(name) in (access, "write") or "token" in given, (name, access, allowed)


@each_workflow
def test_example_uses_a_mode_on_an_effective_event(example: Example) -> None:
    for _, given in example.uses():
        for mode in given.get("mode", "sync").split(","):
            row = table()[mode.strip()]
            after = {"workflow_run"} if given.get("comment") else set()
            row["pull_request_target"] = row["pull_request"]
            assert any(event in after or row[event] != NOTHING for event in example.events), (mode, example.events)

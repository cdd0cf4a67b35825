"""Another file in place of a vmrag folder: the error names it and the command to type."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import people
from tests.support.people import World
from vmrag_link import hints
from vmrag_link.git import plumbing

shared, world = people.shared, people.world

pytestmark = pytest.mark.hooks("off")

COMMANDS = (["status"], ["list"], ["query", "rest"], ["sync"], ["fetch"], ["push"], ["gc"], ["links", "list"])


def folders(top: Path) -> list[str]:
    places = plumbing.locate_work_tree(top)
    return [
        str(folder.relative_to(places.shared))
        for folder in places.folders
        if folder not in (places.shared, places.work_tree_folder)
    ]


NAMES = [
    *(
        "kb",
        "views",
        "sources",
        "segments",
        "chroma",
        "builder",
        "uncommitted",
        "shims",
        "locks",
        "journal",
        "logs",
        "quarantine",
        "migration",
    ),
    *("leases", "remotes", "remotes.git", "local", "local/kb", "local/index", "local/segments", "tree"),
]


def test_list_contains_each_vmrag_folder(world: World):
    ada = world.ada
    assert folders(ada.top) == NAMES or sorted(folders(ada.top)) == sorted(NAMES)
    ada.git("config", "vmrag.system.versioned", "false")
    ada.vmrag("learning", "log-error", "--error-type", "E", "--error-message", "m")
    names = {path.name for path in ada.shared.iterdir() if path.is_dir()}
    assert names <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(3)
def test_doctor_reports_file_in_place_of_folder_and_its_fix_works(world: World, name: str):
    ada = world.ada
    path = ada.shared / name
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(exist_ok=True)
    path.write_text("no folder")
    topics = ada.vmrag("doctor", "--json", code=None).json["topics"]
    findings = [finding for topic in topics for finding in topic["findings"] if str(path) in finding["message"]]
    assert findings, topics
    for command in COMMANDS:
        result = ada.vmrag(*command, "--json", code=None)
        assert result.code != 4, (command, result)
        assert "INTERNAL_ERROR" not in result.err, (command, result)
    [command] = hints.list_commands(findings[0]["fix"])
    subprocess.run(["sh", "-c", command], check=True)
    again = ada.vmrag("doctor", "--json", code=None).json["topics"]
    assert not [finding for topic in again for finding in topic["findings"] if "has to be one" in finding["message"]]

"""`vmrag rm`, `restore` and `status` on a real terminal: they ask the user, and lines fit."""

from __future__ import annotations

import re

import pytest

from tests.support import screen, terminal
from tests.support.screen import Screen
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project, screens = terminal.template, terminal.project, screen.screens


def asked(screens: list[Screen], project: Project, *arguments: str, answer: str, **options: int) -> Screen:
    screens.append(Screen(project, *arguments, **options))
    screens[-1].expect("(yes, no)")
    screens[-1].answer(f"{answer}\n")
    return screens[-1]


def test_rm_of_several_documents_asks_for_confirmation(project, screens):
    before = project.texts()
    answer = asked(screens, project, "rm", "handbook/*.md", answer="no")
    assert answer.end() == 1
    assert "this would remove 3 documents." in answer.said
    assert "Nothing was removed." in answer.said
    assert project.texts() == before
    answer = asked(screens, project, "rm", "handbook/*.md", answer="y")
    assert answer.end() == 0
    assert "handbook: 3 documents removed" in answer.said
    assert set(project.texts()) == {"deep/tls.txt"}


def test_restore_of_everything_asks_for_confirmation(project, screens):
    project.put("new.md", "Never committed.")
    answer = asked(screens, project, "restore", answer="n")
    assert answer.end() == 1
    assert "uncommitted changes of 1 document: handbook/new.md." in answer.said
    assert "new.md" in project.texts()
    answer = asked(screens, project, "restore", answer="yes")
    assert answer.end() == 0
    assert "new.md" not in project.texts()
    way_back = re.search(r"run 'vmrag (restore --source \w+ \.)'", answer.said)
    assert way_back
    project.vmrag(*way_back[1].split())
    assert project.texts()["new.md"] == "Never committed."


def test_status_list_fits_narrow_window_and_has_colours(project, screens):
    project.put("new.md", "New.")
    project.drop("faq.md")
    project.put("setup.md", "# Setup\n\nInstall the program with uv.\n")
    screens.append(Screen(project, "status", columns=60))
    assert screens[-1].end() == 0
    said = screens[-1].said.replace("\r\n", "\n")
    assert "\x1b[32madded:" in said
    assert "\x1b[31mremoved:" in said
    assert "\x1b[33mmodified:" in said
    plain = re.sub(r"\x1b\[\d*m", "", said)
    listed = plain[plain.index("Documents not committed") :]
    assert max(map(len, listed.splitlines())) <= 60

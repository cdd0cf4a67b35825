"""`vmrag query` and `vmrag grep` on a real terminal: colours, narrow windows, an editor, Ctrl-C."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.pace import slack
from tests.support.screen import Screen
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

GUIDE = (
    "# Guide\n\n## Setup\n\n"
    + "Install the program, and then go on to read about it. " * 6
    + "\n\n## Keys\n\nAsk Ada for the key.\n"
)
MARKED = re.compile(r"\x1b\[33m\x1b\[1m(.*?)\x1b\[0m")


@pytest.fixture
def guide(project: Project) -> Project:
    project.write("docs/guide.md", GUIDE)
    project.vmrag("import", "docs/guide.md", "--collection", "handbook", "--copy")
    return project


def seen(project: Project, *arguments: str, code: int = 0, **options) -> str:
    with Screen(project, *arguments, **options) as screen:
        assert screen.end() == code, screen.said
    return screen.said.replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [60, 120])
def test_words_are_marked_and_lines_fit_the_window(guide, columns):
    said = seen(guide, "query", "which keys has Ada", "-k", "1", columns=columns)
    assert MARKED.findall(said) == ["Keys", "Ada", "key"]
    plain = re.sub(r"\x1b\[\d*m", "", said)
    assert "docs/guide.md:9  Guide > Keys" in plain
    assert max(map(len, plain.splitlines())) <= columns
    assert "\x1b" not in guide.start("query", "which keys has Ada").out


def test_grep_marks_matches_and_ignores_colours_in_documents(guide):
    guide.put("evil.md", "Key \x1b[31mred\x1b[0m\n")
    said = seen(guide, "grep", "[Kk]ey[s ]*")
    assert re.findall(r"\x1b\[33m\x1b\[1m(.*?)\x1b\[0m", said) == ["Key ", "Keys", "key"]
    assert r"\x1b[31mred" in said


def test_editor_opens_the_file_of_an_answer_at_its_line(guide, tmp_path):
    editor = tmp_path / "vim"
    editor.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/opened\n')
    editor.chmod(0o755)
    seen(guide, "query", "Ada's key", "--mode", "keyword", "--open", GIT_EDITOR=str(editor))
    assert Path(tmp_path, "opened").read_text().splitlines() == ["+9", str(guide.top / "docs/guide.md")]


def test_pattern_that_never_ends_is_interrupted(guide):
    guide.put("trap.md", "a" * 60 + "b\n")
    with Screen(guide, "grep", "^(a+)+$") as screen:
        time.sleep(3)  # it would take ages
        screen.answer("\x03")
        since = time.monotonic()
        assert screen.end() == 130
    assert time.monotonic() - since < 5 * slack()
    assert "Interrupted" in screen.said

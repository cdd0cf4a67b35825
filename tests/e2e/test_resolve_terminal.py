"""`vmrag resolve` on a real terminal: one conflict after the other, answers, an editor, Ctrl-C, and
colours.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import screen, terminal
from tests.support.screen import Screen
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project, screens = terminal.template, terminal.project, screen.screens

PROMPT = "[q]uit"


@pytest.fixture(scope="session")
def _torn(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def change(project: Project) -> None:
        project.put("rest.md", "Rest often.\n")
        project.put("deep/tls.txt", "Certificates\r\nfor a year.\r\n")
        project.record("ours", uv="Use pip.")
        project.vmrag("merge", "feature", code=1)

    return terminal.derive_template(tmp_path_factory, "torn in a terminal", template, change)


@pytest.fixture
def torn(_torn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Three conflicts: two texts (one with CRLF), and a document that one side removed."""
    return terminal.copied(_torn, tmp_path, monkeypatch)


@pytest.fixture
def resolve(torn: Project, screens: list[Screen]):
    def start(*arguments: str, **environ: str) -> Screen:
        screens.append(Screen(torn, "resolve", *arguments, **environ))
        return screens[-1]

    return start


def editor(tmp_path: Path, body: str) -> str:
    path = tmp_path / "editor"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def open_conflicts(project: Project) -> list[str]:
    return [conflict["id"] for conflict in project.ask("resolve", "--list", code=None)["conflicts"]]


def test_ours_theirs_and_an_editor_decide_in_turn(torn, resolve, tmp_path):
    shown = tmp_path / "shown"
    screen = resolve(GIT_EDITOR=editor(tmp_path, f'cp "$1" {shown}; printf "By hand.\\r\\n" > "$1"'))
    first = screen.expect(PROMPT)
    assert "handbook/deep/tls.txt" in first
    assert "theirs (feature): removed it" in first
    assert "(1 of 3)" in first
    screen.answer("e\n")
    assert "(2 of 3)" in screen.expect(PROMPT)
    assert shown.read_bytes() == (
        b"<<<<<<< main\nCertificates\r\nfor a year.\r\n||||||| base\n"
        b"Certificates for TLS are renewed every month.\n=======\n>>>>>>> feature\n"
    )
    screen.answer("t\n")
    screen.expect(PROMPT)
    screen.answer("o\n")
    assert screen.end() == 0
    assert "hint: run 'vmrag merge --continue" in screen.said
    torn.vmrag("merge", "--continue")
    assert torn.texts() == {
        "setup.md": "# Setup\n\nInstall the program with pip.\n",
        "faq.md": "A frequent question.",
        "deep/tls.txt": "By hand.\r\n",
        "rest.md": "# Rest\n\nNever rest.\n",
        "uv.md": "Use pip.",
    }


def test_only_a_terminal_gets_colours(torn, resolve):
    screen = resolve()
    screen.expect(PROMPT)
    screen.answer("s\n")
    assert "\x1b[31m" in screen.expect(PROMPT)
    assert "\x1b[32m" in screen.said
    screen.answer("q\n")
    assert screen.end() == 1
    assert "\x1b" not in torn.start("resolve").out
    assert "\x1b" not in torn.start("resolve", "--json").out


def test_resolve_keeps_answers_given_before_leaving(torn, resolve):
    screen = resolve()
    screen.expect(PROMPT)
    screen.answer("s\n")
    screen.expect(PROMPT)
    screen.answer("x\n")  # no answer
    screen.expect(PROMPT)
    screen.answer("o\n")
    screen.expect(PROMPT)
    screen.answer("q\n")
    assert screen.end() == 1
    assert "2 conflicts open, 1 decided" in screen.said
    assert open_conflicts(torn) == ["handbook/deep/tls.txt", "handbook/uv.md"]


def test_resolve_asks_about_conflicts_that_are_still_open(torn, resolve):
    """A conflict is decided in another terminal in between; with the last answer git's conflict is
    over.
    """
    torn.vmrag("merge", "--abort")
    torn.git("merge", "feature", check=False)
    screen = resolve()
    assert "(1 of 3)" in screen.expect(PROMPT)
    torn.vmrag("resolve", "handbook/uv.md", "--ours", code=1)
    screen.answer("o\n")
    assert "(2 of 2)" in screen.expect(PROMPT)
    screen.answer("o\n")
    assert screen.end() == 0
    assert "hint: run 'git commit" in screen.said
    torn.git("commit", "-q", "--no-edit")
    assert torn.texts()["uv.md"] == "Use pip."


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_interrupt_keeps_earlier_answers(torn, resolve, key):
    screen = resolve()
    screen.expect(PROMPT)
    screen.answer("o\n")
    screen.expect(PROMPT)
    time.sleep(0.1)
    screen.answer(key)
    assert screen.end() == 130
    assert "Decisions about the merge are kept; 'vmrag resolve' continues it." in screen.said
    assert open_conflicts(torn) == ["handbook/rest.md", "handbook/uv.md"]


def test_editor_that_brings_no_text_decides_nothing(torn, resolve, tmp_path):
    for body, code in (
        ("exit 0", 1),
        ("exit 3", 2),
        ("printf '\\377\\376' > \"$1\"", 3),
    ):
        screen = resolve("handbook/rest.md", GIT_EDITOR=editor(tmp_path, body))
        assert "(1 of 1)" in screen.expect(PROMPT)
        screen.answer("e\n")
        assert screen.end() == code, body
        assert "Traceback" not in screen.said
    assert len(open_conflicts(torn)) == 3


def test_text_with_our_markers_is_refused_and_kept_for_another_try(torn, resolve, tmp_path):
    before = open_conflicts(torn)
    body = f"""grep -q more "$1" || {{ echo more >> "$1"; exit; }}
cp "$1" {tmp_path}/second; printf 'By hand.\\n' > "$1\""""
    screen = resolve("handbook/rest.md", GIT_EDITOR=editor(tmp_path, body))
    screen.expect(PROMPT)
    screen.answer("e\n")
    assert "line 1 of the text is still a conflict marker: <<<<<<< main" in screen.expect(PROMPT)
    assert open_conflicts(torn) == before
    screen.answer("e\n")
    assert screen.end() == 1, "two are left"
    assert (tmp_path / "second").read_text().endswith(">>>>>>> feature\nmore\n")
    assert len(open_conflicts(torn)) == 2


def test_editor_is_not_offered_without_a_text_conflict(project, screens):
    for branch in ("main", "feature"):
        project.git("switch", "-q", branch)
        document = project.top / "setup.md"
        document.write_text("# Setup\n\nInstall the program with pip.\n")
        project.vmrag("add", str(document), "--collection", "handbook", "--id", "setup.md", "--title", branch)
        project.vmrag("commit", "-m", branch)
        project.git("commit", "-q", "-m", branch)
        document.unlink()
    project.git("switch", "-q", "main")
    project.vmrag("merge", "feature", code=1)
    screens.append(Screen(project, "resolve"))
    said = screens[-1].expect(PROMPT)
    assert "[e]dit" not in said
    assert "title" in said
    screens[-1].answer("t\n")
    assert screens[-1].end() == 0


def test_json_on_a_terminal_asks_no_question(torn, resolve):
    screen = resolve("--json")
    assert screen.end() == 1
    assert PROMPT not in screen.said
    assert '"conflicts"' in screen.said

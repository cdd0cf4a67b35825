"""Files of every kind that can be read are proposed, before and by `vmrag init`, and answer."""

from __future__ import annotations

import json

import pytest

from tests.support.repos import isolate, make_repo
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project
from vmrag_link.code import languages

pytestmark = pytest.mark.hooks("off")

NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Cohorts\n", "The heron migrates at dusk."]},
            {"cell_type": "code", "metadata": {}, "source": ["plot(cohorts)"], "outputs": []},
        ],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
    }
)

DOCUMENTS = {
    "analysis/cohorts.ipynb": (NOTEBOOK, "when does the heron migrate"),
    "doc/badger.txt": ("*badger.txt* Dig tunnels\n\n*badger-burrow* The badger burrows at night.\n", "badger burrow"),
    "plugins/x/doc/mole.txt": ("*mole.txt* Moles\n\nThe mole tunnels below lawns.\n", "mole tunnels"),
    "man/man1/otter.1": (".TH OTTER 1\n.SH NAME\notter \\- swim in rivers\n", "otter swim rivers"),
    "cmd/weasel.8": ('.\\" Weasels\n.TH WEASEL 8\n.SH SYNOPSIS\nThe weasel hunts voles.\n', "weasel hunts voles"),
    "plan.org": ("* Ferrets\nThe ferret sleeps in a hammock.\n", "ferret hammock"),
    "README.md.erb": ("# Stoats\n\nThe stoat turns white in <%= month %>.\n", "stoat turns white"),
    "guide/polecat.textile": ("h1. Polecats\n\nThe polecat smells of musk.\n", "polecat musk"),
    "api/animals.yaml": (
        "# Licence\nopenapi: 3.1.0\npaths:\n  /lynxes:\n    get:\n      summary: List sleepy lynxes\n",
        "list sleepy lynxes",
    ),
    "NEWS": ("Version 2: the marten climbs pines.\n", "marten climbs pines"),
}
CODE = {
    "ui/Heron.vue": ("<script>\nconst wingspan = 2\n</script>\n", "heron wingspan"),
    "ui/Egret.svelte": ("<script>let plumage = 'white'</script>\n", "plumage"),
    "site/Ibis.astro": ("---\nconst beak = 'curved'\n---\n", "beak curved"),
    "lib/stork.ex": ("defmodule Stork do\n  def deliver(baby), do: baby\nend\n", "deliver baby"),
    "lib/crane.lua": ("local function dance(crane) return crane end\n", "crane dance"),
    "lib/bittern.dart": ("void boom(Bittern bittern) {}\n", "bittern boom"),
    "lib/Spoonbill.scala": ("object Spoonbill { def sift(mud: Mud) = mud }\n", "sift mud"),
    "lib/Flamingo.hs": ("balance :: Leg -> Flamingo\nbalance leg = Flamingo leg\n", "balance leg"),
    "infra/main.tf": ('resource "aws_pond" "pelican" {}\n', "aws_pond pelican"),
    "api/gull.proto": ("message Gull { string scream = 1; }\n", "gull scream"),
    "bin/tern": ("#!/bin/sh\nplunge --into sea\n", "plunge into sea"),
    "Makefile": ("puffin:\n\tcarry eels\n", "carry eels"),
}
OTHERS = {
    "style.css": "a {}\n",
    "theme/dark.css": "b {}\n",
    "Dockerfile": "FROM scratch\n",
    "ci/jobs.yml": "jobs: [test]\n",
    "deploy/values.yaml": "image:\n  openapi: 3\n",
    "data.json": "{}\n",
    "LICENSE": "Do as you like.\n",
    "lib/libheron.so.1": "not a manual\n",
}


def build(folder) -> Project:
    made = Project(make_repo(folder / "project").top)
    kinds = DOCUMENTS | CODE
    made.commit("all", **{path: text for path, (text, _) in kinds.items()}, **OTHERS)
    return made


@pytest.fixture
def project(tmp_path_factory, tmp_path, monkeypatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("VMRAG_EMBEDDING_MODEL", "hash")
    copied = copy_tree(build_once(tmp_path_factory, "proposed-kinds", build), tmp_path / "copy")
    return Project(copied / "project")


def files_of(report) -> dict[str, dict[str, int]]:
    return {source["collection"]: source["files"] for source in report["sources"]}


def test_init_proposes_each_kind_and_counts_the_rest(project):
    report = project.ask("init")["files"]
    files = files_of(report)
    assert sum(files["docs"].values()) == len(DOCUMENTS)
    assert sum(files["code"].values()) == len(CODE)
    assert report["uncovered"] == {".css": 2, "Dockerfile": 1, ".yml": 1, ".yaml": 1, ".json": 1, "LICENSE": 1, ".1": 1}
    assert report["needs_extra"] == ""
    project.git("commit", "-qm", "set up")
    sources = project.ask("sources")
    assert {row["collection"]: row["documents"] for row in sources["sources"]} == {
        "docs": len(DOCUMENTS),
        "code": len(CODE),
        "notes": 0,
    }
    assert sources["uncovered"] == report["uncovered"]
    assert project.ask("sources", "--at", "HEAD")["uncovered"] == report["uncovered"]
    assert "2 .css, " in project.vmrag("sources").out


def test_questions_find_a_file_of_each_kind_before_setup(project):
    for path, (_, question) in (DOCUMENTS | CODE).items():
        results = project.ask("query", question, "--mode", "keyword")["results"]
        kind = "document" if path in DOCUMENTS else "code"
        assert next(result["doc_id"] for result in results if result["kind"] == kind) == path, question


def test_commit_without_settings_answers_as_its_work_tree(project):
    report, report_at_head = project.ask("sources"), project.ask("sources", "--at", "HEAD")
    assert [row["paths"] for row in report["sources"]] == [row["paths"] for row in report_at_head["sources"]]
    results = project.ask("query", "weasel hunts voles", "--mode", "keyword", "--at", "HEAD")["results"]
    assert results[0]["doc_id"] == "cmd/weasel.8"


def test_files_of_no_source_are_proposed_for_the_settings(project):
    project.commit("settings", **{".vmrag.yaml": "sources:\n  - collection: docs\n    paths: ['**/*.md.erb']\n"})
    report = project.ask("sources")
    assert report["unnamed"][".8"] == 1
    assert report["uncovered"][".css"] == 2
    assert '"**/*.ipynb"' in report["addition"]


def test_code_that_lines_cut_is_read_without_grammars(project, monkeypatch):
    project.commit("python", **{"lib/owl.py": "def hoot(): ...\n"})
    monkeypatch.setattr(languages, "find_language_problem", lambda: "no grammar is installed")
    answer = project.ask("query", "crane dance", "--mode", "keyword")
    assert answer["results"][0]["doc_id"] == "lib/crane.lua"
    assert "unavailable" not in answer["kb"]["sources"]
    report = project.ask("init")["files"]
    assert (report["uncovered"][".py"], report["needs_extra"]) == (1, languages.INSTALL_COMMAND)
    assert files_of(report)["code"][".lua"] == 1
    project.git("commit", "-qm", "set up")
    shown = project.ask("sources")
    assert (shown["uncovered"][".py"], shown["needs_extra"]) == (1, languages.INSTALL_COMMAND)
    assert [row["unavailable"] for row in shown["sources"]] == ["", "", ""]
    assert languages.INSTALL_COMMAND in project.vmrag("sources").out


def test_init_names_the_missing_extra_if_nothing_else_can_be_read(project, monkeypatch):
    project.git("rm", "-qr", ".")
    project.commit("python", **{"lib/owl.py": "def hoot(): ...\n"})
    monkeypatch.setattr(languages, "find_language_problem", lambda: "no grammar is installed")
    assert f"hint: run '{languages.INSTALL_COMMAND}' to read the code among these files\n" in (
        project.vmrag("init").out
    )
    error = project.vmrag("init", "--json", code=2).error
    assert (error["code"], error["hint"]) == (
        "ALREADY_INITIALIZED",
        f"run '{languages.INSTALL_COMMAND}', then 'vmrag init'",
    )
    assert "needs_extra" in project.ask("sources")


def test_fingerprint_of_files_alone_is_compared(project):
    project.vmrag("init")
    project.git("commit", "-qm", "set up")
    expected = project.ask("fingerprint")["fingerprint"]
    assert project.ask("fingerprint", "--check", expected)["equal"] is True
    project.commit("changed", NEWS="Version 3: the marten sleeps.\n")
    assert project.ask("fingerprint", "--check", expected, code=1)["equal"] is False


def test_text_is_shown_with_final_newline_and_without_code_fences(project):
    project.commit("page", **{"page.md": "# Wren\n\nThe wren sings.\n```sh\nsing loudly\n```\nThen it rests."})
    assert project.vmrag("show", "page.md").out.endswith("Then it rests.\n")
    said = project.vmrag("query", "wren sings", "--mode", "keyword", "-k", "1").out
    assert "The wren sings." in said
    assert "```" not in said


def test_both_ways_of_the_hint_in_an_empty_repository_work(tmp_path, project):
    empty = Project(make_repo(tmp_path / "empty").top)
    for command in ("query wren", "commit -m wrens"):
        hint = empty.vmrag(*command.split(), code=2).err.splitlines()[-1]
        assert hint.startswith("hint: run 'git add FILES' to make files searchable, or 'vmrag init --knowledge-base' ")
    empty.write("wren.md", "The wren sings.")
    empty.git("add", "wren.md")
    assert "wren.md" in empty.vmrag("query", "wren").out
    empty.vmrag("init", "--knowledge-base")
    assert "no documents have changed" in empty.vmrag("commit", "-m", "wrens", code=None).err


def test_help_names_install_the_documentation_and_plain_values(project):
    said = project.vmrag("--help").out
    assert "  install  " in said
    assert "https://github.com/vmrag/vmrag-link/tree/main/docs" in said
    assert "--most N" in project.vmrag("import", "--help").out
    assert "--collection NAME" in project.vmrag("list", "--help").out

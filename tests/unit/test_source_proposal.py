"""Which sources are proposed for the files of a repository."""

from __future__ import annotations

import time

import pytest

from vmrag_link.code import languages
from vmrag_link.conversion import formats
from vmrag_link.settings.flaws import sources_flaw
from vmrag_link.sources import first_bytes, proposal

MAN = b'.TH TOOL 1 "2026"\n.SH NAME\ntool \\- do it\n'
SCRIPT = b"#!/bin/sh\necho run\n"


def propose(*paths: str, **contents: bytes) -> dict[str, tuple[str, ...]]:
    """Return the paths of the proposed sources. `contents`: first bytes by name without ending."""

    def beginnings(paths):
        return {
            path: contents[name] for path in paths if (name := path.rpartition("/")[2].partition(".")[0]) in contents
        }

    return {source.collection: source.paths for source in proposal.propose_sources(paths, beginnings)}


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("a.md", "**/*.md"),
        ("deep/a.RST", "**/*.RST"),
        ("a.ipynb", "**/*.ipynb"),
        ("a.org", "**/*.org"),
        ("a.textile", "**/*.textile"),
        ("a.tex", "**/*.tex"),
        ("README", "**/README"),
        ("src/README.txt", "**/README.txt"),
        ("ChangeLog", "**/ChangeLog"),
        ("README.md.erb", "**/*.md.erb"),
        ("docs/index.md.tmpl", "**/*.md.tmpl"),
        ("docs/setup.txt", "docs/**/*.txt"),
        ("runtime/doc/help.txt", "runtime/doc/**/*.txt"),
        ("lib/doc/deep/help.txt", "lib/doc/**/*.txt"),
        ("l[x]b/doc/help.txt", "l?x?b/doc/**/*.txt"),
    ],
)
def test_document_is_proposed_by_its_name(path, pattern):
    assert propose(path) == {"docs": (pattern,)}


@pytest.mark.parametrize(
    "path",
    [
        *("a.py", "a.vue", "a.svelte", "a.astro", "a.ex", "a.lua", "a.dart", "A.scala", "a.hs", "a.tf", "a.proto"),
        *("a.nix", "a.jl", "a.vim", "a.el", "a.jq", "page.html.erb", "list.heex", "schema.prisma", "parse.y"),
    ],
)
def test_code_is_proposed_by_its_ending(path):
    assert propose(f"src/{path}") == {"code": (f"**/*.{path.rpartition('.')[2]}",)}


@pytest.mark.parametrize("name", ["Makefile", "CMakeLists.txt", "Rakefile", "meson.build"])
def test_code_is_proposed_by_its_whole_name(name):
    assert propose(f"docs/{name}") == {"code": (f"**/{name}",)}


@pytest.mark.parametrize(
    "path",
    [
        *("a.css", "a.scss", "Dockerfile", "data.json", "data.csv", "a.toml", "a.png", "LICENSE", ".gitignore"),
        *("notes.txt", "docs/requirements.txt", "docs/robots.txt", "tests/docs/data.txt", "libx.so.1", "run"),
        *(".github/workflows/tests.yml", "docker-compose.yaml"),
    ],
)
def test_data_and_style_are_not_proposed(path):
    assert propose(path) == {}


def test_man_pages_are_proposed_by_folder_or_content():
    assert propose("share/man/man8/tool.8") == {"docs": ("**/*.8",)}
    assert propose("tool.1", "lib.1.in", tool=MAN) == {"docs": ("**/*.1",)}
    assert propose("src/tool.1", "libs/libx.so.1", "src/other.1", tool=MAN, other=MAN) == {"docs": ("src/*.1",)}
    assert propose("src/tool.1", "src/libx.so.1", tool=MAN) == {"docs": ("src/tool.1",)}


def test_descriptions_of_apis_are_proposed_by_name_folder_or_path():
    api = b"openapi: 3.1.0\n"
    assert propose("api/v1.yaml", "ci.yaml", v1=api) == {"docs": ("api/v1.yaml",)}
    assert propose("a/openapi.yml", "b/openapi.yml", "b/c.yml", openapi=api) == {"docs": ("**/openapi.yml",)}
    assert propose("api/v1.yaml", "api/v2.yaml", "ci.yaml", v1=api, v2=api) == {"docs": ("api/*.yaml",)}
    assert propose("api/v1.yaml", "api/v2.yaml", v1=api) == {"docs": ("api/v1.yaml",)}


def test_few_likely_files_are_read_at_their_beginning():
    paths = [f"chart{number}/values.yaml" for number in range(2000)] + ["x/y/z-openapi.yaml"]
    read: list[str] = []

    def beginnings(paths):
        read.extend(paths)
        return {path: b"openapi: 3.1.0\n" for path in paths if path.startswith("x/")}

    (docs,) = proposal.propose_sources(paths, beginnings)
    assert docs.paths == ("x/y/z-openapi.yaml",)
    assert len(read) <= 500


def test_scripts_without_ending_are_proposed_by_folder_or_path():
    assert propose("bin/a", "bin/b", "bin/c.sh", a=SCRIPT, b=SCRIPT) == {"code": ("**/*.sh", "bin/*")}
    assert propose("bin/a", "bin/b", "bin/LICENSE", a=SCRIPT, b=SCRIPT) == {"code": ("bin/a", "bin/b")}
    assert propose("bin/a", "bin/data.json", a=SCRIPT) == {"code": ("bin/a",)}


def test_folders_of_others_are_excluded():
    (source,) = proposal.propose_sources(["a.md", "vendor/b.md", "x/node_modules/c.css"], lambda _: {})
    assert source.exclude == ("**/node_modules/**", "**/vendor/**")


def test_stored_names_are_not_taken():
    (docs,) = proposal.propose_sources(["a.md"], lambda _: {}, stored=["docs"])
    assert docs.collection == "documentation"
    assert proposal.propose_sources(["a.md"], lambda _: {}, stored=proposal.NAMES["document"]) == ()


def test_code_without_grammars_is_proposed_if_lines_cut_it(monkeypatch):
    monkeypatch.setattr(languages, "find_language_problem", lambda: "no grammar")
    assert propose("a.py", "a.lua", "README.md", "bin/a", a=SCRIPT) == {"docs": ("**/*.md",), "code": ("**/*.lua",)}
    assert languages.find_source_problem(["**/*.lua", "src/**/Makefile"]) == ""
    assert languages.find_source_problem(["**/*.lua", "src/"]) == "no grammar"
    assert languages.find_source_problem(["scripts.lua"]) == "no grammar"  # it may be a folder


def test_proposal_for_many_kinds_of_files_keeps_the_limits():
    paths = [f"f{number}/a.{ending}" for number, ending in enumerate(languages._BY_SUFFIX)]
    paths += [f"f{number}/{name}" for number, name in enumerate(languages.NAMES)]
    paths += [f"p{number}/doc/a.txt" for number in range(300)] + [f"s{number}/tool" for number in range(300)]
    result = proposal.propose_sources(paths, lambda names: dict.fromkeys(names, SCRIPT))
    assert (
        sources_flaw(
            [{"collection": source.collection, "paths": list(source.paths), "kind": source.kind} for source in result]
        )
        is None
    )
    assert next(source.paths for source in result if source.kind == "document") == ("**/doc/**/*.txt",)


def test_hostile_names_are_not_proposed():
    assert propose("docs/\n/doc/a.txt", "a.md\u202e", "x/\udcff.1", "bin/\t", **{"\t": SCRIPT}) == {
        "docs": ("docs/**/*.txt",)
    }


def test_templates_of_texts_are_texts_and_other_templates_are_code():
    for ending in formats.TEMPLATES:
        assert formats.find_built_in(f"README.md{ending}") is formats.find_built_in("README.md")
        assert formats.find_built_in(f"page.html{ending}") is None
        assert ending in (".in", ".template") or languages.detect_language(f"x{ending}") == "template"


# -- first bytes


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("openapi: 3.1.0\ninfo:\n", True),
        ("# Licence\n---\nswagger: '2.0'\n", True),
        ("info:\n  title: x\n'openapi': \"3.0\"\n", True),
        ("\ufeffopenapi: 3.0.0\n", True),
        ('{"openapi": "3.0.0"}', True),
        ('\n{ "info": {"title": "a } \\" {"}, "tags": [{}], "swagger" : "2.0" }', True),
        ("info:\n  openapi: 3.1.0\n", False),
        ("openapi: yes\n", False),
        ("text: |\n  swagger: '2.0'\n", False),
        ('{"dependencies": {"swagger": "2.0.1"}}', False),
        ('[{"openapi": "3.0.0"}]', False),
        ('{"a": "openapi", "b": "3.0"}', False),
        ("openapi: 3.1.0\n\0", False),
        ("x: 1\n" * 2000 + "openapi: 3.1.0\n", False),  # behind what is read
        ("", False),
    ],
)
def test_openapi_is_known_by_its_key_at_the_top(text, described):
    assert first_bytes.is_openapi(text.encode()) is described


@pytest.mark.parametrize(
    ("text", "is_page"),
    [
        ('.TH TOOL 1 "2026"\n', True),
        ('.\\" Copyright\n.Dd May 1, 2026\n', True),
        ("'\\\" t\n.TH X 3\n", True),
        (".so man3/printf.3\n", True),
        ("A text.\n.TH\n", False),
        ("1.0 first release\n", False),
        (".TH X 1\n\0", False),
    ],
)
def test_man_page_is_known_by_its_macros(text, is_page):
    assert first_bytes.is_man_page(text.encode()) is is_page


@pytest.mark.parametrize("part", [b'{"' + b'\\"' * 4000, b'{"a":' * 2000, b'{"a' * 3000, b".TH" * 3000, b"\n" * 8000])
def test_hostile_beginnings_take_no_quadratic_time(part):
    started = time.process_time()
    for _ in range(20):
        first_bytes.is_openapi(part)
        first_bytes.is_man_page(part)
    assert time.process_time() - started < 0.5

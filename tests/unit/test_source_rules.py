"""Pathspecs, attributes, and what makes a file a document, without git."""

from __future__ import annotations

import codecs
import json
import time

import pytest

from vmrag_link.errors import LimitExceeded
from vmrag_link.settings import SourceSettings
from vmrag_link.settings.flaws import pathspec_flaw
from vmrag_link.sources import attributes as attributes_module
from vmrag_link.sources import rules, selection
from vmrag_link.sources.attributes import FOR_LISTING, FOR_STORING, TreeAttributes, find_attribute_flaw
from vmrag_link.sources.disk import convert_to_stored
from vmrag_link.sources.listings import TreeFile
from vmrag_link.sources.readable import convert_blob
from vmrag_link.sources.selection import Candidate
from vmrag_link.sources.wildmatch import compile_pattern


@pytest.mark.parametrize(
    "pathspec",
    ["docs/", "README.md", "**/*.md", "*.md", "docs/ä b.md", "a/b[0-9].txt", "..docs", ".github/*", "**/a*b*/**/*.md"],
)
def test_plain_pathspecs_are_fine(pathspec):
    assert pathspec_flaw(pathspec) is None


@pytest.mark.parametrize(
    "pathspec",
    [
        "",
        ":(attr:x)",
        ":!docs",
        ":/",
        "/etc/passwd",
        "../x",
        "docs/../x",
        "..",
        "a\0b",
        "a\nb",
        "a" * 501,
        "\u202edocs",
        ".",
        "./docs",
        "src/./a",
        "docs//x",
        "docs//",
        "*a*a*b",
        "*/*/*/*/*/*/*.md",
        "**/a/**/b/**/c/**",
    ],
)
def test_unsupported_pathspecs_are_rejected_with_a_reason(pathspec):
    assert (pathspec_flaw(pathspec) or "").startswith(("begins ", "is ", "has ", "does "))


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/x/a.md", False),
        ("/docs/*.md", "docs/a.md", True),
        ("**/a.md", "a.md", True),
        ("**/a.md", "x/y/a.md", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "ab", False),
        ("a/**", "a/x/y", True),
        ("a/**", "a", False),
        ("a/x*y*z", "a/xyzyz", True),
        ("a/x*y*z", "a/xyzy", False),
        ("a/[b-d]?", "a/cé", False),
        ("a/[b-d]??", "a/cé", True),
        ("a/[!b]", "a/b", False),
        ("a/[!b]", "a/c", True),
        ("a[/]b", "a/b", False),
        ("a/[[:digit:]]", "a/7", True),
        ("a/[]x]", "a/]", True),
        ("a/[", "a/[", False),
        (r"a/\*", "a/*", True),
        (r"a/\*", "a/b", False),
        ("**/x/**/y/*.c", "x/a/x/y/b.c", True),
        ("a/**/b/**/*.c", "a/b/x.c", True),
        ("a/**/b/**/*.c", "a/b/y/x.c", True),
        ("a/**/b/**/*.c", "a/y/b/x.c", True),
        ("a/**/b/**/*.c", "a/yb/x.c", False),
    ],
)
def test_patterns_match_as_those_of_git(pattern, path, matches):
    from vmrag_link.sources.wildmatch import encode_path

    assert (compile_pattern(pattern).fullmatch(encode_path(path)) is not None) is matches


def test_hostile_pattern_takes_no_exponential_time():
    name = "a" * 250
    started = time.process_time()
    assert not compile_pattern("*a" * 100 + "b").fullmatch(name)
    assert not compile_pattern("**/" + "**/a*a/" * 40 + "b").fullmatch("/".join(["aaaa"] * 60))
    assert time.process_time() - started < 2


def test_last_rule_and_the_deepest_file_count():
    attributes = TreeAttributes(
        {
            ".gitattributes": b"*.md linguist-generated\nREADME.md !linguist-generated\n/gen/** linguist-vendored=true\n",
            "gen/.gitattributes": b"*.md -linguist-generated\nsub/x.md linguist-generated=false\n",
        },
        FOR_LISTING,
    )
    assert attributes.get_values("a.md") == {"linguist-generated": True}
    assert attributes.get_values("README.md") == {}
    assert attributes.get_values("gen/a.md") == {"linguist-generated": False, "linguist-vendored": "true"}
    assert attributes.get_values("gen/sub/x.md") == {"linguist-generated": "false", "linguist-vendored": "true"}


def test_patterns_of_folders_macros_and_negations_do_not_match():
    text = (
        b"gen/ linguist-generated\n[attr]mine linguist-generated\n# *.md filter=x\n!*.md filter=x\n*.x mine\n"
        b"*.md filter=" + b"x" * 3000
    )
    assert TreeAttributes({".gitattributes": text}, FOR_LISTING).get_values("gen/a.md") == {}


def test_excessive_number_of_rules_is_rejected():
    text = b"".join(b"*x%d* filter=x\n" % number for number in range(1001))
    with pytest.raises(LimitExceeded, match="1,000 rules for one file"):
        TreeAttributes({".gitattributes": text}, FOR_LISTING).get_values("a.md")
    many = {f"{number}/.gitattributes": text[:15000] for number in range(30)}
    with pytest.raises(LimitExceeded, match="20,000 rules"):
        TreeAttributes(many, FOR_LISTING)


def test_rules_with_many_wildcards_or_long_patterns_do_not_match():
    text = b"*a" + b"?" * 10 + b" filter=x\n" + b"a" * 256 + b" filter=x\n[Aa][Bb]*.md filter=y\n"
    attributes = TreeAttributes({".gitattributes": text}, FOR_LISTING)
    assert attributes.get_values("a" * 12) == {}
    assert attributes.get_values("a" * 256) == {}
    assert attributes.get_values("Ab.md") == {"filter": "y"}


def test_matches_of_all_files_together_are_bounded(monkeypatch):
    monkeypatch.setattr(attributes_module, "_MAX_MATCHES", 10)
    attributes = TreeAttributes({".gitattributes": b"*.x filter=x\n*.y filter=y\n"}, FOR_LISTING)
    for _ in range(5):
        attributes.get_values("a.md")
    with pytest.raises(LimitExceeded):
        attributes.get_values("a.md")


def test_attributes_are_not_matched_for_invalid_paths(monkeypatch):
    monkeypatch.setattr(attributes_module, "_MAX_MATCHES", 0)
    attributes = TreeAttributes({".gitattributes": b"*.md filter=x\n"}, FOR_LISTING)
    path = "a" * 300 + ".md"
    result = _select({path: Candidate(path, "100644", "b")}, attributes)
    assert result.left_out[0].reason.startswith("has a path that")


def test_blob_under_many_names_is_counted_for_each(monkeypatch):
    monkeypatch.setattr(selection, "_MAX_TOTAL_BYTES", 39)
    named = {path: Candidate(path, "100644", "b") for path in ("a.md", "b.md", "c.md", "d.md")}
    with pytest.raises(LimitExceeded, match="more than 39") as caught:
        _select(named, TreeAttributes({}, FOR_LISTING))
    assert "exclude" in caught.value.hint
    assert "sources_max_bytes" in caught.value.hint
    del named["d.md"]
    assert len(_select(named, TreeAttributes({}, FOR_LISTING)).files["docs"]) == 3


def _select(named, attributes):
    source = SourceSettings("docs", ("**/*.md",))
    return selection.select_files([source], [named], attributes, {"b": 10}, max_bytes=100)


@pytest.mark.parametrize("name", ["filter", "working-tree-encoding"])
def test_non_utf8_values_are_still_texts(name):
    attributes = TreeAttributes({".gitattributes": b"*.md %s=\xff\n" % name.encode()}, FOR_LISTING)
    assert attributes.get_values("a.md") == {name: "\\xff"}


def test_patterns_that_are_not_utf8_match_such_names():
    attributes = TreeAttributes({".gitattributes": b"\xff.md filter=x\n"}, FOR_LISTING)
    assert attributes.get_values("\udcff.md") == {"filter": "x"}


def test_quoted_patterns_and_the_macro_binary_are_understood():
    attributes = TreeAttributes(
        {".gitattributes": b'"a b.md" filter=x\n"\\303\\244.md" filter=y\n*.bin binary\n'}, FOR_LISTING
    )
    assert attributes.get_values("a b.md") == {"filter": "x"}
    assert attributes.get_values("ä.md") == {"filter": "y"}
    assert find_attribute_flaw(attributes.get_values("x.bin")) == "is binary according to .gitattributes"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("filter=lfs diff=lfs -text", "is kept in Git LFS"),
        ("filter=git-crypt", "has the filter git-crypt, which changes its content"),
        ("-filter", ""),
        ("-text", ""),
        ("-text -diff", "is binary according to .gitattributes"),
        ("linguist-generated", "is generated according to .gitattributes"),
        ("linguist-generated=true", "is generated according to .gitattributes"),
        ("linguist-generated=false", ""),
        ("linguist-vendored", "is vendored according to .gitattributes"),
        ("linguist-documentation", ""),
    ],
)
def test_attributes_leave_files_out(stated, reason):
    values = TreeAttributes({".gitattributes": f"* text=auto\n*.md {stated}\n".encode()}, FOR_LISTING).get_values(
        "a.md"
    )
    assert find_attribute_flaw(values) == reason


@pytest.mark.parametrize(
    ("path", "kind", "reason"),
    [
        ("a.md", "document", ""),
        ("README", "document", ""),
        ("notes.org", "document", ""),
        ("n.ipynb", "document", ""),
        ("a.pdf", "document", "is pdf, not plain text (`vmrag import` converts it)"),
        ("a.html", "document", "is html, not plain text (`vmrag import` converts it)"),
        ("a.zip", "document", "is .zip, not a document (a source of `kind: code` accepts it if it is text)"),
        ("a.py", "code", ""),
        ("x/yarn.lock", "code", "is a lock file"),
        ("x/app.min.js", "code", "is minified"),
    ],
)
def test_kind_of_a_source_decides_which_formats_it_takes(path, kind, reason):
    assert rules.find_kind_flaw(path, kind, is_handwritten=False) == reason


def test_pictures_of_a_notebook_are_discarded_before_its_size_counts():
    picture = "iVBORw0KGgo" * 100 + "\n" + "A" * 300_000 + "=="
    plot = f"<div>{'<path d=M0,0/> ' * 400_000}</div>"
    outputs = [{"data": {"image/png": picture}}, {"data": {"text/html": plot}}]
    cells = [
        {"cell_type": "markdown", "source": f"# Otter\n![a](data:image/png;base64,{picture}) by the river"},
        {"cell_type": "code", "source": "count(otters)", "outputs": outputs},
    ]
    data = json.dumps({"cells": cells}).encode()
    assert convert_blob(TreeFile("a.ipynb", "", len(data), text_limit=100), data).text == (
        "# Otter\n![a]() by the river\n\n```\ncount(otters)\n```"
    )
    refused = convert_blob(TreeFile("a.ipynb", "", len(data), text_limit=40), data)
    assert (refused.text, refused.reason) == (None, "has text of more than 40 bytes")


@pytest.mark.parametrize("unit", ["A" * 999 + " ", '\\"', '"', "\\n", "data:a/b;base64,"])
def test_notebook_of_many_megabytes_is_read_in_a_moment(unit):
    data = f'{{"cells": [], "x": "{unit * (2_000_000 // len(unit))}'.encode()
    start = time.process_time()
    assert _read(data, "a.ipynb").text is None
    assert time.process_time() - start < 8


def test_handwritten_attribute_overrides_lock_file_name():
    assert not rules.find_kind_flaw("yarn.lock", "code", is_handwritten=True)


def _read(data: bytes, path: str = "a.md", *, handwritten: bool = False):
    return convert_blob(TreeFile(path, "", len(data), handwritten=handwritten), data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (codecs.BOM_UTF8 + b"a\n", "a\n"),
        ("ä\n".encode("utf-16"), "ä\n"),
        (codecs.BOM_UTF16_BE + "ä\r\n".encode("utf-16-be"), "ä\n"),
        ("ä\n".encode("utf-32"), "ä\n"),
        (
            b"We mark such files by @generated, or by Code generated.\n",
            "We mark such files by @generated, or by Code generated.\n",
        ),
    ],
)
def test_texts_are_normalised(data, text):
    assert _read(data).text == text


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (b"a\0b", "a.md", "is not text"),
        (b"a" * 9000 + b"\0", "a.md", "contains NUL bytes"),
        (b"\xff\xfeabc", "a.md", "is not utf-16 (byte 4)"),
        (b"caf\xe9", "a.md", "is not UTF-8 (byte 3)"),
        (b" \n\t\n", "a.md", "has no text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 3\n", "a.md", "is kept in Git LFS"),
        (b"# @generated by a tool\nx = 1\n", "a.py", "is marked as generated"),
        (b"// Code generated by protoc-gen-go. DO NOT EDIT.\n", "a.go", "is marked as generated"),
        (b"x" * 20_001, "a.js", "has a line of more than 20,000 characters"),
        (b"{", "a.ipynb", "is not a notebook"),
        (b'{"cells":[' + b"{}," * 1_400_000 + b"{}]}", "a.ipynb", "has more than 4,000,000 characters"),
    ],
)
def test_files_without_text_are_left_out_with_a_reason(data, path, reason):
    result = _read(data, path)
    assert result.text is None
    assert result.reason.startswith(reason)


def test_attributes_keep_generated_looking_files():
    assert _read(b"# @generated\nx\n", "a.py", handwritten=True).text == "# @generated\nx\n"


def test_long_line_of_prose_stays():
    assert _read(b"word " * 5000).text


def test_notebook_has_its_cells_without_outputs():
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "words"]},
            {"cell_type": "code", "source": "print('```')", "outputs": [{"text": "SECRET"}]},
            {"cell_type": "raw", "source": "\0x"},
        ],
        "metadata": {"language_info": {"name": "python"}},
    }
    text = _read(json.dumps(notebook).encode(), "a.ipynb").text
    assert text
    assert text.startswith("# Title\nwords\n\n````python\nprint('```')\n````")
    assert "SECRET" not in text
    text.encode()
    assert "\0" not in text


@pytest.mark.parametrize(
    ("stated", "autocrlf", "data", "stored"),
    [
        ("", "", b"a\r\n", b"a\r\n"),
        ("", "true", b"a\r\n", b"a\n"),
        ("", "input", b"a\r\n\0", b"a\r\n\0"),
        ("-text", "true", b"a\r\n", b"a\r\n"),
        ("text", "", b"a\r\n", b"a\n"),
        ("text=auto", "", b"a\r\nb\rc", b"a\r\nb\rc"),
        ("eol=crlf", "", b"a\r\n", b"a\n"),
        ("working-tree-encoding=UTF-16LE text", "", "ä\r\n".encode("utf-16-le"), "ä\n".encode()),
        ("working-tree-encoding=UTF-16", "", "ä\n".encode("utf-16"), "ä\n".encode()),
    ],
)
def test_file_is_named_as_git_would_store_it(stated, autocrlf, data, stored):
    values = TreeAttributes({".gitattributes": f"* {stated}\n".encode()}, FOR_STORING).get_values("a.md")
    assert convert_to_stored(data, values, autocrlf) == stored


PATHSPECS = (
    "**/*.md **/docs/*.md docs vendor vendor/ vendor/lib vendor/lib/docs vendor/*/docs vendor/*/*.md v*/lib/docs/*.md **/lib "
    "**/lib/docs/** vendor/**/a.md ** * vendor/li?/a.md vendor/lib/docs/ vendor/lib/[a-b].md **/docs/**/x/*.md lib/*.md"
).split()
"""Pathspecs, some of which name files of the folder `vendor/lib`."""


@pytest.mark.parametrize("pathspec", PATHSPECS)
def test_sources_below_name_the_same_files_from_a_folder(pathspec):
    source = SourceSettings("docs", (pathspec,), ())
    below = rules.select_sources_below([source], "vendor/lib")
    files = "a.md docs/a.md docs/x/a.md docs docs/docs/x/b.md lib/a.md x/docs/x/a.md tool.py".split()
    named = {file for file in files if rules.is_named(source, f"vendor/lib/{file}")}
    assert {file for source in below for file in files if rules.is_named(source, file)} == named
    others = SourceSettings("docs", ("**",), (pathspec,))
    selected = {
        file
        for below_source in rules.select_sources_below([others], "vendor/lib")
        for file in files
        if rules.is_named(below_source, file)
    }
    assert selected == {*files} - named

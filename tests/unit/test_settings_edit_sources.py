"""Sources are added to a settings file: all else in it stays byte for byte."""

from __future__ import annotations

import msgspec
import pytest

from vmrag_link import __version__, config, settings_docs, settings_edit
from vmrag_link.errors import ConfigInvalid
from vmrag_link.formats import SOURCES_VERSION, find_version_flaw, is_below
from vmrag_link.settings import Config, SourceSettings

SOURCES = (
    SourceSettings("docs", ("**/*.md", 'docs/a "b"/ü.txt'), ("**/vendor/**",)),
    SourceSettings("code", ("src/",), (), "code"),
    SourceSettings("on", ("null/",)),
)


def loaded(text: bytes) -> Config:
    return config.resolve_settings(text, path_label="file", overrides={}, environ={}).config


@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"# a comment\n",
        b"retrieval:\n  k: 5",
        b"retrieval:\r\n  k: 5\r\n",
        settings_docs.format_template().encode(),
    ],
)
def test_file_states_the_sources_and_its_earlier_settings(before):
    after = settings_edit.add_sources(before, SOURCES)
    assert after.startswith(before)
    assert loaded(after) == msgspec.structs.replace(loaded(before), sources=SOURCES)
    assert (b"\r\n" in after) == (b"\r\n" in before)
    assert b"\n" not in after.replace(b"\r\n", b"") or b"\r\n" not in before


@pytest.mark.parametrize("before", [b"{retrieval: {k: 5}}\n", b"retrieval:\n  k: [\n"])
def test_file_that_cannot_take_them_is_refused(before):
    with pytest.raises(ConfigInvalid):
        settings_edit.add_sources(before, SOURCES)


def test_settings_are_not_written_without_sources():
    assert settings_edit.add_sources(b"k", ()) == b"k"
    assert settings_edit.format_sources(()) == ""


MORE = SourceSettings("docs", ("man/",))
NEW = SourceSettings("code", ("src/", "lib/"), (), "code")


@pytest.mark.parametrize(
    "before",
    [
        "sources:\nretrieval.k: 3\n",
        "sources: [] # none\n",
        "# top\nsources:\n- collection: docs # k\n  paths:\n  - x\n  - y # c\n\n# t\nretrieval.k: 2\n",
        "sources: [{collection: docs, paths: [b]}] # c\n",
        "sources:\n  - collection: docs\n    paths: [\"a\", 'b',]  # list\n    # e\n    exclude: [c]\n  # end\n",
        "\ufeffsources:\r\n    - paths: [a]\r\n      collection: docs\r\n",
        "sources:\n  -\n    collection: docs\n    paths: [x]",
        "{sources: [{collection: docs, paths: [b]}]}\n",
    ],
)
@pytest.mark.parametrize("source", [MORE, NEW], ids=["docs", "code"])
def test_with_source_keeps_all_other_text(before, source):
    stated = loaded(before.encode())
    after = settings_edit.add_source(before.encode(), source)
    expected = {entry.collection: entry for entry in stated.sources}
    old = expected.get(source.collection)
    expected[source.collection] = msgspec.structs.replace(old, paths=old.paths + source.paths) if old else source
    assert loaded(after) == msgspec.structs.replace(stated, sources=tuple(expected.values()))
    lines = [line for line in after.decode().splitlines() if "#" in line]
    assert [line.partition("#")[2] for line in lines] == [
        line.partition("#")[2] for line in before.splitlines() if "#" in line
    ]
    assert (b"\r\n" in after) == ("\r\n" in before)


def test_with_source_refuses_a_file_that_it_cannot_edit():
    with pytest.raises(ConfigInvalid):
        settings_edit.add_source(b"{retrieval: {k: 5}}\n", MORE)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# a comment\n",
        "retrieval:\n  k: 5",
        "retrieval:\r\n  k: 5\r\n",
        "---\nretrieval.k: 5\n",
        "{retrieval: {k: 5}}\n",
        "# c\n{}\n",
        "\ufeff{ }",
        'requires: "0.1"  # why\nretrieval.k: 5\n',
        'requires: ""\n',
    ],
)
def test_with_requirement_keeps_all_other_text(before):
    stated = loaded(before.encode())
    after = settings_edit.set_requirement(before.encode(), SOURCES_VERSION)
    assert loaded(after) == msgspec.structs.replace(stated, requires=SOURCES_VERSION)
    assert settings_edit.set_requirement(after, SOURCES_VERSION) == after
    assert (b"\r\n" in after) == ("\r\n" in before)
    for comment in ("# a comment", "# c", "# why"):
        assert (comment in before) == (comment in after.decode().splitlines() or f"  {comment}\n" in after.decode())


@pytest.mark.parametrize("stated", ["0.2", "0.2.0", "0.10", "1"])
def test_with_requirement_keeps_a_version_that_is_not_lower(stated):
    before = f'requires: "{stated}"\n'.encode()
    assert settings_edit.set_requirement(before, SOURCES_VERSION) == before


def test_this_program_is_not_below_the_version_that_it_writes():
    assert not is_below(__version__, SOURCES_VERSION)
    assert find_version_flaw(SOURCES_VERSION) is None

"""Sources are added to a settings file: all else in it stays byte for byte."""

from __future__ import annotations

import msgspec
import pytest

from vmrag_link import config, settings_docs
from vmrag_link.errors import ConfigInvalid
from vmrag_link.settings import Config, SourceSettings

SOURCES = (
    SourceSettings("docs", ("**/*.md", 'docs/a "b"/ü.txt'), ("**/vendor/**",)),
    SourceSettings("code", ("src/",), (), "code"),
    SourceSettings("on", ("null/",)),
)


def loaded(text: bytes) -> Config:
    return config.load(text, path_label="file", overrides={}, environ={}).config


@pytest.mark.parametrize(
    "before",
    [b"", b"# a comment\n", b"retrieval:\n  k: 5", b"retrieval:\r\n  k: 5\r\n", config.template().encode()],
)
def test_the_file_states_the_sources_and_what_it_stated(before):
    after = settings_docs.with_sources(before, SOURCES)
    assert after.startswith(before)
    assert loaded(after) == msgspec.structs.replace(loaded(before), sources=SOURCES)
    assert (b"\r\n" in after) == (b"\r\n" in before)
    assert b"\n" not in after.replace(b"\r\n", b"") or b"\r\n" not in before


@pytest.mark.parametrize("before", [b"{retrieval: {k: 5}}\n", b"sources: []\n", b"retrieval:\n  k: [\n"])
def test_a_file_that_cannot_take_them_is_refused(before):
    with pytest.raises(ConfigInvalid):
        settings_docs.with_sources(before, SOURCES)


def test_without_sources_nothing_is_written():
    assert settings_docs.with_sources(b"k", ()) == b"k"
    assert settings_docs.sources_section(()) == ""

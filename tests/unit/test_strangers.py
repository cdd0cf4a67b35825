"""All hostile texts of `tests/support` in their first reader: no process, no network, no file."""

from __future__ import annotations

import re

import pytest

from tests.support.repos import Repo, isolate, make_repo
from tests.support.strangers import (
    BROKEN,
    IMPOSSIBLE,
    SECRET,
    SETTINGS,
    SETTINGS_IGNORED,
    SETTINGS_REFUSED,
    UNTRUSTED,
    members,
)
from vmrag_link import config, pin
from vmrag_link.errors import ConfigInvalid, PinMalformed, RemoteNotTrusted, VmragError
from vmrag_link.git import plumbing
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import Config
from vmrag_link.transport import address


def filled(text: str) -> str:
    values = {"a": "4001", "b": "4002", "c": "4003", "out": "/srv/outside", "origin": "/srv/origin.git"}
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def fit_for_people(error: VmragError) -> None:
    for text in (error.message, error.hint):
        assert text
        assert text.isprintable()
        assert SECRET not in text
        assert len(text) < 1800


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a repository without any configuration."""
    folder = tmp_path_factory.mktemp("strangers")
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder / "home")
        return make_repo(folder / "repo")


@pytest.mark.parametrize("what", UNTRUSTED)
def test_possible_remote_is_read_literally_and_untrusted(repo, what):
    remote = filled(UNTRUSTED[what])
    assert pin.parse_pin(members(dolt_remote=remote)).dolt_remote == remote
    places = plumbing.locate_work_tree(repo.top)
    with pytest.raises(RemoteNotTrusted) as caught:
        address.require_trusted(places, remote, accepted=lambda: None)
    assert caught.value.details["remote"] == remote
    fit_for_people(caught.value)
    with pytest.raises(RemoteNotTrusted):
        address.require_trusted_for_agent(places, remote, accepted=lambda: None, agreed=())


@pytest.mark.parametrize("what", UNTRUSTED)
def test_remote_of_untrusted_settings_is_ignored(what):
    loaded = _settings(f"{SETTINGS}remote: '{filled(UNTRUSTED[what])}'\n".encode())
    assert loaded.config.remote == Config().remote
    assert re.search(r"untrusted setting remote \(line 3\)", loaded.warnings[0])
    assert filled(UNTRUSTED[what]) not in loaded.warnings[0]


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_remote_that_no_pin_can_name_is_refused_with_its_line(what):
    with pytest.raises(PinMalformed, match=r"\.dolt-version, line \d+: dolt_remote ") as caught:
        pin.parse_pin(members(dolt_remote=filled(IMPOSSIBLE[what])))
    fit_for_people(caught.value)


@pytest.mark.parametrize("what", BROKEN)
def test_file_that_no_pin_can_be_is_refused_with_its_line(what):
    with pytest.raises(PinMalformed, match=r"\.dolt-version, line \d+: ") as caught:
        pin.parse_pin(filled(BROKEN[what][1].decode("latin-1")).encode("latin-1"))
    fit_for_people(caught.value)


@pytest.mark.parametrize("what", SETTINGS_REFUSED)
def test_settings_that_no_settings_can_be_are_refused_with_their_line(what):
    with pytest.raises(ConfigInvalid, match=r"\.vmrag\.yaml, line \d+: ") as caught:
        _settings(filled(SETTINGS_REFUSED[what]).encode())
    fit_for_people(caught.value)


@pytest.mark.parametrize("what", SETTINGS_IGNORED)
def test_untrusted_settings_leave_the_default(what):
    loaded = _settings(filled(SETTINGS_IGNORED[what]).encode())
    usual = Config()
    assert (loaded.config.embedding.model_path, loaded.config.dolt) == (usual.embedding.model_path, usual.dolt)
    key = r"(embedding\.model_path|dolt\.(binary|server))"
    assert re.search(rf"untrusted settings? .*{key} \(line \d+\)", loaded.warnings[0])


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_parse_url_rejects_addresses_that_no_pin_can_name(what):
    with pytest.raises(VmragError) as caught:
        address.parse_url(filled(IMPOSSIBLE[what]))
    assert caught.value.code == "INVALID_REMOTE_URL"


def _settings(data: bytes) -> config.LoadedSettings:
    return config.resolve_settings(data, path_label=CONFIG_NAME, overrides={}, environ={})

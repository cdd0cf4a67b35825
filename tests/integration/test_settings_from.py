"""`VMRAG_SETTINGS_FROM`: in CI the settings of a commit stand for the person, never those that a
pull request brings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.repos import Repo, isolate, make_repo
from vmrag_link import agreements, trust
from vmrag_link.config import LoadedSettings
from vmrag_link.embedding.registry import NO_PERMISSION
from vmrag_link.errors import ConfigInvalid, UsageInvalid, VmragError
from vmrag_link.git import plumbing
from vmrag_link.ops import trust as operation
from vmrag_link.progress import QUIET
from vmrag_link.settings import Config
from vmrag_link.settings.keys import KEYS
from vmrag_link.workspace import Workspace

BASE = """\
remote: git+https://example.org/kb.git
hooks.on_dirty: commit
limits.knowledge_mb: 100
embedding:
  model: ollama
  ollama_url: http://embedding.example.org
retrieval.k: 7
"""

TRUSTED = {"remote", "hooks.on_dirty", "limits.knowledge_mb", "embedding.model", "embedding.ollama_url"}


def hostile() -> str:
    """Every setting that needs agreement, with another value than its default."""
    lines = []
    for key in KEYS.values():
        if not key.needs_trust:
            continue
        choices = [choice for choice in key.choices if choice != key.default]
        text = "http://evil.example.org/x"
        wide: dict[type, object] = {bool: not key.default, int: key.highest}
        name = wide.get(key.kind) if key.kind in wide else choices[-1] if choices else text
        if key.flaw and key.flaw(str(name)):
            name = next(name for name in ("evil", "/evil", "evil:1") if not key.flaw(name))
        lines.append(f"{key.name}: {str(name).lower() if isinstance(name, bool) else name}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.delenv("VMRAG_INDEX_CHROMA")
    return make_repo(tmp_path / "project")


def commit(repo: Repo, text: str | bytes | None) -> str:
    return repo.commit("settings", **{".vmrag.yaml": text})


def loaded(repo: Repo) -> LoadedSettings:
    return trust.load_settings(plumbing.locate_work_tree(repo.top))


def refused(repo: Repo) -> VmragError:
    with pytest.raises(VmragError) as caught:
        loaded(repo)
    return caught.value


def test_settings_of_base_apply_and_those_of_head_are_ignored(repo, monkeypatch):
    base = commit(repo, BASE)
    alone = trust.load_settings(plumbing.locate_work_tree(repo.top)).config
    assert alone.remote == "git:"  # no agreement exists, and no commit is trusted
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", base)
    trusted = loaded(repo)
    assert (trusted.config.remote, trusted.config.embedding.model) == ("git+https://example.org/kb.git", "ollama")
    assert (trusted.config.hooks.on_dirty, trusted.config.limits.knowledge_mb) == ("commit", 100)
    assert (trusted.warnings, trusted.trusted) == ([], TRUSTED)
    text = hostile()
    assert len(text.splitlines()) > 20
    commit(repo, text)
    result = loaded(repo)
    assert result.config.remote == trusted.config.remote
    assert result.config.embedding == trusted.config.embedding
    assert result.config.limits == trusted.config.limits  # its own are wider
    for name, key in KEYS.items():
        if key.needs_trust and key.narrower is None:
            assert value(result.config, name) == value(trusted.config, name), name
    assert result.warnings[0].endswith(f": those of commit {base[:12]} apply (VMRAG_SETTINGS_FROM)")
    assert "vmrag trust" not in result.warnings[0]


def value(config: Config, name: str) -> object:
    result: object = config
    for part in name.split("."):
        result = getattr(result, part)
    return result


def test_defaults_apply_without_base_file_and_head_may_narrow_them(repo, monkeypatch):
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", repo.commit("no settings"))
    commit(repo, "remote: file:///evil\nhooks.on_dirty: commit\nlimits.knowledge_mb: 5\nauto_fetch: false\n")
    config = loaded(repo).config
    assert (config.remote, config.hooks.on_dirty) == ("git:", "warn")
    assert (config.limits.knowledge_mb, config.auto_fetch) == (5, False)


def test_head_that_deletes_the_file_takes_no_restriction_back(repo, monkeypatch):
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", commit(repo, "mcp.read_only: true\nlimits.knowledge_mb: 5\n"))
    repo.commit("gone", **{".vmrag.yaml": None})
    config = loaded(repo).config
    assert (config.mcp.read_only, config.limits.knowledge_mb) == (True, 5)


def test_agreements_on_the_machine_are_ignored_in_ci(repo, monkeypatch):
    """A runner that is used again has the agreements of former jobs."""
    places = plumbing.locate_work_tree(repo.top)
    agreements.add_agreement(places, {"hooks.on_dirty": "commit"})
    base = repo.commit("no settings")
    commit(repo, "hooks.on_dirty: commit\n")
    assert loaded(repo).config.hooks.on_dirty == "commit"
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", base)
    assert loaded(repo).config.hooks.on_dirty == "warn"


def test_environment_has_the_last_word(repo, monkeypatch):
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", commit(repo, BASE))
    monkeypatch.setenv("VMRAG_REMOTE", "git+https://example.org/other.git")
    assert loaded(repo).config.remote == "git+https://example.org/other.git"


@pytest.mark.parametrize("name", ["main", "HEAD", "HEAD~1", "abc", "-x", "0" * 39, "A" * 40, "main:.vmrag.yaml"])
def test_only_a_full_hash_names_a_commit(repo, monkeypatch, name):
    commit(repo, BASE)
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", name)
    error = refused(repo)
    assert isinstance(error, ConfigInvalid)
    assert error.hint.startswith("run 'unset VMRAG_SETTINGS_FROM")


def test_missing_settings_commit_is_an_error(repo, monkeypatch):
    commit(repo, BASE)
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", "0123456789" * 4)
    error = refused(repo)
    assert isinstance(error, ConfigInvalid)
    assert error.hint == f"run 'git fetch origin {'0123456789' * 4}' to fetch it"


@pytest.mark.parametrize("text", ["remote: [", "nonsense: 1\n", "hooks.on_dirty: shout\n", b"\xff", b"#" * 70_000])
def test_settings_of_the_base_that_cannot_be_read_are_an_error(repo, monkeypatch, text):
    base = commit(repo, text)
    commit(repo, BASE)
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", base)
    assert base[:12] in refused(repo).message


def test_empty_settings_variable_is_ignored(repo, monkeypatch):
    commit(repo, "hooks.on_dirty: commit\n")
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", "")
    assert "ignoring untrusted setting" in loaded(repo).warnings[0]


def test_trust_is_rejected_if_settings_come_from_a_commit(repo, monkeypatch):
    base = repo.commit("no settings")
    commit(repo, "hooks.on_dirty: commit\n")
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", base)
    ws = Workspace.open(repo.top, QUIET)
    report = operation.examine_settings(ws)
    assert not report.agreed
    with pytest.raises(UsageInvalid, match=base[:12]):
        operation.trust_settings(ws, report)
    ws.close()


def test_environment_can_forbid_all_services(repo, monkeypatch):
    places = plumbing.locate_work_tree(repo.top)
    agreements.add_service(places, "openai")
    monkeypatch.setenv("VMRAG_SETTINGS_FROM", commit(repo, BASE))
    assert {"ollama", "openai"} <= trust.permit_services(places, loaded(repo)).services
    monkeypatch.setenv("VMRAG_NO_SERVICES", "1")
    assert trust.permit_services(places, loaded(repo)) == NO_PERMISSION

"""Calls of GitHub's REST API, against a local fake."""

from __future__ import annotations

import pytest

from tests.support.github_rest import GitHubApi, github_api
from vmrag_action.github_api import GitHub, Proposal
from vmrag_link import endpoint
from vmrag_link.errors import AuthenticationFailed, RemoteRejected, RemoteUnreachable, UsageInvalid, VmragError

TOKEN = "ghs_0123456789abcdef"
WANTED = Proposal("vmrag/repair-0123abcd", "release;`id`", "Title", "Body\n")


@pytest.fixture
def api():
    with github_api(TOKEN) as server:
        yield server


def client(api: GitHubApi, token: str = TOKEN, repository: str = "them/project") -> GitHub:
    return GitHub.from_job(f" {token}\n", {"GITHUB_API_URL": f"{api.url}/", "GITHUB_REPOSITORY": repository})


def test_pull_request_is_opened_once_and_found_afterwards(api):
    assert client(api).ensure_pull_request(WANTED) == (40, True)
    assert client(api).ensure_pull_request(WANTED) == (40, False)
    assert client(api).ensure_pull_request(WANTED._replace(base="main")) == (41, True)
    assert [pull["base"] for pull in api.pulls] == ["release;`id`", "main"]
    assert api.methods == ["GET", "POST", "GET", "GET", "POST"]


def test_concurrently_opened_pull_request_is_found(api):
    api.pulls.append({"number": 7, "head": WANTED.head, "base": WANTED.base})
    api.late = True
    assert client(api).ensure_pull_request(WANTED) == (7, False)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"token": "ghs_another"}, AuthenticationFailed),
        ({"repository": "them/other"}, RemoteRejected),
        ({}, AuthenticationFailed),
    ],
    ids=["token", "repository", "settings"],
)
def test_rejection_names_the_required_permission_and_never_the_token(api, change, error):
    api.refuses = True
    with pytest.raises(error) as refused:
        client(api, **change).ensure_pull_request(WANTED)
    failure: VmragError = refused.value
    assert "pull-requests: write" in failure.hint
    assert change.get("token", TOKEN) not in str(failure.to_dict())


def test_invalid_or_missing_answers_of_github_raise_unreachable(api, monkeypatch):
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    nowhere = GitHub("http://127.0.0.1:1", "them/project", TOKEN)
    with pytest.raises(RemoteUnreachable):
        nowhere.ensure_pull_request(WANTED)
    monkeypatch.setattr(GitHubApi, "answer", lambda *_: (200, {"number": "::error::"}, {}))
    with pytest.raises(RemoteUnreachable):
        client(api).ensure_pull_request(WANTED)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"GITHUB_API_URL": "http://github.example/api", "GITHUB_REPOSITORY": "them/project"},
        {"GITHUB_API_URL": "https://github.example/api", "GITHUB_REPOSITORY": "them/project/../other"},
    ],
    ids=["nothing", "in the clear", "no name"],
)
def test_token_goes_nowhere_else(environ):
    with pytest.raises(UsageInvalid):
        GitHub.from_job(TOKEN, environ)

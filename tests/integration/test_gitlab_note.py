"""The report as a note on a merge request of GitLab, against a local stand-in of its API."""

from __future__ import annotations

import html
import re

import pytest

from tests.support import terminal
from tests.support.gitlab_notes import ME, SOMEBODY, TOKEN, GitLabApi, gitlab_api
from vmrag_link.errors import AuthenticationFailed, RemoteRejected, RemoteUnreachable, UsageInvalid
from vmrag_link.markdown_text import text
from vmrag_link.ops.report import gitlab
from vmrag_link.ops.report.gitlab import MARKER, MergeRequest

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(gitlab, "PAUSES", (0.0, 0.0))
    with gitlab_api() as found:
        yield found


def settle(api: GitLabApi, markdown: str = "# News\n", *, speaks: bool = True, **environ: str) -> str:
    return MergeRequest.of(api.job | environ).settle(markdown, speaks=speaks)


def ours(api: GitLabApi) -> list[str]:
    return [each["body"] for each in api.notes if each["author"]["id"] == ME]


def test_one_note_is_written_and_edited_and_left_as_it_is(api):
    assert settle(api, speaks=False) == "none"
    assert settle(api) == "created"
    assert settle(api) == "unchanged"
    assert settle(api, "# Nothing\n", speaks=False) == "edited"
    assert ours(api) == [f"{MARKER}\n# Nothing"]


def test_it_is_found_by_its_author_and_its_first_line_on_whatever_page(api):
    api.note(f"{MARKER}\nA stranger's.", SOMEBODY)
    api.note(f"Who writes {MARKER} about us?\n{MARKER}")
    api.note(f"{MARKER}\nwas changed", system=True)
    for number in range(199):
        api.note(f"About line {number}.", SOMEBODY)
    api.note(f"{MARKER}\nBefore.")
    assert settle(api) == "edited"
    assert len(api.notes) == 203
    assert api.notes[-1]["body"] == f"{MARKER}\n# News"
    assert [each["body"] for each in api.notes[:3]] == [
        f"{MARKER}\nA stranger's.",
        f"Who writes {MARKER} about us?\n{MARKER}",
        f"{MARKER}\nwas changed",
    ]
    assert api.asked == ["GET"] * 4 + ["PUT"]


def test_of_two_that_jobs_wrote_at_once_one_stays(api):
    api.note(f"{MARKER}\n1")
    api.note(f"{MARKER}\n2")
    assert settle(api) == "edited"
    assert ours(api) == [f"{MARKER}\n# News"]


@pytest.mark.parametrize(
    ("environ", "error", "said"),
    [
        ({"GITLAB_TOKEN": "glpat-another"}, AuthenticationFailed, "401"),
        ({"CI_MERGE_REQUEST_IID": "4"}, RemoteRejected, "404"),
    ],
)
def test_a_refusal_says_which_token_is_needed_and_never_the_token(api, environ, error, said):
    with pytest.raises(error, match=said) as refused:
        settle(api, **environ)
    assert "scope api" in refused.value.hint
    assert "glpat" not in str(refused.value.to_dict())
    assert len(api.asked) <= 2


def test_a_token_that_may_only_read_writes_nothing(api):
    api.fails = [("POST", 403, {})]
    with pytest.raises(AuthenticationFailed, match="403"):
        settle(api)
    assert not api.notes


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_service_that_is_busy_is_asked_again(api, status):
    api.fails = [("GET", status, {"Retry-After": "0"}), ("GET", status, {})]
    assert settle(api) == "created"
    api.fails = [("GET", status, {})] * 3
    with pytest.raises(RemoteUnreachable, match=str(status)):
        settle(api)


def test_a_note_that_was_written_and_not_confirmed_is_not_written_twice(api):
    api.fails, api.after = [("POST", 502, {})], True
    assert settle(api) == "unchanged"
    assert len(api.notes) == 1


def test_a_wait_that_outlasts_the_job_is_an_error_at_once(api):
    api.fails = [("GET", 429, {"Retry-After": "86400"})]
    with pytest.raises(RemoteUnreachable):
        settle(api)
    assert api.asked == ["GET"]


def test_the_token_follows_no_redirection(api):
    with gitlab_api() as elsewhere:
        api.fails = [("GET", 302, {"Location": f"{elsewhere.url}/user"})]
        with pytest.raises(RemoteRejected, match="302"):
            settle(api)
        assert not elsewhere.asked


def test_what_answers_otherwise_or_not_at_all_is_an_error(api, monkeypatch):
    with pytest.raises(RemoteUnreachable, match="cannot be reached"):
        settle(api, CI_API_V4_URL="http://127.0.0.1:1/api/v4")
    monkeypatch.setattr(GitLabApi, "answer", lambda *_: (200, {}, [{"id": "::error::"}]))
    with pytest.raises(RemoteUnreachable, match="does not answer as GitLab's API"):
        settle(api)


@pytest.mark.parametrize(
    "environ",
    [
        {"CI_API_V4_URL": "http://gitlab.example/api/v4"},
        {"CI_API_V4_URL": ""},
        {"CI_MERGE_REQUEST_PROJECT_ID": "42/../43"},
        {"CI_MERGE_REQUEST_IID": ""},
        {"GITLAB_TOKEN": ""},
        {"GITLAB_TOKEN": f"{TOKEN}\r\nX: y"},
    ],
)
def test_the_token_goes_nowhere_else(api, environ):
    with pytest.raises(UsageInvalid):
        settle(api, **environ)
    assert not api.asked


def test_strangers_notify_nobody_refer_to_nothing_and_give_no_commands(api):
    """GitLab looks for references in the page, and for quick actions in what is sent."""
    hostile = "\n/close\n@all group/project#1 !2 ~3 %4 $5 &6 ^7 *iteration:8 [epic:9] https://example.org/-/issues/1"
    settle(api, text(hostile))
    [note] = ours(api)
    assert not re.search(r"(?m)^\s*/", note)
    shown = html.unescape(note.partition("\n")[2])
    assert not re.search(r"[@#!~%$&^*\[][\w:]|://", shown)
    assert shown.replace("\u2060", "").replace("<br>", "\n").endswith(hostile)


def test_a_report_is_no_longer_than_a_note_may_be():
    assert len(MARKER) + 1 + len(gitlab.plain(text("@" * (gitlab.LIMIT // 5)))) < 1_000_000


def test_the_command_writes_the_report_of_a_merge_request_and_not_of_one_that_changes_nothing(api, project):
    done = project.vmrag("report", "main", "feature", "--gitlab-note", env=api.job)
    assert "The note on the merge request: created." in done.err
    [note] = ours(api)
    assert "uv" in note
    done = project.vmrag("report", "main", "main", "--gitlab-note", env=api.job)
    assert "edited" in done.err
    api.notes.clear()
    done = project.vmrag("report", "main", "main", "--gitlab-note", env=api.job)
    assert "none" in done.err
    assert not api.notes


def test_the_command_says_before_it_works_that_there_is_no_merge_request(project):
    done = project.vmrag("report", "main", "feature", "--gitlab-note", code=2)
    assert "no job of a GitLab merge request" in done.err

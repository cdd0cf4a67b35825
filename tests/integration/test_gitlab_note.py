"""The report as a note on a GitLab merge request, against a local fake of its API."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from tests.support import terminal
from tests.support.gitlab_notes import ME, SOMEBODY, TOKEN, GitLabApi, gitlab_api
from tests.support.reports import document, report
from tests.support.terminal import opened
from vmrag_link.errors import AuthenticationFailed, RemoteRejected, RemoteUnreachable, UsageInvalid
from vmrag_link.ops.report import gitlab
from vmrag_link.ops.report.comment import MARKER, format_comment
from vmrag_link.ops.report.comment_data import build_comment_data
from vmrag_link.ops.report.ends import NamedEnd
from vmrag_link.ops.report.gather import gather_report
from vmrag_link.ops.report.gitlab import MergeRequest
from vmrag_link.ops.report.records import AnswerChange, AnswerText, ComparedQueries

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(gitlab, "RETRY_PAUSES", (0.0, 0.0))
    with gitlab_api() as server:
        yield server


def settle(api: GitLabApi, markdown: str = "# News\n", *, speaks: bool = True, **environ: str) -> str:
    return MergeRequest.from_environment(api.job | environ).update_note(f"{MARKER}\n{markdown}", speaks=speaks)


def ours(api: GitLabApi) -> list[str]:
    return [note["body"] for note in api.notes if note["author"]["id"] == ME]


def test_note_is_written_once_edited_and_left_unchanged(api):
    assert settle(api, speaks=False) == "none"
    assert settle(api) == "created"
    assert settle(api) == "unchanged"
    assert settle(api, "# Nothing\n", speaks=False) == "edited"
    assert ours(api) == [f"{MARKER}\n# Nothing"]


def test_note_is_found_by_author_and_first_line_on_any_page(api):
    api.note(f"{MARKER}\nA stranger's.", SOMEBODY)
    api.note(f"Who writes {MARKER} about us?\n{MARKER}")
    api.note(f"{MARKER}\nwas changed", system=True)
    for number in range(199):
        api.note(f"About line {number}.", SOMEBODY)
    api.note(f"{MARKER}\nBefore.")
    assert settle(api) == "edited"
    assert len(api.notes) == 203
    assert api.notes[-1]["body"] == f"{MARKER}\n# News"
    assert [note["body"] for note in api.notes[:3]] == [
        f"{MARKER}\nA stranger's.",
        f"Who writes {MARKER} about us?\n{MARKER}",
        f"{MARKER}\nwas changed",
    ]
    assert api.methods == ["GET"] * 4 + ["PUT"]


def test_duplicate_of_two_concurrent_notes_is_removed(api):
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
def test_rejection_names_the_required_token_scope_and_never_the_token(api, environ, error, said):
    with pytest.raises(error, match=said) as refused:
        settle(api, **environ)
    assert "scope api" in refused.value.hint
    assert "glpat" not in str(refused.value.to_dict())
    assert len(api.methods) <= 2


def test_token_that_may_only_read_writes_nothing(api):
    api.fails = [("POST", 403, {})]
    with pytest.raises(AuthenticationFailed, match="403"):
        settle(api)
    assert not api.notes


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_busy_service_is_contacted_again(api, status):
    api.fails = [("GET", status, {"Retry-After": "0"}), ("GET", status, {})]
    assert settle(api) == "created"
    api.fails = [("GET", status, {})] * 3
    with pytest.raises(RemoteUnreachable, match=str(status)):
        settle(api)


def test_note_that_was_written_and_not_confirmed_is_not_written_twice(api):
    api.fails, api.after = [("POST", 502, {})], True
    assert settle(api) == "unchanged"
    assert len(api.notes) == 1


def test_wait_that_outlasts_the_job_is_an_error_at_once(api):
    api.fails = [("GET", 429, {"Retry-After": "86400"})]
    with pytest.raises(RemoteUnreachable):
        settle(api)
    assert api.methods == ["GET"]


def test_token_follows_no_redirection(api):
    with gitlab_api() as elsewhere:
        api.fails = [("GET", 302, {"Location": f"{elsewhere.url}/user"})]
        with pytest.raises(RemoteRejected, match="302"):
            settle(api)
        assert not elsewhere.methods


def test_invalid_or_missing_answers_of_gitlab_raise_unreachable(api, monkeypatch):
    with pytest.raises(RemoteUnreachable):
        settle(api, CI_API_V4_URL="http://127.0.0.1:1/api/v4")
    monkeypatch.setattr(GitLabApi, "answer", lambda *_: (200, {}, [{"id": "::error::"}]))
    with pytest.raises(RemoteUnreachable):
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
def test_token_goes_nowhere_else(api, environ):
    with pytest.raises(UsageInvalid):
        settle(api, **environ)
    assert not api.methods


def test_untrusted_text_notifies_no_user_and_gives_no_commands(api):
    """GitLab looks for references outside of code in the page, and for quick actions in what is
    sent; others look for references there.
    """
    hostile = "\n/close\n@all group/project#1 !2 ~3 %4 $5 &6 ^7 *iteration:8 [epic:9] https://example.org/-/issues/1 `@me` #1`"
    queries = ComparedQueries("q", 2, answers=(AnswerChange(hostile, 1, 1, AnswerText(hostile, hostile), None),))
    with report([document(1, (hostile, "b"), None, "c")], queries=queries) as result:
        settle(api, format_comment(build_comment_data(3, result.summary, "ab" * 20), "").removeprefix(f"{MARKER}\n"))
    [note] = ours(api)
    assert not re.search(r"(?m)^\s*/|[@#!~%$&^*]\w", note)
    page = LexborHTMLParser(MarkdownIt("commonmark").render(note))
    spans = page.css("code")
    shown = [span.text().replace("\u2060", "").replace("@ ", "@") for span in spans]
    assert shown == [" ".join(hostile.split())] * 3 + [f"{' '.join(hostile.split())}/b"]
    for span in spans:
        span.decompose()
    assert not re.search(r"[@#!~%$&^*\[:`]\w", page.body.text())


def test_command_writes_the_comment_text_only_for_changes(api, project):
    page = "https://gitlab.example/group/project/-/jobs/9"
    result = project.vmrag("report", "main", "feature", "--gitlab-note", env=api.job | {"CI_JOB_URL": page})
    assert "The note on the merge request: created." in result.err
    [note] = ours(api)
    head = project.git("rev-parse", "feature")
    with opened(project) as ws, gather_report(ws, NamedEnd("main"), NamedEnd("feature")) as report:
        comment = format_comment(build_comment_data(3, report.summary, head), page)
    assert "- added: `handbook/uv.md`" in note
    assert note.replace("merge request", "pull request") == comment.strip()
    assert note.endswith(f"As of {head[:12]}, [see its run for details]({page}).")
    project.vmrag("report", "main", "feature", "--gitlab-note", env=api.job)
    assert ours(api)[0].endswith(f"As of {head[:12]}.")
    result = project.vmrag("report", "main", "main", "--gitlab-note", env=api.job)
    assert "edited" in result.err
    api.notes.clear()
    result = project.vmrag("report", "main", "main", "--gitlab-note", env=api.job)
    assert "none" in result.err
    assert not api.notes


def test_report_rejects_gitlab_note_outside_a_merge_request_job(project):
    result = project.vmrag("report", "main", "feature", "--gitlab-note", code=2)
    assert "not a job of a GitLab merge request" in result.err

"""The step that writes the one comment on a pull request, against what stands for GitHub's API."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.checkout import TOKEN
from tests.support.events import FORK, OWN
from tests.support.github_comments import ME, RUN, TOO_OFTEN, CommentsApi, OtherJob, Trouble, archive
from tests.support.github_rest import serving
from tests.support.long import examples
from vmrag_action import comments
from vmrag_action.comments import CommentApi
from vmrag_action.steps import comment as step
from vmrag_link import endpoint
from vmrag_link.errors import AuthenticationFailed, RemoteRejected, RemoteUnreachable, UsageInvalid, VmragError
from vmrag_link.ops.report.comment import MARKER
from vmrag_link.ops.report.comment_data import MAX_BYTES, CommentChunk, CommentData
from vmrag_link.ops.report.comment_data import CommentAnswer as Answer

HEAD, OTHER = "a" * 40, "b" * 40
TOLD = f"{MARKER}\n### Told\n\nText\n"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(endpoint, "_open_until", {})
    with serving(TOKEN, CommentsApi) as server:
        server.open(7, HEAD, source=FORK, base=OWN)
        yield server


def client(api: CommentsApi, token: str = TOKEN) -> CommentApi:
    return CommentApi.from_job(token, {"GITHUB_REPOSITORY": api.repository, **api.environ})


def settle(api: CommentsApi, text: str = TOLD, *, speaks: bool = True) -> str:
    return client(api).update_comment(7, MARKER, text, speaks=speaks)


# -- one comment


def test_comment_is_created_once_then_edited_only_if_changed(api):
    api.write(7, "Looks good", login="reviewer")
    assert settle(api) == "created"
    assert settle(api) == "unchanged"
    assert settle(api, f"{TOLD}more\n") == "edited"
    assert api.ours(7) == [f"{TOLD}more\n"]
    api.comments[7][1]["body"] = f"{TOLD}more\n".replace("\n", "\r\n")  # as a browser writes it
    assert settle(api, f"{TOLD}more\n") == "unchanged"
    assert [comment["edits"] for comment in api.comments[7]] == [0, 1]


def test_silent_report_edits_only_an_existing_comment(api):
    assert settle(api, speaks=False) == "silent"
    assert api.comments == {}
    settle(api)
    assert settle(api, f"{MARKER}\nNo longer\n", speaks=False) == "edited"
    assert api.ours(7) == [f"{MARKER}\nNo longer\n"]


def test_comment_is_found_by_author_and_first_line_on_any_page(api):
    for number in range(230):
        api.write(7, f"Comment {number}", login="reviewer")
    api.write(7, f"{MARKER}\nforged", login="stranger")
    api.write(7, f"Another comment of a robot, which quotes {MARKER}")
    api.write(7, f"> quoted\n{MARKER}")
    mine = api.write(7, f"{MARKER}\nmine")
    api.comments[7].append({"id": 5, "user": None, "body": f"{MARKER}\nof a deleted account"})
    assert settle(api) == "edited"
    assert mine["body"] == TOLD
    assert sum(comment["edits"] for comment in api.comments[7] if "edits" in comment) == 1
    assert len(api.comments[7]) == 235


def test_app_of_ones_own_has_its_own_comment(api):
    theirs = api.write(7, f"{MARKER}\nof the other robot")
    api.login = "our-app[bot]"
    assert settle(api) == "created"
    assert (theirs["edits"], api.ours(7)) == (0, [TOLD])


def test_two_own_comments_become_one(api):
    first = api.write(7, f"{MARKER}\none")
    api.write(7, f"{MARKER}\ntwo")
    api.write(7, f"{MARKER}\nof somebody else", login="stranger")
    assert settle(api) == "edited"
    assert api.ours(7) == [TOLD]
    assert first["body"] == TOLD
    assert len(api.comments[7]) == 2


# -- what goes wrong

LIST, ADD = r"/issues/7/comments", r"/issues/7/comments"
EDIT = r"/issues/comments/\d+"


@pytest.mark.parametrize("status", [500, 502, 503])
def test_comment_that_was_made_and_not_confirmed_is_not_made_twice(api, status):
    api.troubles.append(Trouble("POST", ADD, status, takes_effect=True))
    assert settle(api) == "unchanged"
    assert api.ours(7) == [TOLD]
    api.troubles.append(Trouble("POST", ADD, status))
    api.comments.clear()
    assert settle(api) == "created"
    assert api.ours(7) == [TOLD]


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_comment_waits_as_long_as_retry_after_demands(api, status, method, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    if method == "PATCH":
        api.write(7, f"{MARKER}\nbefore")
    path = EDIT if method == "PATCH" else LIST
    api.troubles.append(Trouble(method, path, status, TOO_OFTEN, {"Retry-After": "60"}))
    assert settle(api) == ("edited" if method == "PATCH" else "created")
    assert (waits, api.ours(7)) == ([60.0], [TOLD])


def test_longer_wait_than_a_job_can_afford_ends_it(api):
    api.troubles.append(Trouble("POST", ADD, 403, TOO_OFTEN, {"Retry-After": str(comments.PATIENCE + 1)[:-2]}))
    with pytest.raises(AuthenticationFailed):
        settle(api)
    assert api.comments == {}


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (Trouble("POST", ADD, 403, {"message": "Resource not accessible"}), AuthenticationFailed),
        (Trouble("GET", LIST, 404), RemoteRejected),
        (Trouble("POST", ADD, 422, {"message": "Validation Failed"}), RemoteRejected),
        (Trouble("POST", r".*graphql", 200, {"errors": [{"message": "no"}]}), RemoteUnreachable),
        (Trouble("GET", LIST, 200, {"message": "::error::"}), RemoteUnreachable),
    ],
    ids=["403", "404", "422", "nobody", "another form"],
)
def test_rejection_names_the_required_permission_and_is_not_repeated(api, trouble, error):
    api.troubles.append(trouble)
    with pytest.raises(error) as refused:
        settle(api)
    failure: VmragError = refused.value
    assert TOKEN not in str(failure.to_dict())
    if trouble.status >= 400:
        assert "pull-requests: write" in failure.hint
    assert api.comments == {}
    assert not any(f"{method} /issues" in call for method in ("PATCH", "DELETE") for call in api.calls)


def test_comment_raises_if_api_stays_unavailable(api):
    api.troubles += [Trouble("POST", ADD, 502) for _ in range(endpoint.ATTEMPTS)]
    with pytest.raises(RemoteUnreachable, match="answered 502"):
        settle(api)
    assert api.troubles == []
    api.write(7, f"{MARKER}\nbefore")
    api.troubles += [Trouble("PATCH", EDIT, 503) for _ in range(endpoint.ATTEMPTS)]
    with pytest.raises(RemoteUnreachable, match="answered 503"):
        settle(api)
    assert api.troubles == []


def test_comment_deleted_during_the_edit_is_created_again(api):
    gone = api.write(7, f"{MARKER}\nbefore")
    api.troubles.append(Trouble("PATCH", EDIT, 404))
    real = api._right

    def deleted(*arguments: Any) -> Any:
        if api.troubles == []:
            api.comments[7] = [comment for comment in api.comments[7] if comment is not gone]
        return real(*arguments)

    api._right = deleted
    assert settle(api) == "created"
    assert api.ours(7) == [TOLD]


def test_token_goes_to_the_api_alone(api):
    with pytest.raises(UsageInvalid, match="GITHUB_GRAPHQL_URL"):
        CommentApi.from_job(
            TOKEN,
            {"GITHUB_REPOSITORY": api.repository, **api.environ, "GITHUB_GRAPHQL_URL": "http://github.example/graphql"},
        )
    api.keep(RUN, {"vmrag-comment.json": b"{}"})
    assert client(api).download_artifact(RUN, "vmrag-comment", 1000)
    assert api.given == [""]  # the store got none
    api.troubles.append(
        Trouble("GET", r"/actions/artifacts/\d+/zip", 302, headers={"Location": "http://evil.example/"})
    )
    with pytest.raises(RemoteUnreachable):
        client(api).download_artifact(RUN, "vmrag-comment", 1000)


# -- of another run


def data(**more: Any) -> CommentData:
    answer = Answer("when?", 1, CommentChunk("handbook/a.md", "30 seconds"), CommentChunk("handbook/a.md", "5 seconds"))
    return CommentData(**{"number": 7, "head": HEAD, "questions": 3, "answers_changed": 1, "answers": (answer,)} | more)


@pytest.fixture
def other(api: CommentsApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    def run(**fields: Any) -> str:
        OtherJob(api, tmp_path, monkeypatch).run(**{"head": HEAD} | fields)
        said: str = capsys.readouterr().out
        assert TOKEN not in re.sub(r"(?m)^::add-mask::.*$", "", said)
        return said

    return run


def test_comment_is_written_from_data_of_a_fork_run(api, other):
    api.keep(RUN, {step.FILE: msgspec.json.encode(data())})
    assert "#7: The comment was written." in other()
    [body] = api.ours(7)
    assert "- `when?`, first difference at place 1:\n  - before: `handbook/a.md`: `30 seconds`\n" in body
    assert f"[see its run for details](https://github.example/them/project/actions/runs/{RUN})" in body
    assert "it is not verified" in body


@pytest.fixture
def api_and_job(api: CommentsApi, other: Any) -> tuple[CommentsApi, Any]:
    return api, other


@pytest.mark.parametrize(
    ("handed", "run", "pull", "said"),
    [
        ({"number": 8}, {}, {}, "has no pull request #8"),
        ({}, {"head": OTHER}, {}, "was not for #7"),
        ({"head": OTHER}, {}, {}, "was not for #7"),
        ({}, {"source": FORK | {"full_name": "evil/project"}}, {}, "was not for #7"),
        ({}, {"source": None}, {}, "was not for #7"),
        ({}, {"event": "push"}, {}, "not for a pull request"),
        ({}, {}, {"state": "closed"}, "no longer open"),
        ({}, {}, {"sha": OTHER}, "has a newer commit"),
        ({"head": OTHER}, {"head": OTHER}, {}, "has a newer commit"),
        ({}, {}, {"base": FORK}, "has no pull request #7"),
    ],
    ids=[
        "no such number", "another head", "data of another head", "another fork", "a fork that is gone", "another event",
        "closed", "moved on", "of another pull request", "another base",
    ],
)  # fmt: skip
def test_data_of_another_run_are_ignored(api_and_job, handed, run, pull, said):
    api, other = api_and_job
    api.keep(RUN, {step.FILE: msgspec.json.encode(data(**handed))})
    request = api.requests[7]
    request["state"] = pull.get("state", "open")
    request["head"]["sha"] = pull.get("sha", HEAD)
    request["base"]["repo"] = pull.get("base", OWN)
    assert said in other(**run)
    assert api.comments == {}


def bomb() -> bytes:
    return archive({step.FILE: b" " * 50_000_000})


def lying() -> bytes:
    """Build an archive whose header claims three bytes for its file."""
    packed = bytearray(archive({step.FILE: b" " * 500_000}))
    at = packed.rfind(b"PK\x01\x02")
    packed[at + 24 : at + 28] = struct.pack("<I", 3)
    return bytes(packed)


def encrypted() -> bytes:
    packed = bytearray(archive({step.FILE: b"{}"}))
    for at, offset in ((packed.find(b"PK\x03\x04"), 6), (packed.rfind(b"PK\x01\x02"), 8)):
        packed[at + offset] |= 1
    return bytes(packed)


GOOD = json.loads(msgspec.json.encode(data()))


def changed(**more: Any) -> dict[str, bytes]:
    return {step.FILE: json.dumps(GOOD | more).encode()}


@pytest.mark.parametrize(
    "files",
    [
        None, b"", b"PK", bomb(), lying(), encrypted(), {}, {"other.json": b"{}"}, {f"../{step.FILE}": b"{}"},
        {step.FILE: b"{}", "more": b""}, archive({step.FILE: json.dumps(GOOD).encode()}, zipfile.ZIP_LZMA),
        {step.FILE: b"{}"}, {step.FILE: b"\xff"}, {step.FILE: b"[" * 100_000}, changed(number=-1), changed(number="7"),
        changed(head="x"), changed(answers_changed=0), changed(answers_changed=10**12), changed(text="@everybody"),
        changed(answers=[GOOD["answers"][0] | {"question": "x" * 10_000}]), changed(answers=GOOD["answers"] * 51),
        changed(missing=[{"code": "::error::", "name": "x"}]), changed(documents_changed={"added": -4, "changed": 9}),
    ],
)  # fmt: skip
def test_invalid_artifact_is_ignored_without_failing_the_job(api, other, files):
    if files is not None:
        api.keep(RUN, files)
    said = other()
    assert "has nothing to do on workflow_run" in said
    assert api.comments == {}


def test_unpacking_stops_at_the_limit():
    assert len(step.unpack_artifact(bomb())) == MAX_BYTES + 1


def test_oversized_artifact_is_not_read(api, other):
    api.keep(RUN, b"x" * 200_000)
    assert "too large" in other()
    api.artifacts[RUN][0]["size_in_bytes"] = 10  # the list has a wrong size
    with pytest.raises(VmragError, match="answered with more than"):
        other()
    assert api.comments == {}


@given(content=st.binary(max_size=200), at=st.integers(0, 400), flip=st.integers(1, 255))
@settings(max_examples=examples(600))
def test_damaged_archives_fail_only_in_the_expected_way(content: bytes, at: int, flip: int) -> None:
    packed = bytearray(archive({step.FILE: content}))
    packed[at % len(packed)] ^= flip
    for data in (bytes(packed), content, bytes(packed[: at % len(packed)])):
        try:
            step.unpack_artifact(data)
        except UsageInvalid:
            continue


def test_untrusted_text_is_only_quoted(api, other):
    hostile = "@everyone ![x](https://evil.example/x.png) <img src=x> [l](https://evil.example) `` ` \n### ::error:: #1 \u202e"
    answer = Answer(hostile, 1, CommentChunk(hostile, hostile), None)
    api.keep(RUN, {step.FILE: msgspec.json.encode(data(answers=(answer,)))})
    other()
    [body] = api.ours(7)
    from markdown_it import MarkdownIt
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(MarkdownIt("gfm-like").disable("linkify").render(body))
    assert not page.css("img, script")
    assert [element.attributes["href"] for element in page.css("a")] == [
        f"https://github.example/them/project/actions/runs/{RUN}"
    ]
    for element in page.css("code"):
        element.decompose()
    assert not re.search(r"@|evil|::error|#1\b|\u202e", page.body.text())
    assert not re.search(r"@\w|\u202e", body)
    assert ME not in body

"""A fake of GitHub's comments on a pull request: the calls for comments, artifacts and one
pull request, as its documentation describes them, over HTTP on this machine.

It cannot show that GitHub still answers so. Like GitHub, it pages lists, lets each writer edit all
comments, redirects requests for artifacts, and rejects comments that are too long.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.events import FORK, OWN, Job
from tests.support.github_rest import GitHubApi
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_action.steps import comment

ME = "github-actions[bot]"
RUN = 99
LONGEST = 65_536
MISSING = 404, {"message": "Not Found", "status": "404"}, {}
NOT_ALLOWED = {"message": "Resource not accessible by integration", "status": "403"}
TOO_OFTEN = {"message": "You have exceeded a secondary rate limit.", "status": "403"}

Answer = tuple[int, Any, dict[str, str]]


@dataclass
class Trouble:
    """One answer instead of the right one.

    `takes_effect`: the request still takes effect.
    """

    method: str
    path: str
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    takes_effect: bool = False


@dataclass
class CommentsApi(GitHubApi):
    """`requests`, `comments`: by the number of the pull request; `artifacts`: by run. `writers`:
    who reads only, and may not write, is not among them. `given`: what came with each call to the
    store of artifacts.
    """

    login: str = ME
    may_write: bool = True
    requests: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    artifacts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    last: int = 100

    @property
    def environ(self) -> dict[str, str]:
        return {"GITHUB_API_URL": self.url, "GITHUB_GRAPHQL_URL": f"{self.url}/graphql"}

    # -- what tests prepare and look at

    def open(self, number: int, head: str, *, source: Any, base: Any, ref: str = "main") -> None:
        self.requests[number] = {
            "number": number,
            "state": "open",
            "title": "::error::a stranger's title",
            "head": {"ref": "topic", "sha": head, "repo": source},
            "base": {"ref": ref, "sha": "0" * 40, "repo": base},
        }

    def write(self, number: int, body: str, *, login: str = ME) -> dict[str, Any]:
        self.last += 1
        comment = {"id": self.last, "user": {"login": login, "type": "User"}, "body": body, "edits": 0}
        self.comments.setdefault(number, []).append(comment)
        return comment

    def ours(self, number: int) -> list[str]:
        return [comment["body"] for comment in self.comments.get(number, ()) if comment["user"]["login"] == self.login]

    def keep(self, run: int, content: bytes | Mapping[str, bytes], *, name: str = "vmrag-comment") -> None:
        """An artifact: an archive of these files, or bytes instead of one."""
        packed = content if isinstance(content, bytes) else archive(content)
        self.last += 1
        fields = {"id": self.last, "name": name, "size_in_bytes": len(packed), "expired": False}
        self.artifacts.setdefault(run, []).append(fields | {"content": packed})

    # -- what is answered

    def answer(self, method: str, target: str, token: str, body: Any) -> Answer:
        path = urlsplit(target).path
        if path.startswith("/api/v3/stored/"):
            self.given.append(token)
            return 200, self._artifact(int(path.rpartition("/")[2]))["content"], {}
        path = path.removeprefix(f"/api/v3/repos/{self.repository}")
        self.calls.append(f"{method} {path}")
        trouble = next(
            (trouble for trouble in self.troubles if trouble.method == method and re.fullmatch(trouble.path, path)),
            None,
        )
        if trouble:
            self.troubles.remove(trouble)
            if trouble.takes_effect:
                self._right(method, path, target, token, body)
            return trouble.status, trouble.body or {"message": "Trouble"}, trouble.headers
        return self._right(method, path, target, token, body)

    def _right(self, method: str, path: str, target: str, token: str, body: Any) -> Answer:
        if token != f"Bearer {self.token}":
            return 401, {"message": f"Bad credentials {token}", "status": "401"}, {}
        if path == "/api/v3/graphql":
            assert body == {"query": "{viewer{login}}"}
            return 200, {"data": {"viewer": {"login": self.login}}}, {}
        routes: dict[str, Callable[[int, Any, Any], Answer]] = {
            r"GET /pulls/(\d+)": self._pull,
            r"GET /issues/(\d+)/comments": self._list,
            r"POST /issues/(\d+)/comments": self._add,
            r"PATCH /issues/comments/(\d+)": self._edit,
            r"DELETE /issues/comments/(\d+)": self._delete,
            r"GET /actions/runs/(\d+)/artifacts": self._artifacts,
            r"GET /actions/artifacts/(\d+)/zip": self._location,
        }
        if method != "GET" and not self.may_write:
            return 403, NOT_ALLOWED, {}
        for route, answer in routes.items():
            if match := re.fullmatch(route, f"{method} {path}"):
                return answer(int(match[1]), parse_qs(urlsplit(target).query), body)
        return (*self.of_pulls(method, target, token, body), {})

    def _pull(self, number: int, query: Any, body: Any) -> Answer:
        return (200, self.requests[number], {}) if number in self.requests else MISSING

    def _list(self, number: int, query: Any, body: Any) -> Answer:
        if number not in self.requests:
            return MISSING
        size, page = int(query["per_page"][0]), int(query["page"][0])
        assert size <= 100
        return 200, self.comments.get(number, [])[(page - 1) * size : page * size], {}

    def _add(self, number: int, query: Any, body: Any) -> Answer:
        if number not in self.requests:
            return MISSING
        if len(body["body"]) > LONGEST:
            return 422, {"message": "Validation Failed: body is too long", "status": "422"}, {}
        return 201, self.write(number, body["body"], login=self.login), {}

    def _edit(self, number: int, query: Any, body: Any) -> Answer:
        comment = self._comment(number)
        if comment is None:
            return MISSING
        comment["body"] = body["body"]
        comment["edits"] += 1
        return 200, comment, {}

    def _delete(self, number: int, query: Any, body: Any) -> Answer:
        for some in self.comments.values():
            some[:] = [comment for comment in some if comment["id"] != number]
        return 204, b"", {}

    def _comment(self, number: int) -> dict[str, Any] | None:
        return next((comment for some in self.comments.values() for comment in some if comment["id"] == number), None)

    def _artifacts(self, run: int, query: Any, body: Any) -> Answer:
        result = [artifact for artifact in self.artifacts.get(run, ()) if artifact["name"] == query["name"][0]]
        listed = [{name: value for name, value in artifact.items() if name != "content"} for artifact in result]
        return 200, {"total_count": len(listed), "artifacts": listed}, {}

    def _artifact(self, number: int) -> dict[str, Any]:
        return next(artifact for some in self.artifacts.values() for artifact in some if artifact["id"] == number)

    def _location(self, number: int, query: Any, body: Any) -> Answer:
        return 302, b"", {"Location": f"{self.url}/stored/{number}"}


class OtherJob:
    """A job on `workflow_run` that comments on what run `RUN` left, in this process and with no
    checkout at all.
    """

    def __init__(self, api: CommentsApi, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self.folder, self.monkeypatch = api, folder, monkeypatch

    def run(self, *, head: str, event: str = "pull_request", source: Any = FORK) -> None:
        fields = {"id": RUN, "event": event, "head_sha": head, "head_branch": "t`id`", "head_repository": source}
        payload = {"action": "completed", "workflow_run": fields, "workflow": {}, "repository": OWN}
        job = Job(self.folder, "workflow_run", payload, sha="0" * 40, ref="refs/heads/main", **self.api.environ)
        environ = job.environ | {"RUNNER_TEMP": str(self.folder), "INPUT_TOKEN": self.api.token}
        for name, value in environ.items():
            self.monkeypatch.setenv(name, value)
        assert comment.run(Runner(), WorkflowJob.from_environment()) == 0


def archive(files: Mapping[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", packing) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return packed.getvalue()

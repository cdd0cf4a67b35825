"""A fake of GitHub's REST API: the calls on pull requests that the Action makes, and on write
permissions, in the shapes of GitHub's documentation.

It cannot show that GitHub still answers so. Like GitHub, it opens no second pull request of the
same branches, and reveals nothing to other tokens.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from tests.support import local_http

REFUSED = {"message": "GitHub Actions is not permitted to create or approve pull requests.", "status": "403"}
EXISTS = {
    "message": "Validation Failed",
    "errors": [{"resource": "PullRequest", "code": "custom", "message": "A pull request already exists"}],
    "status": "422",
}


@dataclass
class GitHubApi:
    """State of the API.

    `pulls`: open pull requests; `listed`: content of the paged list; `people`: permissions of
    users, which may differ from lists. `refuses`: the repository's settings forbid it. `late`:
    lists show a pull request only after a second attempt to open it.
    """

    url: str
    token: str
    repository: str = "them/project"
    pulls: list[dict[str, Any]] = field(default_factory=list)
    listed: list[dict[str, Any]] = field(default_factory=list)
    people: dict[str, str] = field(default_factory=dict)
    methods: list[str] = field(default_factory=list)
    refuses: bool = False
    late: bool = False

    def answer(self, method: str, target: str, token: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        """Status, body (bytes as they are, anything else as JSON), and more headers."""
        return (*self.of_pulls(method, target, token, body), {})

    def of_pulls(self, method: str, target: str, token: str, body: Any) -> tuple[int, Any]:
        self.methods.append(method)
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if token != f"Bearer {self.token}":
            return 401, {"message": f"Bad credentials {token}", "status": "401"}
        if path != f"/api/v3/repos/{self.repository}/pulls":
            return self._permission(path)
        if method == "GET":
            return 200, self._page(query) if "per_page" in query else self._found(query)
        if self.refuses:
            return 403, REFUSED
        if any((pull["head"], pull["base"]) == (body["head"], body["base"]) for pull in self.pulls):
            self.late = False
            return 422, EXISTS
        self.pulls.append({"number": 40 + len(self.pulls), **body})
        return 201, self.pulls[-1]

    def _permission(self, path: str) -> tuple[int, Any]:
        of_one = re.fullmatch(rf"/api/v3/repos/{self.repository}/collaborators/([^/]+)/permission", path)
        if of_one and of_one[1] in self.people:
            return 200, {"permission": self.people[of_one[1]], "role_name": "", "user": {"login": of_one[1]}}
        return 404, {"message": "Not Found", "status": "404"}

    def _found(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        head, base = query["head"][0], query["base"][0]
        pulls = [pull for pull in self.pulls if (f"them:{pull['head']}", pull["base"]) == (head, base)]
        return [] if self.late else [{**pull, "state": "open", "title": "::error::"} for pull in pulls]

    def _page(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        (state,), bases, heads = query["state"], query.get("base"), query.get("head")
        result = [
            branch
            for branch in self.listed
            if branch["state"] == state
            and (bases is None or branch["base"]["ref"] in bases)
            and (heads is None or branch["head"]["label"] in heads)
        ]
        size, page = int(query["per_page"][0]), int(query["page"][0])
        return result[(page - 1) * size : page * size]


Api = TypeVar("Api", bound=GitHubApi)


@contextlib.contextmanager
def github_api(token: str) -> Iterator[GitHubApi]:
    with serving(token, GitHubApi) as api:
        yield api


@contextlib.contextmanager
def serving(token: str, kind: type[Api]) -> Iterator[Api]:
    with local_http.serving(_Handler) as server:
        api = kind(f"http://127.0.0.1:{server.server_address[1]}/api/v3", token)
        server.api = api  # type: ignore[attr-defined]
        yield api


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        token = self.headers.get("Authorization", "")
        status, answer, headers = self.server.api.answer(self.command, self.path, token, body)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PATCH(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass

"""Stands for GitLab's API: the calls on the notes of one merge request, in the shapes of GitLab's
documentation. It cannot show that GitLab still answers so.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support import local_http

TOKEN = "glpat-0123456789abcdef"
ME, SOMEBODY = 7, 8


@dataclass
class GitLabApi:
    """State of the API.

    `fails`: answers to the next requests of a method, status and headers; with `after`, the
    requests take effect first.
    """

    url: str
    notes: list[dict[str, Any]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    fails: list[tuple[str, int, dict[str, str]]] = field(default_factory=list)
    after: bool = False

    @property
    def job(self) -> dict[str, str]:
        return {
            "CI_API_V4_URL": self.url,
            "CI_MERGE_REQUEST_PROJECT_ID": "42",
            "CI_MERGE_REQUEST_IID": "3",
            "GITLAB_TOKEN": TOKEN,
        }

    def note(self, body: str, author: int = ME, **more: Any) -> None:
        made = {"id": len(self.notes) + 100, "body": body, "author": {"id": author, "username": "x"}, "system": False}
        self.notes.append(made | more)

    def answer(self, method: str, target: str, token: str, body: Any) -> tuple[int, dict[str, str], Any]:
        self.methods.append(method)
        if self.fails and self.fails[0][0] == method:
            _, status, headers = self.fails.pop(0)
            if self.after:
                self._answer(method, target, token, body)
            return status, headers, {"message": f"nothing for {token}"}
        status, result = self._answer(method, target, token, body)
        return status, {}, result

    def _answer(self, method: str, target: str, token: str, body: Any) -> tuple[int, Any]:
        path, query = urlsplit(target).path.removeprefix("/api/v4"), parse_qs(urlsplit(target).query)
        if token != TOKEN:
            return 401, {"message": "401 Unauthorized"}
        if path == "/user":
            return 200, {"id": ME, "username": "project_42_bot"}
        match = re.fullmatch(r"/projects/42/merge_requests/3/notes(?:/(\d+))?", path)
        if not match:
            return 404, {"message": "404 Not found"}
        return self._of_all(method, query, body) if match[1] is None else self._of_one(method, int(match[1]), body)

    def _of_all(self, method: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if method == "POST":
            self.note(body["body"].strip())
            return 201, self.notes[-1]
        size, page = int(query["per_page"][0]), int(query["page"][0])
        assert (query["order_by"], query["sort"]) == (["created_at"], ["asc"])
        return 200, self.notes[(page - 1) * size : page * size]

    def _of_one(self, method: str, number: int, body: Any) -> tuple[int, Any]:
        [note] = [note for note in self.notes if note["id"] == number]
        if note["author"]["id"] != ME:
            return 403, {"message": "403 Forbidden"}
        if method == "DELETE":
            self.notes.remove(note)
            return 204, None
        note["body"] = body["body"].strip()
        return 200, note


@contextlib.contextmanager
def gitlab_api() -> Iterator[GitLabApi]:
    with local_http.serving(_Handler) as server:
        api = GitLabApi(f"http://127.0.0.1:{server.server_address[1]}/api/v4")
        server.api = api  # type: ignore[attr-defined]
        yield api


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        status, headers, result = self.server.api.answer(
            self.command, self.path, self.headers.get("PRIVATE-TOKEN", ""), body
        )
        content = b"" if status == 204 else json.dumps(result).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass

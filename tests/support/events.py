"""A job of GitHub Actions as far as its event goes: the variables that the runner sets, and
payloads in the shapes of GitHub's documentation, with values of our own. It stands for GitHub.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.repos import Repo, make_repo

OWN = {"id": 1, "full_name": "them/project", "default_branch": "main", "private": True, "owner": {"login": "them"}}
FORK = OWN | {"id": 2, "full_name": "me/project", "fork": True, "owner": {"login": "me"}}
ZEROS = "0" * 40


class Job:
    """The environment of a step, and its payload in a file."""

    def __init__(self, folder: Path, event: str, payload: Any, *, sha: str, ref: str, **more: str) -> None:
        self._file = folder / f"{event}.json"
        self.write(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
        self.environ = {
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(self._file),
            "GITHUB_SHA": sha,
            "GITHUB_REF": ref,
            "GITHUB_REF_PROTECTED": "false",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": "them/project",
            **more,
        }

    def write(self, content: bytes) -> None:
        self._file.write_bytes(content)


def pull_request(base: str, head: str, *, number: int = 7, source: Any = FORK, ref: str = "main", **more: Any) -> Any:
    """The payload of `pull_request` and its like; `base` as GitHub noted it when it was opened."""
    request = {
        "number": number,
        "state": "open",
        "title": "::error::a stranger's title",
        "user": {"login": "me", "type": "User"},
        "author_association": "MEMBER" if source == OWN else "NONE",
        "head": {"label": "me:topic", "ref": "topic`id`", "sha": head, "user": {"login": "me"}, "repo": source},
        "base": {"label": "them:main", "ref": ref, "sha": base, "user": {"login": "them"}, "repo": OWN},
        "merged": False,
        "merge_commit_sha": None,
        "changed_files": 3,
    }
    action = more.pop("action", "synchronize")
    return {"action": action, "number": number, "pull_request": request | more, "repository": OWN, "sender": {}}


def merge_group(base: str, head: str) -> Any:
    group = {
        "head_sha": head,
        "head_ref": f"refs/heads/gh-readonly-queue/main/pr-7-{base}",
        "base_sha": base,
        "base_ref": "refs/heads/main",
        "head_commit": {"id": head, "message": "Merge"},
    }
    return {"action": "checks_requested", "merge_group": group, "repository": OWN, "sender": {}}


def push(before: str, after: str, *, ref: str = "refs/heads/main", forced: bool = False) -> Any:
    return {
        "ref": ref,
        "before": before,
        "after": after,
        "repository": OWN,
        "pusher": {"name": "ada", "email": "ada@example.com"},
        "created": before == ZEROS,
        "deleted": after == ZEROS,
        "forced": forced,
        "base_ref": None,
        "commits": [],
        "head_commit": None,
    }


def checkout(host: Path, folder: Path, commit: str, *, depth: int | None = 1) -> Repo:
    """Check out like `actions/checkout`: a repository with this commit alone, or (depth None) its
    whole history, detached, with `origin` as its remote.
    """
    repo = make_repo(folder)
    repo.git("remote", "add", "origin", f"file://{host}")
    options = [f"--depth={depth}"] if depth else []
    repo.git("fetch", "-q", "--no-tags", *options, "origin", f"+{commit}:refs/remotes/pull/checkout")
    repo.git("checkout", "-q", "--detach", commit)
    return repo

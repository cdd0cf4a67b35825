"""The programs of actions/checkout, actions/cache and actions/setup-python themselves, run by node
as a runner runs them; and a fake of the service that keeps caches.

VMRAG_TEST_ACTIONS names a folder with their checkouts, `checkout/`, `cache/` and `setup-python/`,
at the commits in `action.yml` and `ci/github/`. Without it, the fakes run. The parts of the
programs that run after a job are omitted.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.actions_runner import ActionFailed, fill_expressions, format_value, read_pairs, run_logged

FOLDER = os.environ.get("VMRAG_TEST_ACTIONS", "")
NAMES = ("checkout", "cache", "setup-python")
NOT_OF_A_RUNNER = ("GIT_CONFIG_GLOBAL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE")


def require() -> Path:
    """The folder, where it and node are here; skips otherwise, by name."""
    missing = [name for name in NAMES if not (Path(FOLDER) / name / "action.yml").is_file()]
    if not FOLDER or missing:
        pytest.skip(f"VMRAG_TEST_ACTIONS names no folder with actions/{', actions/'.join(missing or NAMES)}")
    if shutil.which("node") is None:
        pytest.skip("node is not here, which runs the programs of actions")
    return Path(FOLDER)


def run(folder: Path, given: Mapping[str, str], environ: Mapping[str, str], token: str) -> dict[str, str]:
    """Return the outputs of the action in a folder.

    `environ`: the environment of its step. Raises `ActionFailed`.
    """
    action = yaml.safe_load((folder / "action.yml").read_text())
    github = {"token": token, "repository": environ["GITHUB_REPOSITORY"], "server_url": environ["GITHUB_SERVER_URL"]}
    inputs = {name: value.get("default") for name, value in action["inputs"].items()} | dict(given)
    inputs = {
        name: fill_expressions(format_value("" if value is None else value), {"github": github})
        for name, value in inputs.items()
    }
    command_folder = Path(environ["RUNNER_TEMP"]) / "_runner_file_commands" / folder.name
    command_folder.mkdir(parents=True, exist_ok=True)
    files = {f"GITHUB_{name}": command_folder / name for name in ("OUTPUT", "ENV", "PATH", "STATE", "STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    inherited = {name: value for name, value in (os.environ | environ).items() if name not in NOT_OF_A_RUNNER}
    inherited |= {f"INPUT_{name.replace(' ', '_').upper()}": value for name, value in inputs.items()}
    program = (folder / action["runs"]["main"]).resolve()
    inherited |= {name: str(file) for name, file in files.items()}
    result = run_logged(["node", program], folder=environ["GITHUB_WORKSPACE"], environ=inherited)
    print(result.stdout)
    if result.returncode:
        raise ActionFailed(result.stdout)
    return read_pairs(files["GITHUB_OUTPUT"].read_text())


def tool_cache(folder: Path) -> Path:
    """RUNNER_TOOL_CACHE with the Python that runs the tests, as the images of runners have it."""
    python_folder = folder / "Python" / platform.python_version() / "x64"
    if not python_folder.exists():
        (python_folder / "bin").mkdir(parents=True)
        for name in ("python", "python3"):
            (python_folder / "bin" / name).symlink_to(Path(sys.executable).resolve())
        python_folder.with_name("x64.complete").touch()
    return folder


# -- caches ----------------------------------------------------------------------------------------

SERVICE = "/twirp/github.actions.results.api.v1.CacheService/"


@dataclass
class CacheApi:
    """Stands for the service behind actions/cache, by the calls of its second version as
    @actions/cache makes them: entries by key, the newest first, and their archives.

    `broken`: it refuses. Entries are of one scope: that a branch cannot read another one's is not
    shown.
    """

    root: Path
    url: str = ""
    broken: bool = False
    entries: list[str] = field(default_factory=list)
    archives: list[tuple[str, str, Path]] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "ACTIONS_CACHE_SERVICE_V2": "true",
            "ACTIONS_RESULTS_URL": f"{self.url}/",
            "ACTIONS_RUNTIME_TOKEN": "e30.e30.x",
            "GITHUB_SERVER_URL": "https://github.com",  # of another host actions/cache expects the first version
        }

    def answer(self, call: str, body: Any) -> tuple[int, Any]:
        if self.broken:
            return 400, {"code": "resource_exhausted", "msg": "too many requests"}
        return 200, {"CreateCacheEntry": self._create, "FinalizeCacheEntryUpload": self._finish}.get(call, self._find)(
            body
        )

    def blob(self, number: int) -> Path:
        return self.root / f"{number}.archive"

    def _create(self, body: Any) -> Any:
        if body["key"] in self.entries:
            return {"ok": False}
        self.root.mkdir(exist_ok=True)
        number = len(list(self.root.iterdir()))
        self.blob(number).touch()
        self.archives.append((body["key"], body["version"], self.blob(number)))
        return {"ok": True, "signed_upload_url": f"{self.url}/account/cache/{number}?sig=signed"}

    def _finish(self, body: Any) -> Any:
        kept = next(archive for archive in self.archives if archive[:2] == (body["key"], body["version"]))
        assert kept[2].stat().st_size == int(body["size_bytes"])
        self.entries.insert(0, body["key"])
        return {"ok": True, "entry_id": "1"}

    def _find(self, body: Any) -> Any:
        version = {key: (of, file) for key, of, file in self.archives}
        for prefix in (body["key"], *body.get("restore_keys", ())):
            for key in self.entries:
                if key.startswith(prefix) and version[key][0] == body["version"]:
                    url = f"{self.url}/account/cache/{version[key][1].stem}?sig=signed"
                    return {"ok": True, "signed_download_url": url, "matched_key": key}
        return {"ok": False}


class CacheHandler(BaseHTTPRequestHandler):
    server: Any

    def do_POST(self) -> None:
        assert self.headers["Authorization"] == "Bearer e30.e30.x"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self.server.api.answer(self.path.removeprefix(SERVICE), body)
        self._send(status, json.dumps(answer).encode(), "application/json")

    def do_PUT(self) -> None:
        assert self.headers["x-ms-blob-type"] == "BlockBlob", "an archive of more than one block"
        self._blob.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(201, b"", "application/xml")

    def do_GET(self) -> None:
        self._send(200, self._blob.read_bytes(), "application/octet-stream")

    def do_HEAD(self) -> None:
        self._send(200, b"", "application/octet-stream")

    @property
    def _blob(self) -> Path:
        api: CacheApi = self.server.api
        return api.blob(int(self.path.partition("?")[0].rpartition("/")[2]))

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass

"""A server process of the benchmark, spoken to in bare lines."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OURS = [sys.executable, "-m", "vmrag_link.cli.main", "mcp"]


class Server:
    """A server process, spoken to in bare lines: no client library is part of what is measured."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.pid = self._process.pid
        self._id = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        self._send(id=self._id, method=method, params=params)
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise SystemExit(f"{self._process.args} ended")
            if not line.startswith(b"{"):  # chroma-mcp greets in words
                continue
            answer = json.loads(line)
            if answer.get("id") == self._id:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.ask("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            raise SystemExit(f"{tool}: {result['content']}")
        return result

    def greet(self) -> None:
        client = {"name": "bench", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self._send(method="notifications/initialized", params={})

    def _send(self, **message: Any) -> None:
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Others do not leave at the end of their input."""
        self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@contextlib.contextmanager
def serving(argv: list[str], cwd: Path, env: dict[str, str]) -> Iterator[Server]:
    server = Server(argv, cwd, env)
    try:
        server.greet()
        yield server
    finally:
        server.close()

"""The MCP server as a process of its own, talked to line by line: for what only shows there."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.pace import slack

PROGRAM = (sys.executable, "-m", "vmrag_link.cli.mcp")
"""Command of `vmrag-mcp`, which an editable installation may not have yet."""

PATIENCE = 30
HANDSHAKE = "2025-06-18"


class Process:
    """A server in `cwd`.

    Its output is read at once, so that it never waits for the test.
    """

    def __init__(self, cwd: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.errors = cwd.parent / f"stderr-{time.monotonic_ns()}"
        with self.errors.open("wb") as errors:
            self.popen = subprocess.Popen(
                [*PROGRAM, *arguments],
                cwd=cwd,
                env=os.environ | (env or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self.paused = threading.Event()
        """If set, the server's output is not read."""
        self._answers: dict[Any, Any] = {}
        self._ids = itertools.count(1)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.popen.stdout:
            self.lines.put(line)
            while self.paused.is_set():
                time.sleep(0.01)
        self.lines.put(None)

    def raw(self, data: bytes) -> None:
        self.popen.stdin.write(data)
        self.popen.stdin.flush()

    def send(self, message: Any) -> None:
        self.raw(json.dumps(message).encode() + b"\n")

    def next(self, timeout: float = PATIENCE) -> Any:
        """The next message. Everything on standard output must be one."""
        line = self.lines.get(timeout=timeout)
        assert line is not None, self.errors.read_text()
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def request(self, method: str, params: dict[str, Any] | None = None) -> int:
        number = next(self._ids)
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        return number

    def answer(self, number: Any, timeout: float = PATIENCE) -> Any:
        """The message that answers a request; others are kept."""
        while number not in self._answers:
            message = self.next(timeout)
            if "method" not in message:
                self._answers[message["id"]] = message
        return self._answers.pop(number)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        message = self.answer(self.request(method, params))
        assert "result" in message, message
        return message["result"]

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def begin(self, **capabilities: Any) -> Any:
        client = {"name": "test", "version": "1"}
        report = self.ask(
            "initialize", {"protocolVersion": HANDSHAKE, "capabilities": capabilities, "clientInfo": client}
        )
        self.notify("notifications/initialized")
        return report

    def start(self, name: str, /, **arguments: Any) -> int:
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def call(self, name: str, /, **arguments: Any) -> Any:
        """A tool's result, or its envelope; the text of an essential tool."""
        result = self.answer(self.start(name, **arguments))["result"]
        return result["structuredContent"] if "structuredContent" in result else result["content"][0]["text"]

    def tools(self) -> set[str]:
        return {tool["name"] for tool in self.ask("tools/list")["tools"]}

    def gone(self, within: float) -> int:
        """The exit code, of a process that has to be gone by then."""
        began = time.monotonic()
        code = self.popen.wait(PATIENCE)
        assert time.monotonic() - began < within * slack(), self.errors.read_text()
        return code

    @property
    def said(self) -> str:
        return self.errors.read_text()


@contextlib.contextmanager
def serve(cwd: Path, *arguments: str, env: dict[str, str] | None = None, begun: bool = True) -> Iterator[Process]:
    """`begun`: the handshake has been made."""
    process = Process(cwd, *arguments, env=env)
    try:
        if begun:
            process.begin()
        yield process
    finally:
        process.paused.clear()
        process.popen.kill()
        process.popen.wait()
        process.reader.join(PATIENCE)
        for stream in (process.popen.stdin, process.popen.stdout):
            with contextlib.suppress(OSError):
                stream.close()


def run_to_end(cwd: Path, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None):
    """A server whose input ends at once."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env=os.environ | (env or {}),
        input=stdin,
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )

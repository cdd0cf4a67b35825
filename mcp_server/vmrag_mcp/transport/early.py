"""Answers over the standard streams before the SDK is loaded, whose import takes most of the start.

A client that starts a server waits for the handshake and the lists. Their answers follow from the
selection of tools alone. `StaticAnswers` gives them byte for byte as the SDK does, and only to
requests that the SDK accepts. All other lines wait for the SDK in `EarlyStream`. The SDK also gets
the request that opened the connection, so it knows the client and the era of the protocol
(`server`).
"""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec

from vmrag_link import __version__
from vmrag_link.errors import BUG
from vmrag_mcp.options import SERVER_NAME, SERVER_TITLE, ToolSelection, build_tool_entries
from vmrag_mcp.process import PATIENCE_SECONDS, Wire, exit_now, exit_soon

_MAX_WAITING_LINES = 100
"""Maximum number of lines that wait for the SDK. If there are more, the client waits."""

_MAX_BRACKETS = 100
"""Lines with more brackets wait for the SDK, which refuses values that are nested deeply."""

_META = "io.modelcontextprotocol/"
_SERVER = {"name": SERVER_NAME, "title": SERVER_TITLE, "version": __version__}
_CAPABILITIES = {
    "completions": {},
    "prompts": {"listChanged": False},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": True},
}
_MODERN_CAPABILITIES = _CAPABILITIES | {"prompts": {"listChanged": True}}

RequestId = int | str
Object = dict[str, Any]
_Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class _Icon(msgspec.Struct, rename="camel"):
    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["dark", "light"] | None = None


class _Client(msgspec.Struct, rename="camel"):
    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[_Icon] | None = None


class _Capabilities(msgspec.Struct):
    """The capabilities of a client. These types allow no value that the SDK refuses."""

    elicitation: dict[str, Object] | None = None
    experimental: dict[str, Object] | None = None
    extensions: dict[str, Object] | None = None
    roots: dict[str, bool] | None = None
    sampling: dict[str, Object] | None = None
    tasks: dict[str, dict[str, dict[str, Object]]] | None = None


class _Meta(msgspec.Struct):
    token: int | str | None = msgspec.field(name="progressToken", default=None)


class _Envelope(_Meta, kw_only=True):
    """The metadata of a request in the modern era."""

    version: Literal["2026-07-28"] = msgspec.field(name=f"{_META}protocolVersion")
    capabilities: _Capabilities = msgspec.field(name=f"{_META}clientCapabilities")
    client: _Client | None = msgspec.field(name=f"{_META}clientInfo", default=None)
    level: _Level | None = msgspec.field(name=f"{_META}logLevel", default=None)


class _Params(msgspec.Struct, kw_only=True):
    meta: _Meta | None = msgspec.field(name="_meta", default=None)
    cursor: str | None = None


class _ModernParams(_Params, kw_only=True):
    meta: _Envelope = msgspec.field(name="_meta")


class _LevelParams(_Params, kw_only=True):
    level: _Level


class _InitializeParams(_Params, rename="camel", kw_only=True):
    protocol_version: Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
    capabilities: _Capabilities
    client_info: _Client


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    id: RequestId
    method: str
    params: Object | None = None


class EarlyStep(NamedTuple):
    """The reaction to a line."""

    answer: bytes = b""
    """The answer for the client, unless it is empty."""
    for_sdk: bool = True
    """The SDK also gets the line."""
    needs_sdk: bool = False
    """The SDK has to be loaded now, because it answers the line."""


def read_json(line: bytes) -> Any:
    """Return the value of a line. Raises `ValueError` and `RecursionError`."""
    return json.loads(line.decode(), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


class StaticAnswers:
    """The answers that follow from a selection of tools.

    `settled` is False if the client's roots may still name another repository.
    """

    def __init__(self, selection: ToolSelection, *, settled: bool) -> None:
        self._selection = selection
        self._settled = settled
        self._state: Literal["new", "handshake", "modern", "unknown"] = "new"
        self._initialized = False
        self.opening: RequestId | None = None
        """The id of the request that opened the connection, if it was answered here."""
        self.listed = False
        """True if the client has its list of tools."""

    def take_line(self, line: bytes) -> EarlyStep:
        """Return the reaction to the next line from the client."""
        opens = self._state == "new"
        answer = b""
        if self._state != "unknown":
            with contextlib.suppress(ValueError, OverflowError, RecursionError, msgspec.ValidationError):
                message = read_json(line)
                if self._state == "handshake" and self._ends_handshake(message):
                    return EarlyStep()
                answer = self._answer_line(line, message)
            # The SDK refuses an invalid line, in its words.
        if answer:
            return EarlyStep(answer, for_sdk=opens)
        if opens:  # the SDK has to decide on the era
            self._state = "unknown"
        return EarlyStep(needs_sdk=True)

    def _ends_handshake(self, message: Any) -> bool:
        """Return whether this is the first notification that the handshake has ended."""
        if self._initialized or not isinstance(message, dict) or "id" in message:
            return False
        self._initialized = message.get("method") == "notifications/initialized"
        return self._initialized

    def _answer_line(self, line: bytes, message: Any) -> bytes:
        """Return the answer; empty if the SDK has to give it.

        Raises `ValueError`, `OverflowError`, `RecursionError` and `msgspec.ValidationError`.
        """
        if line.count(b"{") + line.count(b"[") > _MAX_BRACKETS:
            return b""
        msgspec.json.encode(message)  # a `ValueError` for half a surrogate pair
        request = msgspec.convert(message, _Request)
        params = request.params or {}
        meta = params.get("_meta")
        modern = request.method != "initialize" and isinstance(meta, dict) and f"{_META}protocolVersion" in meta
        era: Literal["modern", "handshake"] = "modern" if modern else "handshake"
        if self._state not in ("new", era):
            return b""
        body = self._answer_modern(request.method, params) if modern else self._answer_handshake(request.method, params)
        if body is None:
            return b""
        answer = msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, **body}) + b"\n"
        if self._state == "new":
            self._state = era
            self.opening = request.id
        self.listed = self.listed or request.method == "tools/list"
        return answer

    def _answer_handshake(self, method: str, params: Object) -> Object | None:
        if (method == "initialize") != (self._state == "new"):
            return None
        match method:
            case "initialize":
                version = msgspec.convert(params, _InitializeParams).protocol_version
                return {
                    "result": self._introduce_server(_CAPABILITIES)
                    | {"protocolVersion": version, "serverInfo": _SERVER}
                }
            case "logging/setLevel":
                msgspec.convert(params, _LevelParams)
                return {"error": {"code": -32601, "message": "Method not found", "data": method}}
        msgspec.convert(params, _Params)
        if method == "ping":
            return {"result": {}}
        rows = self._list_entries(method, ("$schema", "properties", "required", "type"))
        return rows and {"result": rows}

    def _answer_modern(self, method: str, params: Object) -> Object | None:
        version = msgspec.convert(params, _ModernParams).meta.version
        if method == "server/discover":
            fields: Object | None = self._introduce_server(_MODERN_CAPABILITIES) | {"supportedVersions": [version]}
        else:
            fields = self._list_entries(method, ("$schema", "type"))
        if fields is None:
            return None
        rows = sorted({**fields, "cacheScope": "private", "resultType": "complete", "ttlMs": 0}.items())
        return {"result": {**dict(rows), "_meta": {f"{_META}serverInfo": _SERVER}}}

    def _introduce_server(self, capabilities: Object) -> Object:
        return {"capabilities": capabilities, "instructions": self._selection.write_instructions()}

    def _list_entries(self, method: str, schema_keys: tuple[str, ...]) -> Object | None:
        """Return the answer to a request for a list; None for other methods.

        `schema_keys` come first in a schema in this era.
        """
        match method:
            case "tools/list":
                tools = build_tool_entries(self._selection)
                for tool in tools:
                    schema = tool["inputSchema"]
                    tool["inputSchema"] = {key: schema[key] for key in schema_keys if key in schema} | schema
                return {"tools": tools}
            case "prompts/list":
                from vmrag_mcp.prompts import prompt_entries  # few clients wait for these

                return {"prompts": prompt_entries(self._selection)}
            case "resources/templates/list" if self._settled:
                from vmrag_mcp.resources import template_entries

                return {"resourceTemplates": template_entries(self._selection)}
        return None


class EarlyStream:
    """The standard streams of a server. A thread reads all lines, another writes early answers.

    First call `wait_for_need`. When it returns, load the SDK, call `take_over`, and pass each
    `next_line` to the SDK.
    """

    def __init__(self, wire: Wire, answers: StaticAnswers) -> None:
        self.answers = answers
        self.write = wire.write_line
        self._wire = wire
        self._lines: queue.Queue[bytes] = queue.Queue(_MAX_WAITING_LINES)
        self._unwritten: queue.Queue[bytes] = queue.Queue()
        self._needed = threading.Event()
        self._sdk_answers = False
        self._timer: threading.Timer | None = None

    def wait_for_need(self) -> None:
        """Answer until the SDK is needed. The process ends here if the input ends before that."""
        for name, work in {"input": self._read_lines, "output": self._write_answers}.items():
            threading.Thread(target=work, name=name, daemon=True).start()
        self._needed.wait()

    def take_over(self) -> None:
        """Give every line to the SDK from now on."""
        self._sdk_answers = True

    def next_line(self) -> bytes:
        """Return the next line for the SDK; empty at the end of input."""
        line = self._lines.get()
        if not line:
            self._finish_writing()
        return line

    def _finish_writing(self) -> None:
        exit_soon()  # in case the client does not read its answers
        self._unwritten.join()

    def _write_answers(self) -> None:
        while True:
            self.write(self._unwritten.get())
            self._unwritten.task_done()

    def _read_lines(self) -> None:
        is_sdk_needed = False
        try:
            while line := self._wire.read_line():
                if not line.isspace():
                    is_sdk_needed = self._handle_line(line) or is_sdk_needed
        except Exception as error:  # without this thread, the client waits for ever
            sys.excepthook(type(error), error, error.__traceback__)
            exit_now(BUG)
            raise
        if not is_sdk_needed and not self._sdk_answers:
            self._finish_writing()
            exit_now()
        self._lines.put(b"")

    def _handle_line(self, line: bytes) -> bool:
        """Handle a line, and return True if the SDK has to answer it."""
        step = EarlyStep() if self._sdk_answers else self.answers.take_line(line)
        if step.answer:
            self._unwritten.put(step.answer)
        if step.for_sdk:
            self._lines.put(line)
        if step.needs_sdk:
            self._needed.set()
        elif self.answers.listed and self._timer is None:
            self._timer = threading.Timer(PATIENCE_SECONDS, self._needed.set)
            self._timer.daemon = True
            self._timer.start()
        return step.needs_sdk

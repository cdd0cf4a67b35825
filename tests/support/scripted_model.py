"""A fake language model on loopback, for programs of MCP clients: it calls tools by a script.

Real models need keys and a network. The fake shows what a client passes on to its model; it cannot
show which tool a model would choose. It speaks OpenAI's Chat Completions and Responses, and
`generateContent` of Gemini.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Call = tuple[str, Mapping[str, Any]]
FINISHED = "All calls are made."


class ScriptedModel:
    """`seen`: the text that the model gets for each call of the script. `listed`: how many of our
    tools a request describes; the others are found by a search of the client.
    """

    def __init__(self, script: Sequence[Call]) -> None:
        self.script = script
        self.seen: list[str] = []
        self.listed = 0
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    def answer(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the events of the answer: a call, or text if the request has none of our tools."""
        self.requests.append((path, body))
        if path.endswith("/chat/completions"):
            results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
            names = [tool["function"]["name"] for tool in body.get("tools", [])]
            return _chat_events(*self._next_call(results, names))
        if path.endswith("/responses"):
            outputs = [entry for entry in body["input"] if entry["type"] == "function_call_output"]
            spaces = [(tool["name"], tool["tools"]) for tool in body["tools"] if tool["type"] == "namespace"]
            names = [f"{space}__{tool['name']}" for space, tools in spaces for tool in tools]
            names += [tool["type"] for tool in body["tools"]]
            return _response_events(*self._next_call([output["output"] for output in outputs], names))
        parts = [part for content in body["contents"] for part in content["parts"]]
        results = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        declared = [one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]
        return _gemini_events(*self._next_call(results, [one["name"] for one in declared]))

    def _next_call(self, results: Sequence[Any], names: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
        """Return the name and arguments of the next call; an empty name: none is left."""
        number = len(results)
        if number > len(self.seen):
            self.seen.append(_text_of(results[-1]))
        ours = [name for name in names if "vmrag" in name]
        self.listed = max(self.listed, len(ours))
        if number < len(self.script):
            tool, arguments = self.script[number]
            for name in ours:
                if name.endswith(f"_{tool}"):
                    return name, arguments
            if "tool_search" in names and "tool_call" in names:  # Qwen Code
                return "tool_call", {"name": f"mcp__vmrag__{tool}", "arguments": arguments}
            if "tool_search" in names:  # Codex
                return f"mcp__vmrag__{tool}", arguments
        return "", {}


def _text_of(result: Any) -> str:
    if isinstance(result, list):
        return "\n".join(map(_text_of, result))
    if isinstance(result, dict):
        texts = [result[key] for key in ("text", "output", "content", "error") if key in result]
        return _text_of(texts[0]) if texts else json.dumps(result)
    return str(result)


def _chat_events(name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    call = {"index": 0, "id": f"call_{name}", "type": "function"}
    call["function"] = {"name": name, "arguments": json.dumps(arguments)}
    delta: dict[str, Any] = {"role": "assistant", **({"tool_calls": [call]} if name else {"content": FINISHED})}
    head = {"id": "chat", "object": "chat.completion.chunk", "created": 0, "model": "fake"}
    finish = "tool_calls" if name else "stop"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage},
    ]


def _response_events(name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    if name:
        space, _, tool = name.rpartition("__")
        item = {"type": "function_call", "call_id": f"call_{name}", "namespace": space, "name": tool}
        item["arguments"] = json.dumps(arguments)
    else:
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": FINISHED}]}
    item["id"] = "item"
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "response"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "response", "usage": usage}},
    ]


def _gemini_events(name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    part = {"functionCall": {"name": name, "args": arguments}} if name else {"text": FINISHED}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return [{"candidates": [candidate], "usageMetadata": usage}]


@contextlib.contextmanager
def listening(model: ScriptedModel) -> Iterator[ScriptedModel]:
    """Listen on a free port of this machine until the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(json.dumps({"object": "list", "data": [{"id": "fake", "object": "model"}]}), "application/json")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path, _, query = self.path.partition("?")
            if path.endswith(":countTokens"):
                self._send('{"totalTokens": 1}', "application/json")
                return
            events = model.answer(path, body)
            if body.get("stream") or "alt=sse" in query:
                text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
                end = "data: [DONE]\n\n" if path.endswith("/chat/completions") else ""
                self._send(text + end, "text/event-stream")
            else:
                self._send(json.dumps(_whole(path, events)), "application/json")

        def _send(self, text: str, kind: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


def _whole(path: str, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the answer to a request that does not stream."""
    if path.endswith("/chat/completions"):
        choice = events[0]["choices"][0]
        return {**events[1], "object": "chat.completion", "choices": [{**choice, "message": choice["delta"]}]}
    return events[-1]

"""Lines of the protocol and their messages. A line that is no message gets JSON-RPC's error."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import mcp_types as types
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

Message = types.JSONRPCRequest | types.JSONRPCNotification | types.JSONRPCResponse | types.JSONRPCError


class MessageRefused(ValueError):
    """What came is no message; `answer` says so to the client."""

    def __init__(self, code: int, why: str, about: types.RequestId | None = None) -> None:
        super().__init__(why)
        self.answer = types.JSONRPCError(jsonrpc="2.0", id=about, error=types.ErrorData(code=code, message=why))


def parse_message(line: bytes) -> Message:
    """Raises `MessageRefused`. Half of a surrogate pair is JSON, so the tool refuses that."""
    try:
        found = json.loads(line.decode(), parse_constant=_no_number)
    except UnicodeDecodeError:
        raise MessageRefused(types.PARSE_ERROR, "Parse error: this is not UTF-8.") from None
    except RecursionError:
        raise MessageRefused(types.PARSE_ERROR, "Parse error: this is nested too deeply.") from None
    except ValueError as error:
        raise MessageRefused(types.PARSE_ERROR, f"Parse error: {error}.") from None
    if not isinstance(found, dict):
        what = "Batches are not part of this protocol" if isinstance(found, list) else "A message is a JSON object"
        raise MessageRefused(types.INVALID_REQUEST, f"Invalid request: {what}.")
    about = _id(found)
    try:
        message: Message = types.jsonrpc_message_adapter.validate_python(found, by_name=False)
    except (ValidationError, RecursionError):
        raise MessageRefused(
            types.INVALID_REQUEST, "Invalid request: this is no JSON-RPC 2.0 message.", about
        ) from None
    if isinstance(message, types.JSONRPCNotification) and "id" in found:
        raise MessageRefused(types.INVALID_REQUEST, "Invalid request: an id is a text or a whole number.")
    return message


def encode_message(message: Message) -> bytes:
    """One line, with its end."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except (
        PydanticSerializationError
    ):  # half of a surrogate pair that the client sent comes back as the escape that it was
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode() + b"\n"


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _id(found: dict[str, Any]) -> types.RequestId | None:
    """The id to answer to; None for a broken answer: its id is one of ours, not of the client's."""
    about = found.get("id")
    if "method" not in found and ("result" in found or "error" in found):
        return None
    return about if isinstance(about, str | int) and not isinstance(about, bool) else None

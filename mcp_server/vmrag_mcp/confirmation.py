"""Questions to the person, where a tool needs their word and the client can ask (both eras).

Whether something may be lost: an agent may answer that for its user, by an argument. Whether an
address may be used that nobody has agreed to, and whether tools may come that use the network or
delete: no argument answers that, because the agent may have read in a stranger's text what to use
and what for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext

from vmrag_link.models import Record
from vmrag_mcp.registry import ToolInfo

PARAMETERS = ("confirm", "confirm_discard")
"""How tools call their confirmation."""

_YES = "confirm"
_REMEMBER = "remember"


class Confirmation(Record, frozen=True):
    """A yes. `agreed`: addresses or a toolset, each with whether to remember it; none: yes to the
    loss.
    """

    agreed: dict[str, bool]


class _Question(Record, frozen=True):
    """`key`: what the client calls it when it answers with a second call. `about`: the address or
    the toolset.
    """

    key: str
    message: str
    form: dict[str, Any]
    about: str = ""


async def ask(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams, result: Mapping[str, Any]
) -> Confirmation | types.InputRequiredResult | None:
    """The person's yes to what a failed call lacked; None for a no, and where nothing can be asked.

    In the stateless era the question is the call's result; the client calls again with the answer.
    """
    able = context.session.client_capabilities
    question = _question(params.name, result)
    if question is None or able is None or able.elicitation is None:
        return None
    if context.session.can_send_request:
        return _answer(question, await context.session.elicit_form(question.message, question.form, context.request_id))
    if params.input_responses and question.key in params.input_responses:
        return _answer(question, params.input_responses[question.key])
    form = types.ElicitRequestFormParams(message=question.message, requested_schema=question.form)
    return types.InputRequiredResult(input_requests={question.key: types.ElicitRequest(params=form)})


def with_confirmation(tool: ToolInfo, arguments: Mapping[str, Any], answer: Confirmation) -> Mapping[str, Any]:
    """The arguments of the same call, with the confirmation if that was asked for."""
    if answer.agreed:
        return arguments
    name = next(each for each in PARAMETERS if each in tool.schema["properties"])
    return {**arguments, name: True}


def _question(tool: str, result: Mapping[str, Any]) -> _Question | None:
    match result:
        case {"code": "CONFIRMATION_REQUIRED", "message": message}:
            return _Question(_YES, message, _form(_box("Do it", "What was never committed is lost.")))
        case {"code": "REMOTE_NOT_TRUSTED", "details": {"ask": True, "remote": remote}}:
            return _address_question(tool, remote)
        case {"code": "ACCESS_DENIED", "details": {"ask": True, "toolset": toolset, "tools": tools}}:
            return _toolset_question(toolset, tools)
    return None


def _address_question(tool: str, remote: str) -> _Question:
    """The whole address, on a line of its own."""
    plain = remote.encode("ascii", "backslashreplace").decode()
    message = (
        f"An agent wants to use {tool} with an address that nobody has agreed to here:\n\n{plain}\n\n"
        "What is sent there or comes from there is its owner's to see or to choose. Do you know whose it is?"
    )
    form = _form(
        _box("Use this address", "For this call."),
        _box("Remember it", "Use it in later calls in this repository without asking."),
    )
    return _Question(_key(remote), message, form, remote)


def _toolset_question(toolset: str, tools: Sequence[str]) -> _Question:
    message = (
        f"An agent wants to switch on the toolset {toolset!r} of this server until it ends. Of the tools that come with it, "
        f"these use the network or delete: {', '.join(tools)}."
    )
    return _Question(
        _key(f"toolset {toolset}"), message, _form(_box("Switch it on", "Until the server ends.")), toolset
    )


def _key(about: str) -> str:
    """It names what is asked, so that a yes to something else does not count."""
    return f"{_YES}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"


def _box(title: str, description: str) -> dict[str, str]:
    return {"type": "boolean", "title": title, "description": description}


def _form(yes: Mapping[str, Any], remember: Mapping[str, Any] | None = None) -> dict[str, Any]:
    boxes = {_YES: yes} | ({_REMEMBER: {**remember, "default": False}} if remember else {})
    return {"type": "object", "properties": boxes, "required": [_YES]}


def _answer(question: _Question, answer: object) -> Confirmation | None:
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return None
    said = answer.content or {}
    if said.get(_YES) is not True:
        return None
    return Confirmation({question.about: said.get(_REMEMBER) is True} if question.about else {})

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
from urllib.parse import urlsplit

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext

from vmrag_link import hosts
from vmrag_link.models import Record
from vmrag_link.terminal_text import escape_line
from vmrag_mcp.registry import ToolInfo

PARAMETERS = ("confirm", "confirm_discard")
"""How tools call their confirmation."""

_YES = "confirm"
_REMEMBER = "remember"


class Confirmation(Record, frozen=True):
    """A yes. `agreed`: addresses, a toolset or a file, each with whether to remember it; none: yes
    to the loss.
    """

    agreed: dict[str, bool]


class _Question(Record, frozen=True):
    """`key`: what the client calls it when it answers with a second call. `about`: the address, the
    toolset or the file.
    """

    key: str
    message: str
    form: dict[str, Any]
    about: str = ""


MOST_QUESTIONS = 8
"""Of one call: a URL may redirect to five hosts more."""


def earlier_answers(params: types.CallToolRequestParams) -> dict[str, bool]:
    """What the person agreed to earlier in this call, in the stateless era: the client, which asks
    them, carries it along.
    """
    try:
        return msgspec.json.decode(params.request_state or "{}", type=dict[str, bool])
    except (ValueError, msgspec.DecodeError):
        return {}


async def ask_user(
    context: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
    result: Mapping[str, Any],
    agreed: Mapping[str, bool],
) -> Confirmation | types.InputRequiredResult | None:
    """The person's yes to what a failed call lacked; None for a no, and where nothing can be asked.

    In the stateless era the question is the call's result; the client calls again with the answer,
    and with what was `agreed` to before.
    """
    able = context.session.client_capabilities
    question = _choose_question(params.name, result)
    if question is None or able is None or able.elicitation is None:
        return None
    if context.session.can_send_request:
        return _read_answer(
            question, await context.session.elicit_form(question.message, question.form, context.request_id)
        )
    if params.input_responses and question.key in params.input_responses:
        return _read_answer(question, params.input_responses[question.key])
    form = types.ElicitRequestFormParams(message=question.message, requested_schema=question.form)
    return types.InputRequiredResult(
        input_requests={question.key: types.ElicitRequest(params=form)},
        request_state=msgspec.json.encode(agreed).decode(),
    )


def with_confirmation(tool: ToolInfo, arguments: Mapping[str, Any], answer: Confirmation) -> Mapping[str, Any]:
    """The arguments of the same call, with the confirmation if that was asked for."""
    if answer.agreed:
        return arguments
    name = next(parameter for parameter in PARAMETERS if parameter in tool.schema["properties"])
    return {**arguments, name: True}


def _choose_question(tool: str, result: Mapping[str, Any]) -> _Question | None:  # noqa: PLR0911  a case each
    match result:
        case {"code": "CONFIRMATION_REQUIRED", "message": message}:
            return _Question(
                _YES, escape_line(message), _make_form(_make_box("Do it", "What was never committed is lost."))
            )
        case {"code": "REMOTE_NOT_TRUSTED", "details": {"ask": True, "remote": remote}}:
            return _address_question(tool, remote)
        case {"code": "REMOTE_NOT_TRUSTED", "details": {"ask": True, "host": host, "url": url}}:
            return _host_question(tool, host, url)
        case {"code": "ACCESS_DENIED", "details": {"ask": True, "toolset": toolset, "tools": tools}}:
            return _toolset_question(toolset, tools)
        case {"code": "ACCESS_DENIED", "details": {"ask": True, "ignored": path}}:
            return _ignored_question(tool, path)
        case {"code": "ACCESS_DENIED", "details": {"ask": True, "commit": note}}:
            return _commit_question(note)
    return None


def _address_question(tool: str, remote: str) -> _Question:
    """The whole address, on a line of its own."""
    message = (
        f"An agent wants to use {tool} with an address that nobody has agreed to here:\n\n{_escape_hidden(remote)}\n\n"
        f"{_host_of(remote)}What is sent there or comes from there is its owner's to see or to choose. Do you know whose it is?"
    )
    form = _make_form(
        _make_box("Use this address", "For this call."),
        _make_box("Remember it", "Use it in later calls in this repository without asking."),
    )
    return _Question(_question_key(remote), message, form, remote)


def _host_question(tool: str, host: str, url: str) -> _Question:
    """One host of a call: where its URL leads, or where that redirects to."""
    message = (
        f"An agent wants {tool} to ask a host for a page that nobody has agreed to here:\n\n{host}\n\n"
        f"The whole address:\n\n{_escape_hidden(url)}\n\n"
        "All that stands in it is sent there, and what comes from there is its owner's to choose. Do you know whose it is?"
    )
    form = _make_form(
        _make_box("Ask this host", "For this call."),
        _make_box("Always this host", "Agents in this repository may ask it for any page without asking you."),
    )
    return _Question(_question_key(host), message, form, host)


def _escape_hidden(text: str) -> str:
    """Escape line ends, control characters, backslashes, and letters that look like others."""
    return text.encode("unicode_escape").decode()


def _host_of(remote: str) -> str:
    """A sentence about a host that is written otherwise than usual: `0x7f.1` is this machine."""
    try:
        host = urlsplit(remote).hostname or ""
    except ValueError:
        return ""
    usual = hosts.normalize_host(host)
    return "" if usual == host else f"Its host is {_escape_hidden(usual)}. "


def _toolset_question(toolset: str, tools: Sequence[str]) -> _Question:
    message = (
        f"An agent wants to switch on the toolset {toolset!r} of this server until it ends. Of the tools that come with it, "
        f"these use the network or delete: {', '.join(map(_escape_hidden, tools))}."
    )
    return _Question(
        _question_key(f"toolset {toolset}"),
        message,
        _make_form(_make_box("Switch it on", "Until the server ends.")),
        toolset,
    )


def _ignored_question(tool: str, path: str) -> _Question:
    message = (
        f"An agent wants {tool} to take a file into the knowledge base that git ignores:\n\n{_escape_hidden(path)}\n\n"
        "What the knowledge base holds is pushed, and others read it."
    )
    return _Question(_question_key(path), message, _make_form(_make_box("Take this file", "For this call.")), path)


def _commit_question(note: str) -> _Question:
    name = _escape_hidden(note.removeprefix("commit "))
    message = f"An agent wants to make a git commit that holds one note: {name}"
    return _Question(_question_key(note), message, _make_form(_make_box("Commit it", "For this call.")), note)


def without_refused(result: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the arguments of the call without what the user does not allow.

    Returns None if the call fails as a whole.
    """
    match result:
        case {"code": "ACCESS_DENIED", "details": {"otherwise": otherwise}}:
            return {**arguments, **otherwise}
    return None


def _question_key(about: str) -> str:
    """It names what is asked, so that a yes to something else does not count."""
    return f"{_YES}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"


def _make_box(title: str, description: str) -> dict[str, str]:
    return {"type": "boolean", "title": title, "description": description}


def _make_form(yes: Mapping[str, Any], remember: Mapping[str, Any] | None = None) -> dict[str, Any]:
    boxes = {_YES: yes} | ({_REMEMBER: {**remember, "default": False}} if remember else {})
    return {"type": "object", "properties": boxes, "required": [_YES]}


def _read_answer(question: _Question, answer: object) -> Confirmation | None:
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return None
    said = answer.content or {}
    if said.get(_YES) is not True:
        return None
    return Confirmation({question.about: said.get(_REMEMBER) is True} if question.about else {})

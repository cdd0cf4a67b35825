"""Questions to the user, if a tool needs consent and the client can ask.

In the handshake era of the protocol, the server sends the question to the client and waits. In the
modern era, the question is the result of the call, and the client calls again with the answer.

An agent can answer for its user, by an argument, whether data can be discarded. No argument can
trust an address, or enable tools that use the network or delete: the agent can have read the
instruction in an untrusted text.
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
"""The names of the parameters that confirm a call."""

_YES = "confirm"
_REMEMBER = "remember"


class Confirmation(Record, frozen=True):
    """The user's consent."""

    agreed: dict[str, bool]
    """Addresses, a toolset or a file, each with whether to remember it. Empty: consent to discard
    data.
    """


class _Question(Record, frozen=True):
    """A question to the user."""

    key: str
    """Name of the question in the client's answer, which is a second call."""
    message: str
    form: dict[str, Any]
    about: str = ""
    """The address, the toolset or the file."""


MAX_QUESTIONS = 8
"""Maximum number of questions of one call. A URL can redirect to five other hosts."""


def earlier_answers(params: types.CallToolRequestParams) -> dict[str, bool]:
    """Return the names that the user has already confirmed in this call.

    In the modern era, the client sends its earlier answers again.
    """
    try:
        return msgspec.json.decode(params.request_state or "{}", type=dict[str, bool])
    except (ValueError, msgspec.DecodeError):
        return {}


async def ask_user(
    context: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
    failure: Mapping[str, Any],
    agreed: Mapping[str, bool],
) -> Confirmation | types.InputRequiredResult | None:
    """Ask for the consent that a call lacks, as the envelope of its `failure` states.

    Returns None if the user refuses, or if the client cannot ask. In the modern era, it can return
    the result of the call that contains the question and the names `agreed` before.
    """
    capabilities = context.session.client_capabilities
    question = _choose_question(params.name, failure)
    if question is None or capabilities is None or capabilities.elicitation is None:
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
    """Return the arguments of the same call, with the confirmation if the tool has a parameter for
    it.
    """
    if answer.agreed:
        return arguments
    name = next(parameter for parameter in PARAMETERS if parameter in tool.schema["properties"])
    return {**arguments, name: True}


def without_refused(failure: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the arguments of the same call that need no consent, or None."""
    match failure:
        case {"code": "ACCESS_DENIED", "details": {"otherwise": otherwise}}:
            return {**arguments, **otherwise}
    return None


def _choose_question(tool: str, failure: Mapping[str, Any]) -> _Question | None:  # noqa: PLR0911  a case each
    match failure:
        case {"code": "CONFIRMATION_REQUIRED", "message": message}:
            return _Question(
                _YES, escape_line(message), _make_form(_make_box("Continue", "Data that was never committed is lost."))
            )
        case {"code": "REMOTE_NOT_TRUSTED", "details": {"ask": True, "remote": remote}}:
            return _ask_address(tool, remote)
        case {"code": "REMOTE_NOT_TRUSTED", "details": {"ask": True, "host": host, "url": url}}:
            return _ask_host(tool, host, url)
        case {"code": "ACCESS_DENIED", "details": {"ask": True, "toolset": toolset, "tools": tools}}:
            return _ask_toolset(toolset, tools)
        case {"code": "ACCESS_DENIED", "details": {"ask": True, "ignored": path}}:
            return _ask_ignored(tool, path)
        case {"code": "ACCESS_DENIED", "details": {"ask": True, "commit": note}}:
            return _ask_commit(note)
    return None


def _ask_address(tool: str, remote: str) -> _Question:
    """Ask about an address. The whole address is on a line of its own."""
    message = (
        f"An agent wants to use {tool} with an address that you have not trusted in this repository:\n\n{_escape_hidden(remote)}\n\n"
        f"{_describe_host(remote)}Its owner can read what is sent there, and chooses what comes from there. Do you know the owner?"
    )
    form = _make_form(
        _make_box("Use this address", "For this call."),
        _make_box("Remember it", "Do not ask again for later calls in this repository."),
    )
    return _Question(_question_key(remote), message, form, remote)


def _ask_host(tool: str, host: str, url: str) -> _Question:
    """Ask about one host of a call: the host of the URL, or of a redirection."""
    message = (
        f"An agent wants {tool} to fetch a page from a host that you have not trusted in this repository:\n\n{host}\n\n"
        f"The whole address:\n\n{_escape_hidden(url)}\n\n"
        "The owner of the host can read the whole address, and chooses the content of the page. Do you know the owner?"
    )
    form = _make_form(
        _make_box("Use this host", "For this call."),
        _make_box("Always use this host", "Agents in this repository can fetch any page from it without asking you."),
    )
    return _Question(_question_key(host), message, form, host)


def _escape_hidden(text: str) -> str:
    """Escape line ends, control characters, backslashes, and letters that look like others."""
    return text.encode("unicode_escape").decode()


def _describe_host(remote: str) -> str:
    """Return a sentence about a host in an unusual spelling: `0x7f.1` is this machine."""
    try:
        host = urlsplit(remote).hostname or ""
    except ValueError:
        return ""
    usual = hosts.normalize_host(host)
    return "" if usual == host else f"Its host is {_escape_hidden(usual)}. "


def _ask_toolset(toolset: str, tools: Sequence[str]) -> _Question:
    message = (
        f"An agent wants to enable the toolset {toolset!r} of this server until it ends. "
        f"These of its tools use the network or delete: {', '.join(map(_escape_hidden, tools))}."
    )
    return _Question(
        _question_key(f"toolset {toolset}"),
        message,
        _make_form(_make_box("Enable it", "Until the server ends.")),
        toolset,
    )


def _ask_ignored(tool: str, path: str) -> _Question:
    message = (
        f"An agent wants {tool} to import a file that git ignores into the knowledge base:\n\n{_escape_hidden(path)}\n\n"
        "The knowledge base is pushed, and others can read it."
    )
    return _Question(_question_key(path), message, _make_form(_make_box("Import this file", "For this call.")), path)


def _ask_commit(note: str) -> _Question:
    name = _escape_hidden(note.removeprefix("commit "))
    message = f"An agent wants to make a git commit that contains one note: {name}"
    return _Question(_question_key(note), message, _make_form(_make_box("Commit it", "For this call.")), note)


def _question_key(about: str) -> str:
    """Return a key that identifies the question, so that an answer to another question does not
    match.
    """
    return f"{_YES}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"


def _make_box(title: str, description: str) -> dict[str, str]:
    return {"type": "boolean", "title": title, "description": description}


def _make_form(yes: Mapping[str, Any], remember: Mapping[str, Any] | None = None) -> dict[str, Any]:
    boxes = {_YES: yes} | ({_REMEMBER: {**remember, "default": False}} if remember else {})
    return {"type": "object", "properties": boxes, "required": [_YES]}


def _read_answer(question: _Question, answer: object) -> Confirmation | None:
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return None
    content = answer.content or {}
    if content.get(_YES) is not True:
        return None
    return Confirmation({question.about: content.get(_REMEMBER) is True} if question.about else {})

"""A tool that wants a confirmation, and a client that can ask the person: ask, instead of refusing. Both eras of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext

from vmrag_mcp.registry import Listed

PARAMETERS = ("confirm", "confirm_discard")
"""How tools call their confirmation."""

_QUESTION = "confirm"
_FORM = {
    "type": "object",
    "properties": {
        _QUESTION: {"type": "boolean", "title": "Do it", "description": "What was never committed is lost."}
    },
    "required": [_QUESTION],
}


async def asked(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams, result: Mapping[str, Any]
) -> bool | types.InputRequiredResult:
    """Whether the person confirms what a failed call lacked the confirmation for; False where the client asks nobody anything.

    In the stateless era the question is the call's result, and the client calls again with the answer.
    """
    able = context.session.client_capabilities
    if result.get("code") != "CONFIRMATION_REQUIRED" or able is None or able.elicitation is None:
        return False
    if context.session.can_send_request:
        return _agreed(await context.session.elicit_form(result["message"], _FORM, context.request_id))
    if params.input_responses and _QUESTION in params.input_responses:
        return _agreed(params.input_responses[_QUESTION])
    form = types.ElicitRequestFormParams(message=result["message"], requested_schema=_FORM)
    return types.InputRequiredResult(input_requests={_QUESTION: types.ElicitRequest(params=form)})


def confirmed(tool: Listed, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the same call, confirmed."""
    name = next(each for each in PARAMETERS if each in tool.schema["properties"])
    return {**arguments, name: True}


def _agreed(answer: object) -> bool:
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return False
    return bool((answer.content or {}).get(_QUESTION))

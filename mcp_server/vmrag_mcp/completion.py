"""Values that complete arguments of prompts, and variables of resources' addresses.

A client asks for them while its user types an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import shortened
from vmrag_mcp.arguments import require_text
from vmrag_mcp.prompts import PROMPTS
from vmrag_mcp.resources import TEMPLATES, list_collections, locate_collection, select_shown

if TYPE_CHECKING:
    from vmrag_mcp.call import Call

MAX_VALUES = 100
"""The protocol's maximum number of values."""


def complete_value(
    call: Call, reference: str, argument: str, typed: str, values_by_name: Mapping[str, str]
) -> tuple[list[str], bool]:
    """Return the values that begin with the typed text, and whether there are more.

    `reference` is a prompt's name or a template's address; an unknown reference has no values.
    `values_by_name` has the arguments that already have a value. Raises `UsageInvalid` for a value
    that is too long.
    """
    for name, value in ((argument, typed), *values_by_name.items()):
        require_text(value, shortened(name))
    fitting = (
        value
        for value in _list_values(call, reference, argument, values_by_name)
        if value.lower().startswith(typed.lower())
    )
    matching = list(islice(fitting, MAX_VALUES + 1))
    return matching[:MAX_VALUES], len(matching) > MAX_VALUES


def _list_values(call: Call, reference: str, argument: str, values_by_name: Mapping[str, str]) -> Iterable[str]:
    if reference in {resource.uri for resource in select_shown(TEMPLATES, call.tools)}:
        match argument:
            case "collection":
                return (collection.name for collection, _ in list_collections(call))
            case "doc_id" if "collection" in values_by_name:
                store, at = locate_collection(call, values_by_name["collection"])
                headers = store.engine.read_headers(at, collection=values_by_name["collection"])
                return (header.doc_id for header in headers)
    shows_branches = call.tools is None or call.tools.is_reachable("dolt_branches")
    if reference in PROMPTS and argument == "since" and shows_branches:
        call.find_origin()
        return (branch.name for branch in call.ws.engine.list_branches() if not is_reserved(branch.name))
    return ()

"""Proposals while a person types a prompt's argument or a variable of a resource's address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from vmrag_link.engines.base import reserved
from vmrag_mcp.prompts import PROMPTS
from vmrag_mcp.resources import TEMPLATES, collections, place, shown
from vmrag_mcp.session import Call

MOST = 100
"""The protocol's own limit of an answer."""


def complete(call: Call, reference: str, argument: str, typed: str, known: Mapping[str, str]) -> tuple[list[str], bool]:
    """Values that begin with the typed text, and whether there are more.

    `reference`: a prompt's name or a template's address; an unknown one has no values. `known`:
    arguments that have a value already.
    """
    fitting = (each for each in _values(call, reference, argument, known) if each.lower().startswith(typed.lower()))
    found = list(islice(fitting, MOST + 1))
    return found[:MOST], len(found) > MOST


def _values(call: Call, reference: str, argument: str, known: Mapping[str, str]) -> Iterable[str]:
    if reference in {each.uri for each in shown(TEMPLATES, call.tools)}:
        match argument:
            case "collection":
                return (each.name for each, _ in collections(call))
            case "doc_id" if "collection" in known:
                store, at = place(call, known["collection"])
                return (each.doc_id for each in store.engine.headers(at, collection=known["collection"]))
    if reference in PROMPTS and argument == "since" and (call.tools is None or call.tools.reachable("dolt_branches")):
        call.standing()
        return (each.name for each in call.ws.engine.branches() if not reserved(each.name))
    return ()

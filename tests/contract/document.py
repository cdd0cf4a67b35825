"""Write docs/tools.md: `python -m tests.contract.document > docs/tools.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.contract.reading import COMMON, TOOLS, examples
from vmrag_mcp.registry import CORE, ToolInfo, list_toolsets, load_catalogue

EFFECTS: dict[str, str] = COMMON["effects"]
MOST_VALUES = 15
SHOWN = ("status", "remember")
"""Tools whose answer the page shows. Those of the other tools with text are alike."""

FIRST = "essential"
NAMED = {
    "chroma_variants": "The names of these tools describe them. If `limit` is 0, you get all documents:",
    "vcs_aliases": "These tools do the same as those of `dolt`. `delete_branch` deletes a merged local branch, "
    "and with `force` also an unmerged one with its uncommitted documents:",
}
"""Toolsets whose tools share a description on the page."""

MANY = 2
"""A parameter of so many tools is described once."""

_HEAD = """# MCP tools

Here you look up the parameters, effects and errors of each tool. For example, an agent calls `search` with `query="why Pagefind"`. [Agents](mcp.md) shows how
you start the server and choose toolsets.

* **Bold** parameters are required. A parameter is a string unless its entry names another type. Limits such as `0 to 20` mean an integer. A boolean is false by
  default. Lists and objects can also be JSON text. If a parameter has no description, see [common parameters](#common-parameters).
* *Italics* are effects. A tool without them only reads. *writes* concerns documents or the index, *changes history* revisions, branches or refs of the
  knowledge base, *replaces* what exists, and *other files* those outside the knowledge base. *network* means that the tool can use it.
* The essential tools answer with text. Its last line names the commit and the revision. A failure is `error CODE: MESSAGE`, with lines that begin with `hint: `.
* All other tools answer with JSON. A result has `success`, `message`, `kb` (revision and sources of the answer), sometimes `warnings`, and the fields in
  [tools.json](../tests/contract/tools.json). A failure has `success: false`, `error`, `code`, `message`, `details` and `suggestions`. The first suggestion is a
  tool of this server, if one helps.

<!-- Written by: python -m tests.contract.document > docs/tools.md -->
"""

_UNDESCRIBED = {"toolset": "name such as ingest"}
"""Parameters whose description the list of tools leaves out, because it costs tokens."""

_CODES = """## Codes

An error ends the call. A warning is part of a result.
"""


def document() -> str:
    return "\n".join(_lines()).rstrip("\n") + "\n\nNext: [agents](mcp.md), [toolsets](toolsets.md).\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield "## Common parameters\n"
    yield from (f"* `{name}`{facts}: {meaning}" for name, (facts, meaning) in common_parameters().items())
    yield ""
    for toolset, info in sorted(list_toolsets().items(), key=lambda item: item[0] != FIRST):
        usual = " (default)" if toolset in CORE else ""
        yield f"## {toolset}\n\n{info.about[0].upper()}{info.about[1:]}{usual}.\n"
        tools = [tool for tool in load_catalogue().values() if toolset in tool.toolsets]
        own_tools = [tool for tool in tools if tool.toolsets[0] == toolset]
        if toolset in NAMED:
            yield f"{NAMED[toolset]}\n"
            yield from (f"* {_signature(tool, TOOLS[tool.name])}" for tool in own_tools)
            yield ""
        else:
            for tool in own_tools:
                yield from _tool(tool, TOOLS[tool.name])
        if shared := [f"[`{tool.name}`](#{tool.name})" for tool in tools if tool.toolsets[0] != toolset]:
            yield f"Also here: {', '.join(shared)}.\n"
    yield _CODES
    yield from _meanings("code", COMMON["error_codes"] | COMMON["own_error_codes"])
    yield from _meanings("warning", COMMON["warning_codes"] | COMMON["own_warning_codes"])


def _meanings(what: str, codes: dict[str, str]) -> Iterator[str]:
    yield f"| {what} | reason |\n|---|---|"
    for code, when in sorted(codes.items()):
        yield f"| `{code}` | {when} |"
    yield ""


def _signature(tool: ToolInfo, contract: dict[str, Any]) -> str:
    """Return name, parameters and effects of a tool."""
    parameters = []
    for name in tool.schema["properties"]:
        facts = _facts(name, tool, contract)
        parameters.append(_shown(name, tool) + (_differing(name, facts) if name in common_parameters() else facts))
    effects = ", ".join(EFFECTS[letter] for letter in tool.effect if letter != "R")
    return f"`{tool.name}`{': ' * bool(parameters)}{', '.join(parameters)}{f' *{effects}*' if effects else ''}"


def _tool(tool: ToolInfo, contract: dict[str, Any]) -> Iterator[str]:
    yield f"### {f'{tool.short} ({tool.name})' if tool.short else tool.name}\n"
    effects = ", ".join(EFFECTS[letter] for letter in tool.effect if letter != "R")
    yield f"{tool.description}{f' *{effects}*' if effects else ''}\n"
    lines: list[str] = []
    names = list(tool.schema["properties"])
    facts = {name: _facts(name, tool, contract) for name in names}
    common = [name for name in names if common_parameters().get(name, ("", None))[1] == _meaning(name, tool, contract)]
    alike: dict[tuple[str, str], list[str]] = {}
    for name in (name for name in names if name not in common):
        alike.setdefault((facts[name], _meaning(name, tool, contract)), []).append(_shown(name, tool))
    lines += [f"* {', '.join(shown)}{fact}: {meaning}" for (fact, meaning), shown in alike.items()]
    if common:
        line = f"* {', '.join(_shown(name, tool) + _differing(name, facts[name]) for name in common)}"
        lines.insert(0 if "**" in line else len(lines), line)
    if lines:
        lines.append("")
    yield from lines
    answers = [example for example in examples(tool.name) if example.prints and (tool.short or tool.name) in SHOWN]
    for example in answers[:1]:
        call = " ".join([tool.short or tool.name, *(f"{name}={_plain(value)}" for name, value in example.call.items())])
        yield f"`{call}` answers:\n\n````text\n{example.prints.rstrip()}\n````\n"


def _shown(name: str, tool: ToolInfo) -> str:
    return f"**`{name}`**" if name in tool.schema.get("required", ()) else f"`{name}`"


def _differing(name: str, facts: str) -> str:
    """Return the facts of a common parameter if they differ from the usual ones."""
    usual = common_parameters()[name][0]
    kind, _, default = facts.strip(" ()").partition("; default: ")
    if default and kind == usual.strip(" ()").partition("; default: ")[0] and facts != usual:
        return f" (default: {default})"
    return "" if facts == usual else facts or " (string)"


def _meaning(name: str, tool: ToolInfo, contract: dict[str, Any]) -> str:
    schema = tool.schema["properties"][name]
    about = str(schema.get("description", _UNDESCRIBED.get(name, "")))
    if "default" not in schema and contract["defaults"].get(name):
        about = about.partition("; default: ")[0]
    return about


def _facts(name: str, tool: ToolInfo, contract: dict[str, Any]) -> str:
    """Return the type and the default of a parameter, in parentheses."""
    schema = tool.schema["properties"][name]
    default = _plain(schema["default"]) if "default" in schema else contract["defaults"].get(name, "")
    facts = [kind] if (kind := _kind(schema)) != "string" else []
    if default and default != "false":
        facts.append(f"default: {default}")
    return f" ({'; '.join(facts)})" if facts else ""


@cache
def common_parameters() -> dict[str, tuple[str, str]]:
    """Return facts and meaning of parameters that many tools have, by their names."""
    parameters = [(name, tool) for tool in load_catalogue().values() for name in tool.schema["properties"]]
    meanings = Counter((name, _meaning(name, tool, TOOLS[tool.name])) for name, tool in parameters)
    usual: dict[str, str] = {}
    for (name, meaning), tools in meanings.most_common():
        if tools >= MANY:
            usual.setdefault(name, meaning)
    facts = {
        parameter: Counter(
            _facts(name, tool, TOOLS[tool.name])
            for name, tool in parameters
            if name == parameter and _meaning(name, tool, TOOLS[tool.name]) == usual[parameter]
        ).most_common(1)[0][0]
        for parameter in usual
    }
    return {name: (facts[name], usual[name]) for name in sorted(usual)}


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return _kind(schema["anyOf"][0])
    if "enum" in schema:
        values = schema["enum"]
        few = len(values) <= MOST_VALUES
        return f"`{'|'.join(values)}`" if few else f"`{values[0]}`, `{values[1]}` or one of {len(values)}"
    if schema["type"] == "array":
        kind = _kind(schema["items"])
        return "list" if kind == "string" else f"list of {kind}"
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = f"{low} to {high}" if high is not None else f"at least {low}" if low is not None else ""
    kind = "" if schema["type"] == "integer" and bounds else schema["type"]
    return ", ".join(filter(None, (kind, bounds)))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


if __name__ == "__main__":
    print(document(), end="")

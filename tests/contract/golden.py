"""Golden schemas, which the program writes: `python -m tests.contract.golden`.

`tools.json` has the parameters and the result of each tool, `reports.json` the JSON of each
command. Each key has a line, `a[].b` is the key b of each object in the list a, and `?` marks a key
that can be absent. If a schema changes on purpose, write the files and review their difference.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import msgspec

from vmrag_mcp.answer_schemas import COMMON, Schema, answer_schema, record_schemas, result_type
from vmrag_mcp.arguments import Parameter, read_parameters
from vmrag_mcp.registry import import_function, load_catalogue

_DRAFT = jsonschema.Draft202012Validator
Exactly = jsonschema.validators.extend(
    _DRAFT,
    type_checker=_DRAFT.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)
"""JSON Schema, except that 1.0 is not an integer."""

FOLDER = Path(__file__).parent
TOOLS, REPORTS = FOLDER / "tools.json", FOLDER / "reports.json"

REPORT_TYPES = {
    "ask": "toolsets.compounding.ask.AskReport",
    "blame": "ops.blame.BlameReport",
    "branch": "workspace.pins.kb_branches.BranchesReport",
    "branch --switch": "ops.branch.switch.SwitchReport",
    "check": "ops.check.check_queries.GoldenReport",
    "commit": "ops.commit.commit.CommitReport",
    "diff": "workspace.history.word_diff.DiffReport",
    "diff --queries": "ops.diff_queries.QueriesDiff",
    "edit": "cli.edit.EditReport",
    "export": "ops.export.ExportReport",
    "fingerprint": "ops.fingerprint.fingerprint.FingerprintReport",
    "grep": "workspace.documents.grep.GrepReport",
    "import": "workspace.documents.import_reports.ImportReport",
    "import --library": "toolsets.libraries.import_command.LibraryImport",
    "init: files": "ops.init.init.InitReport",
    "init: knowledge base": "ops.new_knowledge_base.knowledge_base.KnowledgeBaseReport",
    "list": "ops.listing.ListReport",
    "log: revision": "workspace.history.document_history.RevisionReport",
    "merge": "ops.merge.merge.MergeReport",
    "migrate": "ops.migrate.migrate.MigrateReport",
    "migrate --undo": "ops.migrate.migrate.UndoReport",
    "pin": "ops.pin.PinCommandReport",
    "query": "workspace.answers.passages.PassageReport",
    "query --budget": "ops.query.packed_answer.PackedReport",
    "report": "ops.report.records.FullReport",
    "resolve": "ops.resolve.resolve.ResolveReport",
    "restore": "ops.restore.restore.Restoration",
    "rm": "ops.rm.NamedRemoval",
    "show": "ops.show.ShowReport",
    "status": "ops.status.status.StatusReport",
    "sync": "sync.apply.SyncReport",
}
"""Type of the JSON that a command prints, or of a part of it."""


def tools_json() -> str:
    tools = {}
    for name, tool in load_catalogue().items():
        function = import_function(tool)
        result = {} if tool.plain_text else list_keys(answer_schema(result_type(function)))
        tools[name] = {
            "parameters": {parameter.name: describe_parameter(parameter) for parameter in read_parameters(function)},
            "result": {key: kind for key, kind in result.items() if re.split(r"\W", key)[0] not in COMMON},
        }
    return write_lines(tools)


def describe_parameter(parameter: Parameter) -> dict[str, Any]:
    """Return what clients can send, without what is empty."""
    given = parameter.given
    items = f" of {'vector' if parameter.item_kind == 'array' else parameter.item_kind}" if parameter.item_kind else ""
    facts = {
        "type": parameter.kind + items + "|null" * parameter.nullable_items,
        "required": parameter.required,
        "default": parameter.default,
        "minimum": given.low,
        "maximum": given.high,
        "above_maximum": "" if given.high is None else "clamped" if given.clamped else "refused",
        "unset": given.unset,
        "choices": parameter.choices,
        "tolerated": list(given.spelled),
        "aliases": given.aliases,
        "min_items": given.min_items,
        "empty": given.blank,
        "empty_items": given.full,
    }
    return {key: fact for key, fact in facts.items() if fact or (fact == 0 and key in ("minimum", "unset"))}


def report_type(name: str) -> Any:
    module, _, attribute = REPORT_TYPES[name].rpartition(".")
    found_in = importlib.import_module(f"vmrag_link.{module}")
    import_checked_types(found_in)
    kind = getattr(found_in, attribute)
    if name != "resolve":
        return kind
    # msgspec has no schema for the rows in conflict, each of which is of one of two records.
    fields = [(field.name, field.type) for field in msgspec.structs.fields(kind) if field.name != "conflicts"]
    return msgspec.defstruct("ResolveReport", fields, frozen=True)


def import_checked_types(module: ModuleType) -> None:
    """Import what a module imports for type checkers only, so that msgspec can read its types."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                with contextlib.suppress(ImportError):  # a name that is for type checkers there, too
                    exec(compile(ast.Module([statement], []), module.__name__, "exec"), vars(module))


def report_schema(name: str) -> Schema:
    (top,), components = record_schemas(report_type(name))
    return {**top, "$defs": components}


def reports_json() -> str:
    return write_lines({name: list_keys(report_schema(name)) for name in REPORT_TYPES})


def list_keys(schema: Schema) -> dict[str, str]:
    """Return the type of each key of a JSON Schema."""
    return dict(_walk(schema, schema["$defs"], ""))


def _walk(schema: Schema, components: dict[str, Schema], path: str) -> Iterator[tuple[str, str]]:
    for part in schema.get("anyOf", ()):
        yield from _walk(part, components, path)
    if isinstance(schema.get("items"), dict):
        yield from _walk(schema["items"], components, f"{path}[]")
    schema = _resolve(schema, components)
    for name, value in schema.get("properties", {}).items():
        key = f"{path}.{name}" if path else name
        yield key + "?" * (name not in schema["required"]), _name_type(value, components)
        yield from _walk(value, components, key)


def _resolve(schema: Schema, components: dict[str, Schema]) -> Schema:
    return components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _name_type(schema: Schema, components: dict[str, Schema]) -> str:
    if "anyOf" in schema:
        return "|".join(dict.fromkeys(_name_type(part, components) for part in schema["anyOf"]))
    if "enum" in schema:
        return "|".join(map(repr, schema["enum"]))
    schema = _resolve(schema, components)
    kind = schema.get("type", "any")
    if kind == "array":
        items = schema.get("items")
        return f"array of {_name_type(items if isinstance(items, dict) else {}, components)}"
    values = schema.get("additionalProperties")
    return f"object of {_name_type(values, components)}" if isinstance(values, dict) and values else kind


HASH, SHA256 = re.compile(r"[0-9a-f]{40}|WORKING"), re.compile(r"[0-9a-f]{64}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
VALUES = {
    **dict.fromkeys(("revision", "parent", "parents", "dolt_commit", "git_head", "old", "new"), HASH),
    **dict.fromkeys(("content_hash", "fingerprint"), SHA256),
    **dict.fromkeys(("linked_at", "date"), TIME),
}
"""Pattern of a text, by its key."""


def list_problems(name: str, report: dict[str, Any], *, also: Collection[str] = ()) -> list[str]:
    """Return where a command's JSON, without the keys `also`, differs from its type."""
    report = {key: value for key, value in report.items() if key not in also}
    return [
        *(f"{error.json_path}: {error.message}" for error in Exactly(report_schema(name)).iter_errors(report)),
        *_list_odd_values(report, "$"),
    ]


def _list_odd_values(value: Any, path: str, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _list_odd_values(part, f"{path}.{name}", name)
    elif isinstance(value, list):
        for part in value:
            yield from _list_odd_values(part, f"{path}[]", key)
    elif isinstance(value, str) and key in VALUES and not VALUES[key].fullmatch(value):
        yield f"{path}: {value!r}"


def write_lines(groups: dict[str, Any]) -> str:
    """Return JSON with a line for each key of the innermost objects."""

    def write(value: Any, indent: str) -> str:
        nested = isinstance(value, dict) and any(isinstance(field, dict) for field in value.values())
        if not (nested or (isinstance(value, dict) and indent and value)) or len(indent) > 2:
            return json.dumps(value, ensure_ascii=False)
        rows = (f"{indent} {json.dumps(key)}: {write(part, indent + ' ')}" for key, part in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"

    return write(groups, "") + "\n"


def main() -> None:
    TOOLS.write_text(tools_json())
    REPORTS.write_text(reports_json())


if __name__ == "__main__":
    main()

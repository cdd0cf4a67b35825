"""The JSON Schema of an answer, derived from the record that a tool returns."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from tests.contract.golden import Exactly
from vmrag_link.models import Record
from vmrag_link.workspace.follow.provenance import KbBlock
from vmrag_mcp.answer_schemas import ResultKey, answer_schema, result_keys, result_type
from vmrag_mcp.envelope import build_success
from vmrag_mcp.results import DerivedRecord, ToolAnswer, ToolResult, ToolWarning


class Omitting(Record, frozen=True, omit_defaults=True):
    """Leaves out what is not known."""

    name: str
    old: str | None = None


class Row(Record, frozen=True):
    n: int
    staged: bool = False
    cut: Annotated[bool | UnsetType, Meta(description="the text was cut")] = UNSET


class SampleResult(ToolResult, frozen=True):
    rows: list[Row]
    change: Omitting | None
    free: dict[str, Any]


KB = KbBlock("/w", None, "main", "c" * 40, dirty=False, in_sync=True)


def answer(*warnings: ToolWarning) -> dict[str, Any]:
    sample = SampleResult(rows=[Row(1), Row(2, cut=True)], change=Omitting("a"), free={"x": [None]}, message="m")
    return build_success(sample, KB, list(warnings))


def valid(value: Any) -> bool:
    return Exactly(answer_schema(SampleResult)).is_valid(value)


def test_record_answer_fits_its_schema_and_ends_with_kb():
    assert valid(answer())
    assert valid(answer(ToolWarning("NOTE", "Look.")))
    assert list(answer()) == ["success", "rows", "change", "free", "message", "kb"]
    assert answer()["rows"] == [{"n": 1, "staged": False}, {"n": 2, "staged": False, "cut": True}]


class Counted(Record, frozen=True):
    """Result of an operation."""

    rows: tuple[Row, ...]
    names: tuple[str, ...]

    @property
    def total(self) -> int:
        return len(self.rows)


class CountedRow(DerivedRecord, frozen=True, rename={"n": "number"}):
    n: int


class Summary(DerivedRecord, frozen=True, rename={"rows": "entries", "total": "count"}):
    rows: list[CountedRow]
    total: int


def test_report_answer_has_lists_and_message_after_its_fields():
    def count() -> ToolAnswer[Counted]:
        return ToolAnswer(Counted((Row(1), Row(2)), ("a",)), message="m")

    got = build_success(count(), KB, [])
    assert list(got) == ["success", "rows", "names", "message", "kb"]
    assert (got["rows"][1], got["names"]) == ({"n": 2, "staged": False}, ["a"])
    kind = result_type(count)
    assert Exactly(answer_schema(kind)).is_valid(got)
    assert not Exactly(answer_schema(kind)).is_valid({key: value for key, value in got.items() if key != "message"})
    assert [result_key.path for result_key in result_keys(kind)][:2] == ["rows", "rows[].n"]


def test_part_of_an_answer_has_the_keys_that_clients_know():
    made = Summary.from_report(Counted((Row(1), Row(2)), ()))
    assert msgspec.to_builtins(made) == {"entries": [{"number": 1}, {"number": 2}], "count": 2}


@pytest.mark.parametrize("key", ["success", "rows", "change", "free", "message", "kb"])
def test_answer_without_one_of_its_keys_does_not_fit(key):
    assert not valid({name: value for name, value in answer().items() if name != key})


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"rows": [{"n": 1}]},  # a field with a default is always written
        {"rows": [{"n": 1.0, "staged": False}]},
        {"rows": [{"n": True, "staged": False}]},
        {"rows": [{"n": 1, "staged": False, "more": 1}]},
        {"rows": [{"n": 1, "staged": False, "cut": None}]},
        {"change": {"name": "a", "old": None}},  # a default that is left out never appears
        {"kb": {}},
        {"success": False},
        {"warnings": [{"code": "NOTE"}]},
    ],
)
def test_answer_with_other_keys_or_types_does_not_fit(change):
    assert not valid(answer() | change)


def test_optional_keys_of_a_result_are_declared():
    assert result_keys(SampleResult) == [
        ResultKey("rows", always=True, when=""),
        ResultKey("rows[].n", always=True, when=""),
        ResultKey("rows[].staged", always=True, when=""),
        ResultKey("rows[].cut", always=False, when="the text was cut"),
        ResultKey("change", always=True, when=""),
        ResultKey("change.name", always=True, when=""),
        ResultKey("change.old", always=False, when=""),
        ResultKey("free", always=True, when=""),
    ]


def test_type_of_a_result_is_the_return_type_of_the_function():
    def sample() -> SampleResult:
        return msgspec.convert({}, SampleResult)

    assert result_type(sample) is SampleResult

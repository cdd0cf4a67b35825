"""The page about Python: its example runs, and its tables name what exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from tests.support.repos import isolate
from tests.support.sources import sourced_project
from vmrag_link import api, errors

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
pytestmark = pytest.mark.hooks("off")


def test_page_example_runs(tmp_path, monkeypatch, capsys):
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.chdir(sourced_project(tmp_path / "sourced").top)
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "python.md", "exec"), {})
    assert len(re.findall(r"^\S+:\d+", capsys.readouterr().out, re.MULTILINE)) == 3


def test_page_lists_the_fields_of_each_result():
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (`.*) \|$", PAGE.partition("## Results")[2].partition("## Errors")[0], re.MULTILINE)
    )
    results = [
        value for name, value in vars(api).items() if inspect.isclass(value) and issubclass(value, msgspec.Struct)
    ]
    for result in results:
        if result is api.MatchingLine:
            continue  # in the row of its list
        names = re.findall(r"`(\w+)`", rows.pop(result.__name__).partition(";")[0])
        fields = [field.name for field in msgspec.structs.fields(result)]
        assert [name for name in names if name != "name" or "name" in fields] == fields
    assert rows == {}


def test_page_names_each_argument_and_existing_errors():
    for name in ("search", "get", "grep", "list", "diff", "history", "fingerprint", "add", "remove", "commit"):
        (call,) = re.findall(rf"^\| `kb\.{name}\((.*?)\)` \|", PAGE, re.MULTILINE)
        given = {word.strip(" =*") for word in call.split(",")}
        parameters = inspect.signature(getattr(api.KnowledgeBase, name)).parameters
        assert given == {parameter for parameter in parameters if parameter != "self"}
    table = PAGE.partition("## Errors")[2].partition("## RAG apps")[0]
    names = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert names
    assert all(issubclass(getattr(errors, name), errors.VmragError) for name in names)

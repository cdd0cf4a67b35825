"""The demo's pages: read from the library's source without running it, whole and the same each
time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.templates import build_once
from vmrag_link.demo import library, pages, story
from vmrag_link.demo.pages import DocEntry
from vmrag_link.demo.story import AnswerChunk, Move
from vmrag_link.errors import FileFailed

SOURCE = '''
"""Says what
  the module is for."""
import os
if os.name == "posix":
    def here(path, *, deep: bool = False) -> str:
        """Only where it makes sense."""
else:
    def here(path):
        """Elsewhere."""

def undocumented(): pass

def _private():
    """Not for others."""

async def wait(seconds=1.0, /, *rest, **named):
    """Waits."""

class Box:
    """Holds things."""
    def __init__(self, size=3, *, colour="red"):
        """Not listed by itself."""
    def open(self, key):
        """Opens it."""
    @property
    def size(self):
        """How much goes in."""
    @staticmethod
    def make(kind):
        """A box of a kind."""
    @classmethod
    def empty(cls):
        """An empty one."""
    def _lock(self):
        """Private."""
    def bare(self): pass

class Silent:
    def undocumented(self): pass

class Speaking:
    def say(self, word):
        """Says it."""
'''


def documented(source: str, name: str = "boxes") -> pages.Documentation:
    return pages.read_documentation(library.Module(name, source))


def test_module_page_has_its_docstring_and_public_definitions_in_order():
    page = documented(SOURCE)
    assert page.doc == "Says what\nthe module is for."
    assert [entry.name for entry in page.entries] == [
        *("here", "wait", "Box", "Box.open", "Box.size", "Box.make", "Box.empty", "Speaking", "Speaking.say")
    ]


def test_signatures_are_as_a_caller_writes_them():
    signatures = {entry.name: entry.signature for entry in documented(SOURCE).entries}
    assert signatures["here"] == "here(path, *, deep: bool=False) -> str"
    assert signatures["wait"] == "wait(seconds=1.0, /, *rest, **named)"
    assert signatures["Box"] == "class Box(size=3, *, colour='red')"
    assert signatures["Box.open"] == "Box.open(key)"
    assert signatures["Box.size"] == "Box.size"
    assert signatures["Box.make"] == "Box.make(kind)"
    assert signatures["Box.empty"] == "Box.empty()"
    assert signatures["Speaking"] == "class Speaking"


def test_self_with_a_default_leaves_with_its_default():
    assert documented('class A:\n    "A."\n    def b(self=None, c=1):\n        "B."').entries[1].signature == "A.b(c=1)"


def test_literal_all_limits_the_public_names():
    source = '__all__ = ["a"]\n__all__ += ("b",)\n' + "".join(f'def {name}():\n    "Doc."\n' for name in "abc")
    assert [entry.name for entry in documented(source).entries] == ["a", "b"]


def test_computed_all_makes_all_names_public():
    source = '__all__ = ["a"]\n__all__.extend(more)\n' + "".join(f'def {name}():\n    "Doc."\n' for name in "abc")
    assert [entry.name for entry in documented(source).entries] == ["a", "b", "c"]


def test_names_from_a_private_module_are_documented():
    page = documented("from _collections_abc import Sized, Mapping\n__all__ = ['Mapping']")
    assert [entry.name for entry in page.entries][:2] == ["Mapping", "Mapping.get"]


def test_names_from_a_c_module_are_documented_from_python():
    page = documented("from _io import (FileIO,\n open)\n__all__ = ['open']")
    assert [entry.name for entry in page.entries] == ["open"]
    assert page.entries[0].signature.startswith("open(file, mode='r', buffering=-1,")


def test_module_in_c_is_read_from_its_objects():
    documentation = pages.read_documentation(library.Module("math", None))
    assert "mathematical functions" in documentation.doc
    entries = {entry.name: entry for entry in documentation.entries}
    assert entries["cos"].signature == "cos(x, /)"
    assert entries["cos"].doc == "Return the cosine of x (measured in radians)."
    assert list(entries) == sorted(entries)


def test_members_of_a_class_in_c_have_their_signatures_without_self():
    entries = {entry.name: entry for entry in pages.read_documentation(library.Module("builtins", None)).entries}
    assert entries["str.removeprefix"].signature == "str.removeprefix(prefix, /)"
    assert entries["str.casefold"].signature == "str.casefold()"
    assert entries["complex.real"].signature == "complex.real"
    assert "\n" not in "".join(entry.signature for entry in entries.values())
    assert not any(name.split(".")[-1].startswith("_") for name in entries)


def test_page_has_a_title_and_a_section_for_each_definition():
    page = pages.write_page("boxes", documented(SOURCE))
    assert page.file == "boxes.md"
    assert page.text.startswith(
        "# boxes\n\nSays what\nthe module is for.\n\n## `boxes.here(path, *, deep: bool=False) -> str`\n"
    )
    assert (
        "\n\n## class `boxes.Box(size=3, *, colour='red')`\n\nHolds things.\n\n### `boxes.Box.open(key)`\n\n"
        in page.text
    )
    assert "\n\n## class `boxes.Speaking`\n\n### `boxes.Speaking.say(word)`\n\nSays it.\n" in page.text


def test_overlong_page_lists_its_omissions():
    entries = tuple(DocEntry(f"f{number}", f"f{number}()", "x" * 3000) for number in range(10))
    text = pages.write_page("long", pages.Documentation("Long.", entries)).text
    assert len(text) < pages.LONGEST + 4000
    assert text.endswith("## More in this module\n\n`f7`, `f8`, `f9`\n")


SEEDS = ("1", "2")
READ = """
import json, sys
from vmrag_link.demo import library, pages
known = set(sys.modules)
texts = {page.name: page.text for page in pages.write_pages(library.list_modules())}
new = {name for name in sys.modules.keys() - known if name[0] != "_" and "." not in name}
print(json.dumps([sorted(new - library.IMPORTABLE), texts]))
"""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the pages read by two processes, in which sets have different orders."""
    folder = build_once(tmp_path_factory, "demo-pages", _read)
    return [(folder / seed).read_text() for seed in SEEDS]


def _read(folder: Path) -> None:
    for seed in SEEDS:
        environ = os.environ | {"PYTHONHASHSEED": seed}
        result = subprocess.run([sys.executable, "-c", READ], env=environ, capture_output=True, text=True, check=True)
        assert result.stderr == ""
        (folder / seed).write_text(result.stdout)


@pytest.fixture(scope="session")
def rendered(runs: list[str]) -> dict[str, str]:
    texts: dict[str, str] = json.loads(runs[0])[1]
    return texts


def test_library_gives_about_three_hundred_pages(rendered):
    assert 200 <= len(rendered) <= 400
    assert {"json", "json.decoder", "asyncio.tasks", "os", "datetime", "decimal", "math"} <= rendered.keys()
    assert "## class `datetime.timedelta" in rendered["datetime"]
    assert "### `decimal.Decimal.quantize(" in rendered["decimal"]
    assert "## `io.open(" in rendered["io"]
    assert not [name for name in rendered if name.split(".")[0] in library.LEFT_OUT or "._" in f".{name}"]
    assert not [
        name for name, text in rendered.items() if "\0" in text or text.encode() != text.encode(errors="replace")
    ]


def test_pages_are_read_without_running_the_library_and_the_same_each_time(runs):
    assert runs[0] == runs[1]
    assert json.loads(runs[0])[0] == []


def test_story_changes_exactly_the_described_documents(rendered):
    module_pages = [pages.ModulePage(*page) for page in rendered.items()]
    story.check_pages(module_pages)
    after = {page.name: page.text for page in story.revise_pages(module_pages)}
    assert rendered.keys() - after.keys() == set(story.REMOVED)
    assert after.keys() - rendered.keys() == story.ADDED.keys()
    assert {name for name in rendered.keys() & after.keys() if rendered[name] != after[name]} == story.EDITED.keys()
    assert after["json"].startswith(f"# json\n\n{story.EDITED['json']}\n\nJSON (")


def test_python_without_its_source_cannot_tell_the_story():
    with pytest.raises(FileFailed, match=r"lacks the source of its standard library \(csv, getopt"):
        story.check_pages([])


def found(*places: str) -> list[AnswerChunk]:
    """Return chunks by place: `a1` is chunk 1 of document a with its own text, and `a1!` has
    another text.
    """
    return [AnswerChunk(place[0], int(place[1]), 1.0, place) for place in places]


def test_answers_are_compared_by_documents():
    compared = story.compare_answers(found("d0", "a1", "c0", "c1"), found("a1", "b0", "c0", "a2"))
    assert (compared.came, compared.went, compared.moved, compared.reworded) == (("d",), ("b",), (), ())
    assert not compared.equal


def test_document_has_moved_when_the_order_among_those_in_both_answers_is_another():
    compared = story.compare_answers(found("c0", "x0", "a0"), found("a0", "b0", "c0"))
    assert compared.moved == (Move("c", 3, 1), Move("a", 1, 3))


def test_comparison_reports_documents_found_by_another_text():
    assert story.compare_answers(found("a0!", "b0"), found("a0", "b0", "b1")).reworded == ("a",)
    assert story.compare_answers(found("a0", "b0"), found("a0", "b0", "b1")).equal

"""A file becomes the same document for each argument and directory; existing documents are never
duplicated or lost.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from tests.support import formerly, terminal
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project, opened
from vmrag_link import hints
from vmrag_link.engines.base import Write
from vmrag_link.errors import ContentRefused
from vmrag_link.models import At, Collection, WorkingSet
from vmrag_link.ops import adopt
from vmrag_link.workspace import Workspace

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

FRESH = ("--collection", "fresh")


def place(ws: Workspace) -> At:
    branch = ws.find_kb_branch()
    return WorkingSet(branch.name) if branch else ws.require_revision()


def ids(project: Project, collection: str = "fresh") -> dict[str, str]:
    """Texts by id."""
    documents = project.ask("list", "--collection", collection)["documents"]
    doc_ids = [document["doc_id"] for document in documents if document["uncommitted"] != "removed"]
    return {doc_id: project.ask("show", f"{collection}/{doc_id}")["content"] for doc_id in doc_ids}


def sources(project: Project, collection: str = "fresh") -> dict[str, str]:
    with opened(project) as ws:
        return dict(ws.engine.list_sources(place(ws), collection))


def base(project: Project, collection: str = "fresh") -> str:
    with opened(project) as ws:
        return next(row.import_base for row in ws.engine.list_collections(place(ws)) if row.name == collection)


def set_base(project: Project, recorded: str, *, collection: str = "fresh", **sources: str) -> None:
    """Store a collection as another program may have left it; `sources` by id, `__` for `/` and
    `_md` for `.md`.
    """
    with opened(project) as ws:
        branch = ws.find_kb_branch()
        at = place(ws)
        row = next(stored for stored in ws.engine.list_collections(at) if stored.name == collection)
        given = {name.replace("__", "/").replace("_md", ".md"): source for name, source in sources.items()}
        documents = [
            msgspec.structs.replace(document, source=given[document.doc_id], source_key=given[document.doc_id])
            for document in ws.engine.read_documents(at, collection=collection)
            if document.doc_id in given
        ]
        write = Write(put_collections=[msgspec.structs.replace(row, import_base=recorded)], put_documents=documents)
        ws.engine.write(branch.name, write, expected=branch.head)


@pytest.fixture
def pages(project: Project) -> Project:
    """Files that are in no collection."""
    for name in ("docs/guide/a.md", "docs/b.md", "notes/c.md"):
        project.write(name, f"# {name}\n")
    return project


# -- the same id -----------------------------------------------------------------------------------


def test_ids_are_relative_to_the_root_for_any_argument(pages: Project, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pages.top)
    (pages.top / "inner").symlink_to("docs/guide")
    top = str(pages.top)
    for number, words in enumerate(
        [
            ("import", "docs"),
            ("import", "docs/guide"),
            ("import", "docs/guide/a.md"),
            ("import", "."),
            ("-C", "docs", "import", "guide"),
            ("-C", "docs/guide", "import", "a.md"),
            ("-C", "docs/guide", "import", "../guide"),
            ("import", f"{top}/docs/guide/a.md"),
            ("import", str(tmp_path / "link/docs")),
            ("-C", str(tmp_path / "link/docs"), "import", "guide/a.md"),
            ("import", "inner"),
            ("import", "inner/a.md"),
            ("add", "docs/guide/a.md"),
            ("-C", "docs", "add", "guide/a.md"),
        ]
    ):
        pages.write("docs/guide/a.md", f"# {number}\n")
        pages.vmrag(*words, *FRESH)
        assert {name: text for name, text in ids(pages).items() if name.endswith("a.md")} == {
            "docs/guide/a.md": f"# {number}\n"
        }, words
    assert base(pages) == "."
    assert sources(pages)["docs/guide/a.md"] == "docs/guide/a.md"


def test_linked_work_tree_gives_the_ids_of_the_first(pages: Project, tmp_path: Path) -> None:
    pages.vmrag("import", "docs", *FRESH, "--copy", "--base", "docs")
    pages.vmrag("commit", "-m", "fresh")
    pages.git("add", "-A")
    pages.git("commit", "-q", "-m", "fresh")
    pages.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "deep/er/side"))
    linked = Project(tmp_path / "deep/er/side")
    linked.write("docs/guide/a.md", "# Changed\n")
    assert linked.ask("import", "docs/guide/a.md", *FRESH, "--copy")["changes"] == {
        "added": 0,
        "modified": 1,
        "removed": 0,
    }
    assert ids(linked)["guide/a.md"] == "# Changed\n"
    assert linked.ask("import", "docs", *FRESH, "--copy")["unchanged"] == 5


def test_link_to_file_becomes_a_separate_document_under_every_argument(pages: Project) -> None:
    (pages.top / "docs/alias.md").symlink_to("b.md")
    pages.vmrag("import", "docs", *FRESH)
    before = ids(pages)
    assert {"docs/alias.md", "docs/b.md"} <= before.keys()
    assert pages.ask("import", "docs/alias.md", *FRESH)["changes"]["added"] == 0
    assert ids(pages) == before


def test_base_is_recorded_and_need_not_be_given_again(pages: Project) -> None:
    said = pages.vmrag("import", "docs/guide", *FRESH, "--copy", "--base", "docs").out
    assert "Ids of new documents are relative to docs.\n" in said
    assert base(pages) == "docs"
    assert list(ids(pages)) == ["guide/a.md"]
    pages.vmrag("commit", "-m", "fresh")
    report = pages.ask("import", "docs", *FRESH, "--copy")
    assert (report["base"], report["unchanged"]) == ("docs", 1)
    assert {"guide/a.md", "b.md", "setup.md"} <= ids(pages).keys()
    pages.vmrag("commit", "-m", "more")
    assert pages.consistent()


def test_add_gives_the_id_that_an_import_would_give(pages: Project) -> None:
    assert pages.vmrag("add", "docs/b.md", *FRESH, "--copy").out.startswith("fresh/docs/b.md: 1 document added")
    assert base(pages) == "."
    assert pages.ask("import", "docs", *FRESH, "--copy")["changes"]["added"] == 4
    assert len(ids(pages)) == 5


# -- a base that changes ---------------------------------------------------------------------------


def test_file_that_is_a_document_stays_it_when_the_base_changes(pages: Project) -> None:
    pages.vmrag("import", "docs", *FRESH, "--copy", "--base", "docs")
    before = ids(pages)
    error = pages.vmrag("import", "notes", "docs", *FRESH, "--copy", "--json", code=2).error
    assert error["message"].startswith("notes is not below docs")
    assert hints.list_commands(error["hint"]) == ["vmrag import notes docs --collection fresh --copy --base ."]
    assert ids(pages) == before
    assert pages.vmrag(*shlex.split(hints.list_commands(error["hint"])[0])[1:]).out.startswith(
        "fresh: 1 document added, 5 unchanged\n"
    )
    assert ids(pages) == before | {"notes/c.md": "# notes/c.md\n"}
    pages.write("docs/guide/a.md", "# Changed\n")
    pages.write("docs/new.md", "# New\n")
    pages.vmrag("import", ".", *FRESH, "--copy")
    after = ids(pages)
    assert (after["guide/a.md"], after["docs/new.md"]) == ("# Changed\n", "# New\n")
    assert "docs/guide/a.md" not in after
    (pages.top / "docs/guide/a.md").unlink()
    assert pages.ask("import", "docs", *FRESH, "--copy", "--prune")["changes"] == {
        "added": 0,
        "modified": 0,
        "removed": 1,
    }
    assert "guide/a.md" not in ids(pages)


def test_moved_folder_keeps_its_documents_which_can_change_and_be_pruned(pages: Project) -> None:
    for name in ("guide/a.md", "b.md"):
        pages.write(f"manual/{name}", f"# {name}\n")
    pages.vmrag("import", "manual", *FRESH, "--base", "manual")
    (pages.top / "manual").rename(pages.top / "handbook")
    pages.vmrag("import", "handbook", *FRESH, "--base", "handbook")
    assert sources(pages) == {"guide/a.md": "handbook/guide/a.md", "b.md": "handbook/b.md"}
    assert pages.ask("import", "handbook", *FRESH)["unchanged"] == 2
    pages.write("handbook/guide/a.md", "# Changed\n")
    (pages.top / "handbook/b.md").unlink()
    pages.write("handbook/c.md", "# Another\n")
    report = pages.ask("import", "handbook", *FRESH, "--prune")
    assert report["changes"] == {"added": 1, "modified": 1, "removed": 1}
    assert ids(pages).keys() == {"guide/a.md", "c.md"}


def test_base_alone_is_a_change_that_is_committed(pages: Project) -> None:
    pages.vmrag("import", "docs", *FRESH)
    pages.vmrag("commit", "-m", "fresh")
    assert pages.ask("import", "docs", *FRESH)["branch"] is None
    assert pages.ask("import", "docs", *FRESH, "--base", "docs")["branch"] == "main"
    assert pages.ask("import", "docs", *FRESH, "--base", "docs")["branch"] is None
    pages.vmrag("commit", "-m", "base")
    assert base(pages) == "docs"
    assert pages.consistent()


@pytest.mark.parametrize("given", ["docs/b.md", "nowhere"])
def test_import_rejects_base_other_than_a_folder(pages: Project, given: str) -> None:
    error = pages.vmrag("import", "docs", *FRESH, "--base", given, "--json", code=2).error
    assert error["code"] == "INVALID_PARAMETER"


def test_base_below_the_source_is_refused_with_one_that_holds_it(pages: Project) -> None:
    error = pages.vmrag("import", "docs", *FRESH, "--base", "docs/guide", "--json", code=2).error
    assert hints.list_commands(error["hint"]) == ["vmrag import docs --collection fresh --base docs"]
    pages.vmrag(*shlex.split(hints.list_commands(error["hint"])[0])[1:])


def test_merge_uses_the_base_of_the_changed_side_or_conflicts(pages: Project) -> None:
    def record(branch: str, *words: str) -> None:
        pages.git("switch", "-q", branch)
        pages.vmrag("import", *words, *FRESH)
        pages.vmrag("commit", "-m", branch)
        pages.git("commit", "-q", "-am", branch)

    record("main", "notes")
    for branch in ("side", "other"):
        pages.git("branch", branch)
    record("side", "notes", "--base", "notes")
    record("other", "docs/guide", "--base", "docs")
    record("main", "docs/b.md")
    pages.vmrag("merge", "side")
    assert base(pages) == "notes"
    said = pages.vmrag("merge", "other", code=1)
    assert "fresh/" in said.out + said.err
    pages.vmrag("resolve", "--theirs")
    pages.vmrag("merge", "--continue")
    assert base(pages) == "docs"
    assert ids(pages).keys() == {"notes/c.md", "docs/b.md", "guide/a.md"}


# -- outside of the repository ---------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "my notes"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/far.md").write_text("Far away.")
    (folder / "near.md").write_text("Near.")
    return folder


def test_folder_outside_needs_a_base_once_on_each_machine(pages: Project, outside: Path, tmp_path: Path) -> None:
    error = pages.vmrag("import", str(outside / "sub"), *FRESH, "--json", code=2).error
    assert "is not below the root of the repository" in error["message"]
    command = hints.list_commands(error["hint"])
    assert command == [f'vmrag import "{outside}/sub" --collection fresh --base "{outside}/sub"']
    pages.vmrag("import", str(outside / "sub"), *FRESH, "--base", str(outside))
    assert ids(pages) == {"sub/far.md": "Far away."}
    assert (base(pages), sources(pages)) == ("..", {"sub/far.md": "sub/far.md"})
    for source in (outside, outside / "sub/far.md"):
        assert pages.ask("import", str(source), *FRESH)["changes"]["modified"] == 0
    assert ids(pages).keys() == {"sub/far.md", "near.md"}

    moved = outside.rename(tmp_path / "elsewhere")  # as on another person's machine
    pages.git("config", "--local", "--remove-section", "vmrag-import.fresh")
    error = pages.vmrag("import", str(moved / "sub/far.md"), *FRESH, "--json", code=2).error
    assert hints.list_commands(error["hint"]) == [f"vmrag import {moved}/sub/far.md --collection fresh --base {moved}"]
    (moved / "sub/far.md").write_text("Farther.")
    report = pages.ask("import", str(moved / "sub/far.md"), *FRESH, "--base", str(moved))
    assert report["changes"] == {"added": 0, "modified": 1, "removed": 0}
    (moved / "near.md").unlink()
    assert pages.ask("import", str(moved), *FRESH, "--prune")["changes"]["removed"] == 1
    assert ids(pages) == {"sub/far.md": "Farther."}


def test_other_outside_folder_does_not_replace_the_recorded_one(pages: Project, outside: Path, tmp_path: Path) -> None:
    pages.vmrag("import", str(outside), *FRESH, "--base", str(outside))
    before = ids(pages)
    other = tmp_path / "other"
    other.mkdir()
    (other / "near.md").write_text("Another file of that name.")
    words = ("import", str(other), *FRESH, "--base", str(other))
    for more in ((), ("--prune",)):
        error = pages.vmrag(*words, *more, "--json", code=2).error
        assert f"come from {outside}, which still exists" in error["message"]
        assert hints.list_commands(error["hint"]) == [f"vmrag import {other} --collection fresh-other --base {other}"]
        assert ids(pages) == before
    pages.vmrag(*words, "--replace", "--prune")
    assert ids(pages) == {"near.md": "Another file of that name."}
    assert pages.ask("import", str(other), *FRESH)["unchanged"] == 1


def test_command_for_a_folder_outside_works(pages: Project, outside: Path) -> None:
    error = pages.vmrag("import", str(outside / "sub"), "--collection", "handbook", "--json", code=2).error
    pages.vmrag(*shlex.split(hints.list_commands(error["hint"])[0])[1:])
    assert ids(pages, "handbook-sub") == {"far.md": "Far away."}


def test_documents_of_the_repository_and_of_another_folder_are_not_mixed(pages: Project, outside: Path) -> None:
    pages.vmrag("import", "docs", *FRESH)
    pages.vmrag("import", str(outside), "--collection", "notes", "--base", str(outside))
    for words in (
        ("import", str(outside), *FRESH, "--base", str(outside)),
        ("import", "docs", "--collection", "notes", "--base", "."),
    ):
        error = pages.vmrag(*words, "--json", code=2).error
        assert "inside" in error["message"]
        assert "outside" in error["message"]
    error = pages.vmrag("import", "docs", "--collection", "notes", "--json", code=2).error
    assert hints.list_commands(error["hint"]) == ["vmrag import docs --collection notes-docs --base ."]


def test_file_outside_is_added_under_an_id_that_is_given(pages: Project, outside: Path) -> None:
    file = str(outside / "near.md")
    error = pages.vmrag("add", file, *FRESH, "--json", code=2).error
    assert hints.list_commands(error["hint"]) == [f'vmrag add "{file}" --collection fresh --id near.md']
    pages.vmrag(*shlex.split(hints.list_commands(error["hint"])[0])[1:])
    assert ids(pages) == {"near.md": "Near."}
    assert sources(pages) == {}


# -- collections of programs that recorded no base -------------------------------------------------


def test_base_of_before_is_derived_and_recorded_with_the_next_change(pages: Project) -> None:
    pages.vmrag("import", "docs", *FRESH, "--base", "docs")
    set_base(pages, "")
    before = ids(pages)
    for source in ("docs", "docs/guide", "docs/guide/a.md"):
        assert pages.ask("import", source, *FRESH)["changes"] == {"added": 0, "modified": 0, "removed": 0}
    assert base(pages) == "", "nothing was stored"
    pages.write("docs/guide/a.md", "# Changed\n")
    pages.vmrag("import", "docs/guide/a.md", *FRESH)
    assert (base(pages), ids(pages)) == ("docs", before | {"guide/a.md": "# Changed\n"})


def test_knowledge_base_of_version_1_keeps_its_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path / "home")
    bob = formerly.unpack(tmp_path / "world").bob
    before = ids(bob, "handbook")
    assert "install.md" in before
    error = bob.vmrag("import", "docs", "--collection", "handbook", "--copy", "--json", code=2).error
    assert "though files below 'docs' have 2 of their ids" in error["message"]
    assert hints.list_commands(error["hint"]) == ["vmrag import docs --collection handbook --copy --base docs"]
    bob.write("docs/install.md", "# Changed\n")
    bob.write("docs/sub/new.md", "# New\n")
    for words in (("docs/install.md", "--base", "docs"), ("docs/sub",), ("docs/sub/new.md",)):
        bob.vmrag("import", *words, "--collection", "handbook", "--copy")
    assert ids(bob, "handbook") == before | {"install.md": "# Changed\n", "sub/new.md": "# New\n"}
    assert base(bob, "handbook") == "docs"
    bob.vmrag("commit", "-m", "of version 2")
    assert ids(bob, "handbook") == before | {"install.md": "# Changed\n", "sub/new.md": "# New\n"}


def test_documents_that_disagree_make_the_first_import_ask(pages: Project) -> None:
    pages.vmrag("import", "docs", *FRESH, "--copy", "--base", "docs")
    pages.vmrag("import", "notes", *FRESH, "--copy", "--base", "notes")
    set_base(pages, "")
    before = ids(pages)
    error = pages.vmrag("import", "docs", *FRESH, "--copy", "--json", code=2).error
    assert "'docs' (5 documents), 'notes' (1 document)" in error["message"]
    assert error["details"]["bases"] == [{"base": "docs", "documents": 5}, {"base": "notes", "documents": 1}]
    assert hints.list_commands(error["hint"]) == ["vmrag import docs --collection fresh --copy --base docs"]
    error = pages.vmrag("import", "docs", "notes", *FRESH, "--copy", "--json", code=2).error
    assert hints.list_commands(error["hint"]) == ["vmrag import docs notes --collection fresh --copy --base ."]
    pages.write("notes/c.md", "# Changed\n")
    pages.vmrag(*shlex.split(hints.list_commands(error["hint"])[0])[1:])
    assert ids(pages) == before | {"c.md": "# Changed\n"}
    assert base(pages) == "."


def test_first_import_asks_for_base_if_documents_have_no_file(pages: Project) -> None:
    pages.put("by hand", "text", collection="fresh")
    assert base(pages) == ".", "a new collection counts from the root"
    set_base(pages, "")
    error = pages.vmrag("import", "docs/b.md", *FRESH, "--json", code=2).error
    assert "none of its 1 document came from a file" in error["message"]
    assert hints.list_commands(error["hint"]) == ["vmrag import docs/b.md --collection fresh --base ."]
    pages.drop("by hand", collection="fresh")
    pages.vmrag("import", "docs/b.md", *FRESH)
    assert list(ids(pages)) == ["docs/b.md"]


def test_sources_of_before_outside_of_the_repository_keep_their_ids(pages: Project, outside: Path) -> None:
    pages.vmrag("import", str(outside), *FRESH, "--base", str(outside))
    pages.git("config", "--local", "--remove-section", "vmrag-import.fresh")
    set_base(pages, "", sub__far_md=f"{outside}/sub/far.md", near_md="/home/ada/notes/near.md")
    error = pages.vmrag("import", str(outside), *FRESH, "--json", code=2).error
    assert "and others" not in error["message"]
    assert f"'{outside}' (1 document)" in error["message"]
    (outside / "near.md").write_text("Nearer.")
    report = pages.ask(*shlex.split(hints.list_commands(error["hint"])[0])[1:])
    assert report["changes"] == {"added": 0, "modified": 1, "removed": 0}
    assert sources(pages)["near.md"] == "near.md"


def test_file_stored_through_a_link_is_not_stored_again(pages: Project) -> None:
    (pages.top / "inner").symlink_to("docs/guide")
    pages.vmrag("import", "docs/guide", *FRESH, "--base", "docs/guide")
    set_base(pages, "", a_md="inner/a.md")
    pages.write("docs/guide/a.md", "# Changed\n")
    error = pages.vmrag("import", "docs", *FRESH, "--json", code=2).error
    pages.vmrag(*shlex.split(hints.list_commands(error["hint"])[0])[1:])
    assert ids(pages)["a.md"] == "# Changed\n"
    assert "docs/guide/a.md" not in ids(pages)


# -- recorded values that are untrusted ------------------------------------------------------------


@pytest.mark.parametrize("recorded", ["/", "/etc", "../other", "docs/../..", "docs/", "./docs", "do\ncs", "d" * 300])
@pytest.mark.sample(1)
def test_recorded_base_that_cannot_be_is_never_used(pages: Project, recorded: str) -> None:
    pages.vmrag("import", "docs", *FRESH)
    set_base(pages, recorded)
    before = ids(pages)
    for words in (("import", "docs"), ("import", "."), ("import", "docs/b.md", "--prune"), ("add", "docs/b.md")):
        error = pages.vmrag(*words, *FRESH, "--json", code=2).error
        assert error["message"].startswith(f"the import base {recorded!r}"[:40])
    assert ids(pages) == before
    pages.vmrag("import", "docs", *FRESH, "--base", ".")
    assert (base(pages), ids(pages)) == (".", before)
    with pytest.raises(ContentRefused):
        adopt.check_row(Collection("fresh", embedding_function="hash", import_base=recorded))


@pytest.mark.parametrize("name", ["docs/" + "a" * 300 + ".md", "docs/" + "a/" * 3000 + "b.md"])
def test_invalid_source_stops_no_import_and_removes_nothing(pages: Project, name: str) -> None:
    pages.vmrag("import", "docs", *FRESH)
    set_base(pages, ".", docs__b_md=name)
    report = pages.ask("import", "docs", *FRESH, "--prune")
    assert report["changes"]["removed"] == 0
    assert "docs/b.md" in ids(pages)
    set_base(pages, "..", docs__b_md=name)
    error = pages.vmrag("import", "docs", *FRESH, "--json", code=2).error
    assert error["code"] == "INVALID_PARAMETER"


def test_recorded_outside_base_causes_no_reads(pages: Project, outside: Path) -> None:
    pages.vmrag("import", "docs/b.md", *FRESH)
    set_base(pages, "..", docs__b_md=f"{outside}/near.md")
    error = pages.vmrag("import", "docs", *FRESH, "--prune", "--json", code=2).error
    assert error["code"] == "INVALID_PARAMETER"
    set_base(pages, ".", docs__b_md="../../../etc/passwd")
    pages.vmrag("import", "notes", *FRESH, "--prune")
    assert "docs/b.md" in ids(pages)


def test_new_repository_without_a_knowledge_base_of_before(tmp_path: Path, project: Project) -> None:
    """The hint of the error is typed from outside of the repository, too."""
    mine = new_project(tmp_path / "mine")
    mine.vmrag("init", "--knowledge-base", "--no-sources")
    mine.write("docs/a.md", "# A\n")
    mine.write("notes/b.md", "# B\n")
    mine.vmrag("import", "docs", *FRESH, "--base", "docs")
    error = project.vmrag("-C", str(mine.top), "import", "notes", *FRESH, "--json", code=2).error
    assert hints.list_commands(error["hint"]) == [
        f"vmrag -C {mine.top} import {mine.top}/notes --collection fresh --base {mine.top}"
    ]
    project.vmrag(*shlex.split(hints.list_commands(error["hint"])[0])[1:])
    assert ids(mine) == {"a.md": "# A\n", "notes/b.md": "# B\n"}

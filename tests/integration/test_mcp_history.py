"""`dolt_commits`, `dolt_show`, `dolt_find`, `get_diff`: what was, and what differs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import terminal
from tests.support.engines import AUTHOR, document
from tests.support.mcp import Tools, warned
from tests.support.terminal import Project
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.models import content_hash

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top)


def subjects(result: dict[str, Any]) -> list[str]:
    return [commit["message"] for commit in result["commits"]]


# -- dolt_commits ----------------------------------------------------------------------------------


def test_commits_are_listed_newest_first_with_their_changes(project: Project, tools: Tools) -> None:
    result = tools("dolt_commits")
    assert result["branch"] == "main"
    assert subjects(result) == ["faq", "first", "Create the knowledge base"]
    newest, first, root = result["commits"]
    assert newest["hash"] == project.pinned
    assert newest["short_hash"] == project.pinned[:7]
    assert newest["parent_hash"] == first["hash"]
    assert newest["stats"] == {"documents_added": 1, "documents_modified": 0, "documents_deleted": 0}
    assert first["stats"]["documents_added"] == 3
    assert root["parent_hash"] is None  # the engine's initial commit is hidden
    assert root["stats"] == {"documents_added": 0, "documents_modified": 0, "documents_deleted": 0}
    assert newest["timestamp"].endswith("Z")
    assert (result["total_commits"], result["has_more"]) == (3, False)


def test_pages_of_commits_fit_together(tools: Tools) -> None:
    whole = subjects(tools("dolt_commits"))
    pages = [tools("dolt_commits", limit=1, offset=number) for number in range(4)]
    assert [subjects(page) for page in pages] == [[whole[0]], [whole[1]], [whole[2]], []]
    assert [page["has_more"] for page in pages] == [True, True, False, False]
    assert {page["total_commits"] for page in pages} == {3}


def test_commits_of_another_branch_or_of_any_reference(project: Project, tools: Tools) -> None:
    assert subjects(tools("dolt_commits", branch="feature"))[0] == "uv"
    assert subjects(tools("dolt_commits", branch="HEAD~1"))[0] == "first"
    assert subjects(tools("dolt_commits", branch=project.pinned[:10]))[0] == "faq"
    assert subjects(tools("dolt_commits", branch="first"))[0] == "first"  # a git tag: the revision that it pins
    for absent in ("absent", "0" * 40, "HEAD~7"):
        error = tools.error("BRANCH_NOT_FOUND", "dolt_commits", branch=absent)
        assert error["details"]["branch"] == absent


def record(project: Project, *days: int) -> None:
    """Commits at noon of these days of January 2026, past the tools."""
    engine = DoltliteEngine.open(project.shared / "kb")
    for day in days:
        head = engine.find_branch("feature").head
        engine.write("feature", Write(put_documents=[document("d", str(day), collection="handbook")]), expected=head)
        engine.commit("feature", message=f"day {day}", author=AUTHOR, date=f"2026-01-{day:02}T12:00:00Z", expected=head)
    engine.close()


def test_commits_between_two_times(project: Project, tools: Tools) -> None:
    record(project, 10, 11, 12)

    def total(**bounds: str) -> int:
        return tools("dolt_commits", branch="feature", limit=1, **{"until": "2026-02-01", **bounds})["total_commits"]

    assert total() == 3
    assert total(since="2026-01-11") == 2
    assert total(until="2026-01-11") == 2  # the whole day
    assert total(since="2026-01-11T12:00:00Z", until="2026-01-11T12:00:00+00:00") == 1
    assert total(since="2026-01-11T14:30:00+02:00") == 1
    assert total(since="2026-01-11T12:00:00.5") == 1
    assert total(since="2026-01-11 12:00") == 2
    assert total(since="2026-01-12", until="2026-01-10") == 0


def test_dolt_commits_rejects_invalid_times(tools: Tools) -> None:
    for text in ("yesterday", "2026-13-01", "12:00", "2026-01-01T25:00"):
        error = tools.error("INVALID_PARAMETER", "dolt_commits", since=text)
        assert (error["details"]["parameter"], error["details"]["value"]) == ("since", text)
    assert tools.error("INVALID_PARAMETER", "dolt_commits", until="12:00")["details"]["parameter"] == "until"


def test_merge_commit_counts_against_its_first_parent(project: Project, tools: Tools) -> None:
    project.vmrag("merge", "feature")
    newest = tools("dolt_commits", limit=1)["commits"][0]
    assert newest["stats"] == {"documents_added": 1, "documents_modified": 1, "documents_deleted": 1}


# -- dolt_show -------------------------------------------------------------------------------------


def test_commit_is_shown_with_its_documents(project: Project, tools: Tools) -> None:
    result = tools("dolt_show", commit="feature")
    assert result["commit"]["message"] == "uv"
    assert result["changes"]["summary"] == {"added": 1, "modified": 1, "deleted": 1, "total": 3}
    assert [(document["doc_id"], document["change_type"]) for document in result["changes"]["documents"]] == [
        ("deep/tls.txt", "deleted"),
        ("rest.md", "modified"),
        ("uv.md", "added"),
    ]
    assert {"collection", "doc_id", "change_type", "title"} == result["changes"]["documents"][0].keys()
    assert "diff_truncated" not in result["changes"]
    assert result["branches"] == ["feature"]
    assert tools("dolt_show", commit="HEAD~1")["branches"] == ["main", "feature"]


def test_texts_of_a_commit(project: Project, tools: Tools) -> None:
    changes = tools("dolt_show", commit="feature", include_diff=True)["changes"]
    gone, edited, new = (document["diff"] for document in changes["documents"])
    assert gone.keys() == {"content_before", "metadata_changes"}
    assert gone["content_before"].startswith("Certificates")
    assert (edited["content_before"], edited["content_after"]) == (
        "# Rest\n\nTake a rest, and sleep well.\n",
        "# Rest\n\nNever rest.\n",
    )
    assert new.keys() == {"content_after", "metadata_changes"}
    assert changes["diff_truncated"] is False
    changes = tools("dolt_show", commit="feature", include_diff=True, diff_limit=2)["changes"]
    assert ["diff" in document for document in changes["documents"]] == [True, True, False]
    assert changes["diff_truncated"] is True


def test_long_text_is_cut(project: Project, tools: Tools) -> None:
    project.record("long", long="x" * 2001, short="y" * 2000)
    rows = tools("dolt_show", commit="HEAD", include_diff=True)["changes"]["documents"]
    long, short = rows
    assert (len(long["diff"]["content_after"]), long["truncated"]) == (2000, True)
    assert len(short["diff"]["content_after"]) == 2000
    assert "truncated" not in short


def test_metadata_differs_key_by_key(project: Project, tools: Tools) -> None:
    def put(metadata: str) -> None:
        project.vmrag("add", "-", "--collection", "handbook", "--id", "m", "--metadata", metadata, stdin="text")

    put('{"same": 1, "other": "a", "gone": null}')
    project.record("one")
    put('{"same": 1, "other": "b", "new": [1]}')
    project.record("two")
    (row,) = tools("dolt_show", commit="HEAD", include_diff=True)["changes"]["documents"]
    assert row["diff"]["metadata_changes"] == {
        "gone": {"before": None, "after": None},
        "new": {"before": None, "after": [1]},
        "other": {"before": "a", "after": "b"},
    }


def test_first_commit_has_no_predecessor(tools: Tools) -> None:
    result = tools("dolt_show", commit="HEAD~2", include_diff=True)
    assert result["commit"]["parent_hash"] is None
    assert result["changes"]["summary"]["total"] == 0
    for absent in ("HEAD~3", "0" * 40, "WORKING"):
        tools.error("COMMIT_NOT_FOUND", "dolt_show", commit=absent)


# -- get_diff --------------------------------------------------------------------------------------


def test_clean_workspace_differs_in_nothing(project: Project, tools: Tools) -> None:
    result = tools("get_diff")
    assert (result["from_ref"], result["to_ref"]) == ("HEAD", "WORKING")
    assert (result["from_commit"], result["to_commit"]) == (project.pinned, None)
    assert result["summary"] == {"added": 0, "modified": 0, "deleted": 0, "total": 0}
    assert result["documents"] == []
    assert "collections" not in result


def test_uncommitted_documents_match_the_counts_of_status(project: Project, tools: Tools) -> None:
    project.put("rest.md", "Never.")
    project.put("new.md", "New.")
    project.drop("setup.md")
    result = tools("get_diff", include_content=True)
    assert result["summary"] == tools("dolt_status")["local_changes"]["summary"]
    assert result["summary"] == {"added": 1, "modified": 1, "deleted": 1, "total": 3}
    assert [(document["table"], document["doc_id"], document["change_type"]) for document in result["documents"]] == [
        ("documents", "new.md", "added"),
        ("documents", "rest.md", "modified"),
        ("documents", "setup.md", "deleted"),
    ]
    assert result["documents"][0]["diff"] == {"metadata_changes": {}, "content_after": "New."}
    back = tools("get_diff", from_ref="WORKING", to_ref="HEAD")
    assert back["from_commit"] is None
    assert back["summary"] == {"added": 1, "modified": 1, "deleted": 1, "total": 3}


def test_difference_in_pages(project: Project, tools: Tools) -> None:
    def page(offset: int) -> dict[str, Any]:
        return tools("get_diff", from_ref="main", to_ref="feature", limit=3, offset=offset)

    ids = [document["doc_id"] for offset in (0, 3) for document in page(offset)["documents"]]
    assert ids == ["deep/tls.txt", "faq.md", "rest.md", "uv.md"]
    assert [page(offset)["has_more"] for offset in (0, 3, 9)] == [True, False, False]
    assert page(3)["summary"]["total"] == 4
    assert "IGNORED_SETTING" in warned(tools("get_diff", limit=1001))


def test_page_of_long_texts_ends_early_with_has_more(project: Project, tools: Tools) -> None:
    project.put("n00", "x" * 2000)
    engine = DoltliteEngine.open(project.shared / "kb")
    rows = [document(f"n{number:02}", "x" * 2000, collection="handbook") for number in range(1, 45)]
    engine.write("main", Write(put_documents=rows), expected=project.pinned)
    engine.close()
    result = tools("get_diff", include_content=True)
    shown = len(result["documents"])
    assert 10 <= shown < 15  # the page holds 30,000 characters, with the keys around the texts
    assert result["has_more"] is True
    rest = tools("get_diff", include_content=True, offset=45 - shown)
    assert (len(rest["documents"]), rest["has_more"]) == (shown, False)


def test_table_or_a_collection_alone(project: Project, tools: Tools) -> None:
    project.put("x", "X", collection="other")
    project.put("y", "Y")
    assert [document["doc_id"] for document in tools("get_diff", table="other")["documents"]] == ["x"]
    assert tools("get_diff", table="other")["collections"] == [{"name": "other", "change_type": "added"}]
    assert tools("get_diff", table="documents")["summary"]["total"] == 2
    assert tools("get_diff", table="issue_logs")["summary"]["total"] == 0
    assert tools.error("TABLE_NOT_FOUND", "get_diff", table="absent")["details"]["table"] == "absent"
    tools.error("COMMIT_NOT_FOUND", "get_diff", to_ref="0" * 40)


def rename(project: Project, old: str, new: str, *, text: str = "") -> None:
    """Uncommitted; the first document gets another text."""
    engine = DoltliteEngine.open(project.shared / "kb")
    head = engine.find_branch("main").head
    row = next(collection for collection in engine.list_collections(head) if collection.name == old)
    moved = [replace(document, collection=new) for document in engine.read_documents(head, collection=old)]
    if text:
        moved[0] = replace(moved[0], content=text, content_hash=content_hash(text))
    rows = Write(put_collections=[replace(row, name=new)], remove_collections=[old], put_documents=moved)
    engine.write("main", rows, expected=head)
    engine.close()


def test_renamed_collection_is_one_change(project: Project, tools: Tools) -> None:
    rename(project, "handbook", "manual")
    result = tools("get_diff")
    assert result["collections"] == [{"name": "manual", "change_type": "renamed", "old_name": "handbook"}]
    assert (result["documents"], result["summary"]["total"]) == ([], 0)
    local = tools("dolt_status")["local_changes"]
    assert (local["has_changes"], local["summary"]["total"]) == (True, 0)
    assert tools("get_diff", table="handbook")["collections"] == result["collections"]


def test_collection_with_other_documents_is_another_one(project: Project, tools: Tools) -> None:
    rename(project, "handbook", "manual", text="else")
    result = tools("get_diff")
    assert {(collection["name"], collection["change_type"]) for collection in result["collections"]} == {
        ("handbook", "deleted"),
        ("manual", "added"),
    }
    assert result["summary"] == {"added": 4, "modified": 0, "deleted": 4, "total": 8}


# -- dolt_find -------------------------------------------------------------------------------------


def test_commit_is_found_by_its_hash_or_its_message(project: Project, tools: Tools) -> None:
    result = tools("dolt_find", query="FAQ")
    assert result["total_found"] == 1
    (row,) = result["results"]
    assert row.keys() == {"hash", "short_hash", "message", "author", "timestamp", "branch", "match_type"}
    assert (row["hash"], row["branch"], row["match_type"]) == (project.pinned, "main", "message")
    (row,) = tools("dolt_find", query=project.pinned[:9].upper())["results"]
    assert (row["hash"], row["match_type"]) == (project.pinned, "hash")
    assert tools("dolt_find", query=project.pinned[:9], search_type="message")["total_found"] == 0
    assert tools("dolt_find", query="faq", search_type="hash")["total_found"] == 0


def test_commit_belongs_to_the_current_branch_if_that_holds_it(project: Project, tools: Tools) -> None:
    assert [result["branch"] for result in tools("dolt_find", query="first")["results"]] == ["main"]
    assert [result["branch"] for result in tools("dolt_find", query="uv")["results"]] == ["feature"]
    assert [result["branch"] for result in tools("dolt_find", query="first", branch="feature")["results"]] == [
        "feature"
    ]
    assert tools("dolt_find", query="uv", branch="main")["results"] == []
    tools.error("BRANCH_NOT_FOUND", "dolt_find", query="uv", branch="absent")
    project.git("switch", "-q", "feature")
    assert [result["branch"] for result in tools("dolt_find", query="first")["results"]] == ["feature"]


def test_query_characters_have_no_special_meaning(project: Project, tools: Tools) -> None:
    for query in ("%", "_", "f_q", "%q", "'", "\\", "*"):
        assert tools("dolt_find", query=query)["results"] == []
    project.record("100 % of_it", more="more")
    newest = tools("dolt_find", query="f", limit=1)
    assert ([result["message"] for result in newest["results"]], newest["total_found"] > 1) == (["100 % of_it"], True)
    assert tools("dolt_find", query="0 % o")["total_found"] == 1
    assert tools("dolt_find", query="f_i")["total_found"] == 1


def test_commit_that_matches_both_ways_is_listed_once_as_its_hash(project: Project, tools: Tools) -> None:
    project.record("0123456789abcdef", more="more")
    rows = tools("dolt_find", query=project.pinned[0], limit=100)["results"]
    assert [row["match_type"] for row in rows if row["hash"] == project.pinned] == ["hash"]


def test_reading_works_while_the_pin_is_in_conflict(project: Project, tools: Tools) -> None:
    tools("dolt_commits")
    (project.top / ".dolt-version").write_text("<<<<<<< ours\n")
    for name, arguments in {
        "dolt_commits": {},
        "dolt_show": {"commit": "HEAD"},
        "dolt_find": {"query": "first"},
        "get_diff": {},
        "dolt_branches": {},
        "dolt_status": {},
    }.items():
        result = tools(name, **arguments)
        assert result["kb"]["in_sync"] is False
        assert "NOT_IN_SYNC" in warned(result)

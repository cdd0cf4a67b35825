"""What programs rely on: every key of every answer with its type, the errors, and the exit codes.

The tables say what must be there; an answer may hold more.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support import dolt, terminal
from tests.support.repos import isolate
from tests.support.terminal import new_project

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

HASH = re.compile(r"[0-9a-f]{40}")
PLACE = re.compile(r"[0-9a-f]{40}|WORKING")
SHA256 = re.compile(r"[0-9a-f]{64}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

CHANGES = {"added": int, "modified": int, "removed": int}
PIN = {"dolt_remote": str, "dolt_branch": str, "dolt_commit": HASH, "linked_at": TIME}
CHROMA = {
    "state": re.compile("ready|following|off|failed"),
    "revision": (HASH, None),
    "path": (str, None),
    "done": int,
    "total": int,
    "error": str,
    "hint": str,
}
STATE = re.compile("in_sync|merging|drift|missing|no_pin|malformed|dropped|not_initialized|files")
KIND = re.compile("added|modified|removed")
CHANGED = {
    "documents": [{"collection": str, "doc_id": str, "title": str, "kind": KIND}],
    "collections": [{"name": str, "kind": KIND}],
    "copies": [{"collection": str, "doc_id": str, "path": str}],
    "unpushed": ({"remote": str, "revisions": (int, None), "problem": str}, None),
}
STATUS = {
    "state": STATE,
    "in_sync": bool,
    "git": {"head": (HASH, None), "branch": (str, None)},
    "pin": (PIN, None),
    "kb": {
        "engine": (str, None),
        "revision": (HASH, None),
        "branch": (str, None),
        "detached": bool,
        "dirty": bool,
        "documents": int,
    },
    "index": {
        "revision": (HASH, None),
        "format": (str, None),
        "documents": int,
        "chunks": int,
        "path": (str, None),
        "working_copy": (str, None),
    },
    "reasons": [str],
    "hint": str,
    "chroma": (CHROMA, None),
    "changes": (CHANGED, None),
}
SYNC = {
    "from": (HASH, None),
    "to": HASH,
    "plan": CHANGES,
    "chunks": {"added": int, "removed": int, "embedded": int, "cached": int},
    "snapshot": {"path": str, "how": re.compile("reused|delta|fresh")},
    "seconds": {str: float},
    "chroma": (CHROMA, None),
}
LIBRARY_IMPORT = {
    "library": str,
    "taken": [
        {
            "status": re.compile("indexed|replaced|skipped"),
            "doc_id": str,
            "source": str,
            "title": str,
        }
    ],
    "refused": [{"source": str, "code": str, "message": str, "hint": str}],
    "skipped": [{"name": str, "reason": str}],
    "branch": (str, None),
    "pending": str,
    "hint": str,
}
NAMED = {"collection": str, "doc_id": str}
REMOVE = {
    "removed": [NAMED],
    "collections": [str],
    "unsaved": [NAMED],
    "kept": str,
    "branch": (str, None),
    "pending": str,
}
RESTORE = {
    "source": HASH,
    "documents": [NAMED | {"kind": KIND}],
    "collections": [{"name": str, "kind": KIND}],
    "unsaved": [NAMED],
    "kept": str,
    "branch": (str, None),
    "pending": str,
}
QUERY = {
    "results": [
        {
            "rank": int,
            "collection": str,
            "doc_id": str,
            "chunk": int,
            "score": float,
            "text": str,
            "metadata": dict,
            "matches": [[int]],
            "best": int,
            "header_path": str,
            "line": (int, None),
            "file": (str, None),
            "file_line": (int, None),
            "excerpt": ({"first": int, "lines": [str]}, None),
            "signature": str,
        }
    ],
    "notes": [str],
    "copies": [{"collection": str, "doc_id": str, "path": str}],
    "kb": {
        "worktree": str,
        "git_head": (HASH, None),
        "branch": (str, None),
        "commit": HASH,
        "dirty": bool,
        "in_sync": bool,
    },
}
PACKED = {
    "passages": [
        {
            "rank": int,
            "collection": str,
            "doc_id": str,
            "path": (str, None),
            "lines": ([int], None),
            "symbol": str,
            "signature": str,
            "heading": str,
            "commit": (HASH, None),
            "revision": (HASH, None),
            "uncommitted": str,
            "cut": str,
            "tokens": int,
            "text": str,
        }
    ],
    "budget": int,
    "tokens": int,
    "left_out": int,
    **{key: QUERY[key] for key in ("notes", "copies", "kb")},
}
GREP = {
    "documents": [
        {
            "collection": str,
            "doc_id": str,
            "title": str,
            "count": int,
            "lines": [{"number": int, "text": str, "matched": bool, "matches": [[int]]}],
        }
    ],
    "kb": QUERY["kb"],
    "notes": [str],
    "skipped": [{"path": str, "reason": str}],
}
EXPORT = {
    "folder": str,
    "written": int,
    "unchanged": int,
    "left_out": [{"collection": str, "doc_id": str, "reason": str}],
    "kb": QUERY["kb"],
    "notes": [str],
}
RANKING = {"version": int, "vector_weight": float, "document_weight": float, "per_document": int}
RANKED = {"document": str, "chunk": int, "score": float}
CHECK = {
    "file": str,
    "queries": [
        {
            "query": str,
            "name": str,
            "line": int,
            "expect": [str],
            "first": (str, None),
            "ranking": ([RANKED], None),
            "found": [RANKED],
            "misses": [
                {
                    "kind": re.compile("expect|first|order|ranking|asked"),
                    "message": str,
                    "document": (str, None),
                    "wanted": str,
                    "got": str,
                }
            ],
            "order": ([str], None),
            "recorded": (re.compile("new|changed"), None),
        }
    ],
    "missed": int,
    "recorded": int,
    "outdated": str,
    "ranking": {"mode": str, "k": int, **RANKING},
    "kb": QUERY["kb"],
    "metrics": ({"judged": int, "recall": float, "mrr": float}, None),
    "thresholds": [{"name": re.compile("mrr|recall|regressions"), "limit": float, "found": float}],
}
DIFF_QUERIES = {
    "file": str,
    "old": PLACE,
    "new": PLACE,
    "queries": [
        {
            "query": str,
            "line": int,
            "change": re.compile("none|scores|ranking"),
            "before": [RANKED],
            "after": [RANKED],
            "problem_before": str,
            "problem_after": str,
        }
    ],
}
ASK = {
    "answer": str,
    "synthesis": re.compile("llm|extractive|none"),
    "model": (str, None),
    "sources": [
        {
            "citation": int,
            "path": str,
            "title": str,
            "score": float,
            "included_as": re.compile("match|critical"),
            "excerpt": str,
        }
    ],
    "kb": QUERY["kb"],
    "notes": [str],
}
FINGERPRINT = {
    "fingerprint": SHA256,
    "revision": HASH,
    "ranking": RANKING,
    "dirty": bool,
}
DOCUMENT = {"collection": str, "doc_id": str, "title": str, "content_hash": SHA256, "metadata": dict}
LIST = {
    "documents": [DOCUMENT | {"chunks": (int, None), "uncommitted": (re.compile("added|modified|removed"), None)}],
}
SHOW = DOCUMENT | {"content": str, "revision": HASH}
REVISION = {
    "revision": HASH,
    "parents": [HASH],
    "message": str,
    "author": str,
    "date": TIME,
    "commits": [{"commit": HASH, "subject": str}],
    "refs": [str],
}
WORDS = {"inserted": int, "deleted": int, "hidden": int}
FIELD = {"name": str, "before": str, "after": str}
KIND = re.compile("added|modified|removed")
DIFF = {
    "old": PLACE,
    "new": PLACE,
    "changes": CHANGES,
    "words": (WORDS, None),
    "documents": [
        {
            "kind": KIND,
            "collection": str,
            "doc_id": str,
            "title": str,
            "words": (WORDS, None),
            "fields": [FIELD],
            "text": [{"op": re.compile("equal|delete|insert|omitted"), "text": str}],
            "old_name": str,
        }
    ],
    "collections": [{"kind": KIND, "name": str, "fields": [FIELD]}],
}
SHOW_REVISION = REVISION | {"changes": CHANGES, "diff": DIFF}
LOG = {"revisions": [REVISION | {"changes": CHANGES, "diff": (DIFF, None)}]}
END = {"name": str, "commit": (HASH, None), "revision": (REVISION, None)}
BETWEEN = {"shown": [REVISION], "total": int}
GROWTH = {"before": int, "after": int}
PIECES = {"pieces": [{"op": re.compile("equal|delete|insert|omitted"), "text": str}], "left_out": int}
FIELD_CHANGE = {"name": str, "change": PIECES}
DOCUMENT_LINE = {
    "number": int,
    "kind": re.compile("added|changed|moved|removed"),
    "collection": str,
    "doc_id": str,
    "title": str,
    "old_collection": str,
    "old_doc_id": str,
    "words": WORDS,
    "characters": GROWTH,
}
RANKED = {"document": str, "chunk": int, "score": float}
TOLD = {"document": str, "text": str}
ENDS_OF_ANSWER = {"before": (TOLD, None), "after": (TOLD, None)}
LISTED_QUERY = {"query": str, "line": int, "missed": [str]}
REPORT = {
    "summary": {
        "base": END,
        "start": END,
        "head": END,
        "gained": BETWEEN,
        "lost": BETWEEN,
        "missing": int,
        "counts": {"added": int, "changed": int, "moved": int, "removed": int},
        "words": WORDS,
        "size": {"documents": GROWTH, "characters": GROWTH, "chunks": (GROWTH, None)},
        "collections": [{"kind": KIND, "name": str, "fields": [FIELD_CHANGE]}],
        "documents": [DOCUMENT_LINE],
        "citing": [{"path": str, "places": [str]}],
        "uncited": str,
        "queries": {
            "file": str,
            "total": int,
            "changed": [
                {
                    "query": str,
                    "line": int,
                    "change": re.compile("none|scores|ranking"),
                    "before": [RANKED],
                    "after": [RANKED],
                    "problem_before": str,
                    "problem_after": str,
                    "missed_before": [str],
                    "missed_after": [str],
                }
            ],
            "answers": [{"query": str, "line": int, "place": int, "missing": [str], "below": bool} | ENDS_OF_ANSWER],
            "added": [LISTED_QUERY],
            "removed": [LISTED_QUERY],
            "titles": {str: str},
            "not_compared": str,
            "hint": str,
        },
        "verified": bool,
        "findings": [
            {"code": str, "level": str, "commit": HASH, "message": str, "hint": str, "mended_by": (HASH, None)}
        ],
    },
    "documents": [DOCUMENT_LINE | {"fields": [FIELD_CHANGE], "text": PIECES}],
}
BLAME = {
    "collection": str,
    "doc_id": str,
    "revision": HASH,
    "lines": [{"text": str, "revision": PLACE, "name": str, "number": int}],
    "revisions": [REVISION],
}
EDIT = {"collection": str, "doc_id": str, "changed": bool, "branch": (str, None), "pending": str}
COMMIT = {"revision": HASH, "parent": HASH, "branch": str, "changes": CHANGES, "pin": (PIN, None), "staged": bool}
MERGE = {
    "result": re.compile("already_up_to_date|fast_forward|merge|uncommitted|conflict|aborted"),
    "source": str,
    "base": HASH,
    "ours": HASH,
    "theirs": HASH,
    "revision": (HASH, None),
    "changes": CHANGES,
    "conflicts": [str],
    "pin": (PIN, None),
    "staged": bool,
    "notes": [str],
    "code_behind": bool,
}
ROW = (DOCUMENT | {"content": str, "metadata": str}, {"name": str, "chunking": dict}, None)
"""As it is stored: what is in conflict is a cell's text."""
LOSSES = {
    "revision": HASH,
    "instead": HASH,
    "lost": [
        {
            "revision": HASH,
            "pinned_by": [{"commit": HASH, "author": str, "date": str, "subject": str}],
            "linked": [HASH],
        }
    ],
    "asked": [str],
}
RESOLVE = {
    "kind": re.compile("git|merge|aside"),
    "source": str,
    "base": HASH,
    "ours": HASH,
    "theirs": HASH,
    "conflicts": [
        {
            "id": str,
            "open": [str],
            "conflict": {
                "collection": str,
                "doc_id": str,
                "fields": [str],
                "base": ROW,
                "ours": ROW,
                "theirs": ROW,
                "merged": ROW,
                "documents": int,
            },
        }
    ],
    "decided": int,
    "pin": (PIN, None),
    "staged": bool,
    "next": str,
    "losses": (LOSSES, None),
}
OFFER = {"revision": HASH, "documents": int, "commit": re.compile(f"({HASH.pattern})?"), "branches": [str]}
PINNED = {
    "pin": PIN,
    "changed": bool,
    "staged": bool,
    "pending": str,
    "first": (
        {
            "taken": OFFER,
            "instead": [OFFER],
            "empty": HASH,
            "attributes": {"written": bool, "edited": bool, "staged": bool},
        },
        None,
    ),
    "losses": (LOSSES, None),
}
INIT_FILES = {
    "sources": [{"collection": str, "kind": str, "paths": [str], "exclude": [str], "files": dict}],
    "uncovered": dict,
    "untracked": int,
    "written": bool,
    "staged": bool,
    "ignored": bool,
    "busy": bool,
    "requires": str,
}
INIT = {
    "files": INIT_FILES,
    "started": bool,
    "pinned": bool,
    "cloned": (str, None),
    "revision": HASH,
    "pin": PIN,
    "written": [str],
    "unstaged": [str],
    "edited": bool,
    "staged": bool,
    "others": [OFFER],
}
IMPORT = {
    "collection": str,
    "created": bool,
    "changes": CHANGES,
    "unchanged": int,
    "skipped": [{"name": str, "reason": str}],
    "branch": (str, None),
    "pending": str,
    "base": str,
    "renamed": [{"doc_id": str, "before": str, "now": str}],
    "gone": [str],
    "left_out": [str],
    "ignored": [str],
    "hint": str,
}
BRANCH = {"branches": [{"name": str, "revision": HASH, "dirty": bool, "code_branch": (str, None), "current": bool}]}
SWITCH = {"code_branch": str, "branch": (str, None), "pin": PIN, "staged": bool, "notes": [str]}
CHANGED_FILES = {"written": [str], "unstaged": [str], "left": [str]}
ENGINE = re.compile("doltlite|dolt")
MIGRATE = {
    "applied": bool,
    "origin": ENGINE,
    "to": ENGINE,
    "revisions": int,
    "made": int,
    "branches": [str],
    "anchors": int,
    "bytes": int,
    "seconds": (float, None),
    "changed": CHANGED_FILES,
    "remote": str,
    "absent": int,
}
UNDO = {"engine": ENGINE, "changed": CHANGED_FILES}
ERROR = {"error": {"code": re.compile("[A-Z_]+"), "message": str, "hint": str, "details": dict}}


def mismatch(value: Any, shape: Any, place: str = "") -> str:
    """Where a value differs from its shape; empty where it does not. A tuple lists alternatives,
    `{str: S}` takes any keys.
    """
    match shape:
        case tuple():
            return min((mismatch(value, each, place) for each in shape), key=bool)
        case [item]:
            parts = [(each, item, f"{place}[]") for each in value] if isinstance(value, list) else None
        case dict():
            parts = _members(value, shape, place) if isinstance(value, dict) else None
        case _:
            parts = [] if _is(value, shape) else None
    if parts is None:
        return f"{place}: {value!r} is not {shape}"
    return next(filter(None, (mismatch(*part) for part in parts)), "")


def _members(value: dict[str, Any], shape: dict[Any, Any], place: str) -> list[tuple[Any, Any, str]] | None:
    if str in shape:
        return [(each, shape[str], f"{place}.{key}") for key, each in value.items()]
    return (
        [(value[key], each, f"{place}.{key}") for key, each in shape.items()] if shape.keys() <= value.keys() else None
    )


def _is(value: Any, shape: Any) -> bool:
    match shape:
        case None:
            return value is None
        case re.Pattern():
            return isinstance(value, str) and shape.fullmatch(value) is not None
    kinds = (int, float) if shape is float else shape
    return isinstance(value, kinds) and isinstance(value, bool) == (shape is bool)


def test_the_shapes_themselves_are_strict():
    assert mismatch({"from_": None}, {"from": (HASH, None)})
    assert mismatch({"a": True}, {"a": int})
    assert mismatch({"a": 1}, {"a": bool})
    assert mismatch({"a": ["x", 1]}, {"a": [str]})
    assert mismatch({"a": None}, {"a": str})
    assert not mismatch({"a": None, "more": 1}, {"a": (str, None)})


def test_status_in_sync_and_with_uncommitted_documents(project):
    report = project.ask("status")
    assert not mismatch(report, STATUS)
    warning = "warning: 3 stored copies of tracked files may be outdated: vmrag sources dedupe"
    assert (report["state"], report["reasons"], report["hint"]) == ("in_sync", [warning], "")
    assert report["kb"] == {
        "engine": "doltlite",
        "revision": project.pinned,
        "branch": "main",
        "detached": False,
        "dirty": False,
        "documents": 4,
        "pinned": True,
    }
    assert (report["index"]["revision"], report["index"]["documents"]) == (project.pinned, 4)
    assert report["index"]["working_copy"] is None
    project.put("draft.md", "A draft.")
    report = project.ask("status")
    assert not mismatch(report, STATUS)
    assert (report["in_sync"], report["kb"]["dirty"], report["kb"]["documents"]) == (True, True, 5)
    assert report["index"]["working_copy"].startswith(str(project.shared / "uncommitted"))


def test_a_fingerprint_names_the_ranking_and_only_its_settings_change_it(project):
    report = project.ask("fingerprint")
    assert not mismatch(report, FINGERPRINT)
    assert report["ranking"] == {"version": 6, "vector_weight": 0.4, "document_weight": 0.6, "per_document": 0}
    project.git("config", "vmrag.retrieval.k", "9")
    assert project.ask("fingerprint") == report
    project.git("config", "vmrag.retrieval.vector-weight", ".25")
    changed = project.ask("fingerprint")
    assert changed["ranking"]["vector_weight"] == 0.25
    assert changed["fingerprint"] != report["fingerprint"]
    project.git("config", "vmrag.retrieval.vector-weight", "0.400")
    assert project.ask("fingerprint") == report
    project.git("config", "vmrag.retrieval.vector-weight", "0.4001")
    assert "at most three decimals" in project.vmrag("fingerprint", "--json", code=2).error["message"]


def test_status_changes_nothing(project):
    project.ask("status")  # a copied index is looked at once, which is noted beside it
    project.git("reset", "-q", "--hard", "feature")
    before = {path: path.stat().st_mtime_ns for path in project.shared.rglob("*") if path.is_file()}
    project.ask("status", code=1)
    assert {path: path.stat().st_mtime_ns for path in project.shared.rglob("*") if path.is_file()} == before


def test_status_in_every_other_state_has_the_same_keys_and_exits_with_1(project, tmp_path):
    (tmp_path / "new").mkdir()
    new = terminal.Project(tmp_path / "new")
    new.git("init", "-q")
    files = new.ask("status")
    assert (files["state"], files["in_sync"], mismatch(files, STATUS)) == ("files", True, "")
    states = {}
    project.git("reset", "-q", "--hard", "feature")
    states["drift"] = project.ask("status", code=1)
    pin = json.loads((project.top / ".dolt-version").read_text())
    project.write(".dolt-version", json.dumps(pin | {"dolt_commit": "0" * 40}))
    states["missing"] = project.ask("status", code=1)
    project.write(".dolt-version", "<<<<<<< HEAD\n")
    states["malformed"] = project.ask("status", code=1)
    project.git("rm", "-q", "-f", ".dolt-version")
    project.git("commit", "-q", "-m", "gone")
    states["no_pin"] = project.ask("status", code=1)
    project.git("switch", "-q", "--detach")
    states["no_pin "] = project.ask("status", code=1)
    for state, report in states.items():
        assert report["state"] == state.strip()
        assert report["in_sync"] is False
        assert report["reasons"], state
        assert report["hint"], state
        assert mismatch(report, STATUS) == ""
    assert states["no_pin "]["git"]["branch"] is None


def test_sync(project):
    project.git("reset", "-q", "--hard", "feature")
    report = project.ask("sync")
    assert mismatch(report, SYNC) == ""
    assert (report["to"], report["plan"]) == (project.pinned, {"added": 1, "modified": 1, "removed": 2})
    assert "total" in report["seconds"]
    nothing = project.ask("sync")
    assert mismatch(nothing, SYNC) == ""
    assert (nothing["from"], nothing["to"]) == (project.pinned, project.pinned)
    assert nothing["plan"] == {"added": 0, "modified": 0, "removed": 0}
    assert nothing["snapshot"]["how"] == "reused"
    project.forget_indexes()
    rebuilt = project.ask("sync")
    assert rebuilt["snapshot"]["how"] == "fresh"
    assert rebuilt["chunks"] == {"added": 3, "removed": 0, "embedded": 0, "cached": 3}
    assert mismatch(project.ask("sync", "--rebuild"), SYNC) == ""


def test_query(project):
    report = project.ask("query", "faq", "-k", "2")
    assert mismatch(report, QUERY) == ""
    assert [each["rank"] for each in report["results"]] == [1, 2]
    assert report["kb"]["worktree"] == str(project.top)
    assert mismatch(project.ask("query", "faq", "--at", "feature"), QUERY) == ""
    assert mismatch(project.ask("query", "faq", "--context", "1"), QUERY) == ""
    project.git("switch", "-q", "--detach")
    assert mismatch(project.ask("query", "faq"), QUERY) == ""


def test_query_in_a_budget(project):
    report = project.ask("query", "faq", "--budget", "500")
    assert mismatch(report, PACKED) == ""
    assert mismatch(project.ask("query", "faq", "--budget", "500", "--at", "feature"), PACKED) == ""


def test_grep_export_and_help(project):
    assert mismatch(project.ask("grep", "rest", "--context", "1"), GREP) == ""
    assert mismatch(project.ask("export", "out"), EXPORT) == ""
    assert mismatch(project.ask("help", "query"), {"command": str, "help": str}) == ""


def test_ask(project):
    report = project.ask("ask", "how is the program installed", "--min-score", "0.1")
    assert mismatch(report, ASK) == ""
    assert report["sources"]
    assert project.ask("ask", "zzzz", "--min-score", "1")["sources"] == []


def test_check(project):
    project.write(
        ".vmrag/queries.yaml", "queries:\n  - query: faq\n  - {query: pip, expect: [handbook/faq.md], k: 1}\n"
    )
    for arguments in (["--update"], []):
        report = project.ask("check", *arguments, code=1)
        assert mismatch(report, CHECK) == ""
        assert [each["recorded"] for each in report["queries"]] == ["new" if arguments else None, None]
        assert [len(each["misses"]) for each in report["queries"]] == [0, 1]
    report = project.ask("check", "--min-mrr", "0.5", "--max-regressions", "0", code=1)
    assert (mismatch(report, CHECK), len(report["thresholds"])) == ("", 2)


def test_diff_of_queries(project):
    project.write(".vmrag/queries.yaml", "queries: [{query: faq}]")
    report = project.ask("diff", "main", "feature", "--queries")
    assert mismatch(report, DIFF_QUERIES) == ""


def test_list_and_show(project):
    project.vmrag(
        "add", "-", "--collection", "handbook", "--id", "d", "--metadata", '{"n": 1, "deep": [1]}', stdin="draft"
    )
    project.drop("faq.md")
    report = project.ask("list")
    assert mismatch(report, LIST) == ""
    assert {each["doc_id"]: each["uncommitted"] for each in report["documents"]} == {
        "d": "added",
        "deep/tls.txt": None,
        "faq.md": "removed",
        "rest.md": None,
        "setup.md": None,
    }
    shown = project.ask("show", "handbook/d")
    assert mismatch(shown, SHOW) == ""
    assert (shown["content"], shown["metadata"], shown["revision"]) == ("draft", {"n": 1, "deep": [1]}, project.pinned)
    assert mismatch(project.ask("show", "feature:handbook/uv.md"), SHOW) == ""


def test_rm_and_restore(project):
    project.put("new.md", "Never committed.")
    assert mismatch(project.ask("rm", "handbook", "--yes"), REMOVE) == ""
    assert mismatch(project.ask("restore", "."), RESTORE) == ""


def test_log(project):
    report = project.ask("log")
    assert mismatch(report, LOG) == ""
    first, second = report["revisions"][:2]
    assert (first["message"], first["author"]) == ("faq", "Ada Lovelace <ada@example.com>")
    assert first["changes"] == {"added": 1, "modified": 0, "removed": 0}
    assert first["parents"] == [second["revision"]]
    assert len(project.ask("log", "-n", "1")["revisions"]) == 1
    assert project.ask("log", "feature")["revisions"][0]["message"] == "uv"
    assert mismatch(project.ask("log", "feature", "handbook/rest.md", "-p"), LOG) == ""
    assert mismatch(project.ask("show", "feature"), SHOW_REVISION) == ""


def test_blame(project):
    project.put("faq.md", "A frequent question.\nAnd another.\n")
    report = project.ask("blame", "faq.md")
    assert mismatch(report, BLAME) == ""
    assert [each["revision"] for each in report["lines"]] == [project.pinned, "WORKING"]


@dolt.embedded
def test_migrate(project):
    dolt.require()
    assert mismatch(project.ask("migrate", "--to", "dolt", "--dry-run"), MIGRATE) == ""
    report = project.ask("migrate", "--to", "dolt")
    assert mismatch(report, MIGRATE) == ""
    assert (report["applied"], report["branches"], report["changed"]["written"][-1]) == (
        True,
        ["feature", "main"],
        ".dolt-version",
    )
    assert mismatch(project.ask("migrate", "--undo"), UNDO) == ""


def test_report(project):
    project.git("switch", "-q", "--detach", "first")
    kept, gone, new = "- query: uv\n    expect: [handbook/faq.md]", "- query: gone", "- query: new"
    base = project.commit("queries", **{".vmrag/queries.yaml": f"queries:\n  {kept}\n  {gone}\n"})
    project.git("merge", "-q", "--no-edit", "feature")
    project.commit("queries", **{".vmrag/queries.yaml": f"queries:\n  {kept}\n  {new}\n"})
    report = project.ask("report", base, "HEAD")
    assert mismatch(report, REPORT) == ""
    assert [each["kind"] for each in report["documents"]] == ["removed", "changed", "added"]
    queries = report["summary"]["queries"]
    [query] = queries["changed"]
    assert (query["change"], len(query["missed_after"])) == ("ranking", 1)
    assert [each["query"] for each in queries["answers"]] == ["uv"]
    assert [each["query"] for each in (*queries["added"], *queries["removed"])] == ["new", "gone"]


def test_diff(project):
    for options in ([], ["--stat"], ["--name-only"]):
        report = project.ask("diff", "main", "feature", *options)
        assert mismatch(report, DIFF) == ""
        assert report["changes"] == {"added": 1, "modified": 1, "removed": 2}
    assert (report["words"], report["documents"][0]["words"]) == (None, None)


def test_commit(project):
    before = project.pinned
    project.put("draft.md", "A draft.")
    report = project.ask("commit", "-m", "draft")
    assert mismatch(report, COMMIT) == ""
    assert (report["parent"], report["branch"], report["staged"]) == (before, "main", True)
    assert report["pin"] == json.loads((project.top / ".dolt-version").read_text())
    assert report["revision"] == project.pinned


def test_commit_with_git(project):
    project.put("draft.md", "A draft.")
    report = project.ask("commit", "--git", "-m", "draft")
    assert mismatch(report, COMMIT | {"git_commit": HASH}) == ""


@pytest.mark.parametrize("command", ["true", "echo more >>"])
def test_edit(project, command):
    report = project.ask("edit", "rest.md", env={"GIT_EDITOR": command})
    assert mismatch(report, EDIT) == ""
    assert report["changed"] == (report["branch"] == "main") == (command != "true")


def merge(project, *arguments: str, code: int = 0) -> str:
    """The result of a merge, whose report has its shape."""
    report = project.ask("merge", *arguments, code=code)
    assert mismatch(report, MERGE) == ""
    assert (report["revision"] is None) == (report["result"] == "conflict")
    assert (report["pin"] is not None) == (report["result"] in ("merge", "fast_forward"))
    return report["result"]


def test_merge(project):
    before = project.pinned
    assert merge(project, "feature", "--no-commit") == "uncommitted"
    assert merge(project, "--abort") == "aborted"
    assert merge(project, "vmrag/wip/main") == "uncommitted"
    project.git("restore", "--source", "first", "-SW", ".dolt-version")
    project.vmrag("commit", "-m", "brought back", code=None)
    project.vmrag("pin", before)
    project.git("switch", "-q", "-c", "new")
    assert merge(project, "feature") == "merge"
    assert merge(project, "feature") == "already_up_to_date"
    assert merge(project, "--repair", "HEAD") == "already_up_to_date"
    project.git("commit", "-q", "-m", "merged")
    project.git("switch", "-q", "-c", "old", "first")
    assert merge(project, "new") == "fast_forward"


def test_merge_and_resolve_with_conflicts(project):
    project.record("rest", rest="Rest often.")
    assert merge(project, "feature", code=1) == "conflict"
    for arguments, code in (([], 1), (["--list"], 1), (["handbook/rest.md", "--ours"], 0), (["--list"], 0)):
        report = project.ask("resolve", *arguments, code=code)
        assert mismatch(report, RESOLVE) == ""
        assert (report["kind"], bool(report["conflicts"])) == ("merge", code == 1)
    assert merge(project, "--continue") == "merge"
    project.git("reset", "-q", "--hard")
    project.git("merge", "feature", check=False)
    assert mismatch(project.ask("resolve", code=1), RESOLVE) == ""
    report = project.ask("resolve", "--theirs")
    assert mismatch(report, RESOLVE) == ""
    assert (report["kind"], report["pin"]["dolt_commit"], report["staged"]) == ("git", project.pinned, True)


def test_import_with_all_that_it_can_say(project):
    for name, text in {"a.md": "# A\n", "b.md": "B", "ignored.md": "I", "kept.md": "K"}.items():
        project.write(f"more/{name}", text)
    project.vmrag("import", "more", "--collection", "more")
    (project.top / "more/a.md").rename(project.top / "more/z.md")
    (project.top / "more/b.md").unlink()
    project.write(".gitignore", "ignored.md\n")
    report = project.ask("import", "more", "more/ignored.md", "docs", "--collection", "more", "--copy")
    assert mismatch(report, IMPORT) == ""
    assert (len(report["renamed"]), report["gone"], report["ignored"]) == (1, ["more/b.md"], ["more/ignored.md"])
    assert report["skipped"] == []
    report = project.ask("import", "more", "--collection", "more")
    assert (report["left_out"], len(report["skipped"])) == (["more/ignored.md"], 1)


def test_pin_and_init_where_nothing_was_pinned(project):
    assert mismatch(project.ask("pin"), PINNED) == ""
    project.git("switch", "-q", "--orphan", "new")
    report = project.ask("pin")
    assert mismatch(report, PINNED) == ""
    assert report["first"]
    project.git("rm", "-q", "-f", ".dolt-version")
    report = project.ask("init", "--knowledge-base", "--no-sources", "--empty")
    assert mismatch(report, INIT) == ""
    assert report["others"]


def test_import_into_a_library(project):
    for sources, code in ((["docs"], 0), (["docs/setup.md"], 0), (["docs", ".vmrag.yaml"], 1)):
        report = project.ask("import", *sources, "--library", "shelf", "--copy", code=code)
        assert mismatch(report, LIBRARY_IMPORT) == ""
        assert bool(report["refused"]) == (code == 1)
    assert {each["status"] for each in report["taken"]} == {"skipped"}


def test_branch_and_its_switch(project):
    assert mismatch(project.ask("branch"), BRANCH) == ""
    report = project.ask("branch", "--switch", project.pinned)
    assert mismatch(report, SWITCH) == ""
    assert report["branch"] is None
    assert mismatch(project.ask("branch"), BRANCH) == ""
    report = project.ask("branch", "--switch", "main")
    assert mismatch(report, SWITCH) == ""
    assert (report["code_branch"], report["branch"]) == ("main", "main")


# -- errors ----------------------------------------------------------------------------------------

ERRORS = {
    "no subcommand of that name": (["quer", "x"], 2, "INVALID_PARAMETER"),
    "an unknown option": (["query", "x", "--colection", "c"], 2, "INVALID_PARAMETER"),
    "a missing argument": (["query"], 2, "INVALID_PARAMETER"),
    "a wrong choice": (["query", "x", "--mode", "fuzzy"], 2, "INVALID_PARAMETER"),
    "a number out of range": (["query", "x", "-k", "0"], 2, "INVALID_PARAMETER"),
    "an unknown collection": (["query", "x", "--collection", "handbok"], 3, "COLLECTION_NOT_FOUND"),
    "a filter that is no JSON": (["query", "x", "--where", "{"], 2, "INVALID_FILTER"),
    "an unknown git ref": (["query", "x", "--at", "nowhere"], 3, "GIT_COMMIT_NOT_FOUND"),
    "an unknown document": (["show", "handbook/setup"], 3, "DOCUMENT_NOT_FOUND"),
    "a name that is no document": (["show", "handbook"], 2, "INVALID_PARAMETER"),
    "nothing to commit": (["commit", "-m", "m"], 1, "NO_CHANGES"),
    "an empty message": (["commit", "-m", " "], 2, "MESSAGE_REQUIRED"),
    "an unknown revision": (["pin", "0" * 40], 3, "BRANCH_NOT_FOUND"),
    "a folder that is not there": (["import", "nowhere", "--collection", "handbook"], 2, "INVALID_PARAMETER"),
    "a name that no collection may have": (["import", "docs", "--collection", "a"], 2, "INVALID_NAME"),
    "a place for documents that is not named": (["import", "docs"], 2, "INVALID_PARAMETER"),
    "a page for a collection": (["import", "https://example.org", "--collection", "c"], 2, "INVALID_PARAMETER"),
    "a library with a base": (["import", "docs", "--library", "shelf", "--base", "docs"], 2, "INVALID_PARAMETER"),
    "a library of a collection's name": (["import", "docs", "--library", "handbook"], 3, "COLLECTION_EXISTS"),
    "a file that cannot be converted": (["import", ".vmrag.yaml", "--library", "shelf"], 3, "UNSUPPORTED_FORMAT"),
    "a second init": (["init", "--knowledge-base"], 2, "ALREADY_INITIALIZED"),
    "an unknown place": (["diff", "nowhere"], 3, "GIT_COMMIT_NOT_FOUND"),
    "metadata that are no object": (
        ["add", "docs/setup.md", "--collection", "handbook", "--metadata", "1"],
        2,
        "INVALID_PARAMETER",
    ),
    "metadata that the index needs": (
        ["add", "docs/setup.md", "--collection", "handbook", "--metadata", '{"source_id": 1}'],
        3,
        "INVALID_METADATA",
    ),
    "nothing to merge": (["merge"], 2, "INVALID_PARAMETER"),
    "a merge of what is not there": (["merge", "nowhere"], 3, "GIT_COMMIT_NOT_FOUND"),
    "no open merge": (["merge", "--continue"], 1, "MERGE_CONFLICT"),
    "nothing to resolve": (["resolve", "--ours"], 1, "MERGE_CONFLICT"),
    "a switch to what is not there": (["branch", "--switch", "nowhere"], 3, "BRANCH_NOT_FOUND"),
    "a switch to another's branch": (["branch", "--switch", "feature"], 3, "BRANCH_IN_USE"),
    "a directory that is not there": (["status", "-C", "nowhere"], 2, "GIT_REPO_NOT_FOUND"),
}


@pytest.mark.parametrize(("arguments", "code", "name"), ERRORS.values(), ids=ERRORS)
@pytest.mark.sample(12)
def test_an_error_is_json_on_stderr_and_nothing_on_stdout(project, arguments, code, name):
    done = project.vmrag(*arguments, "--json", code=code)
    assert done.out == ""
    assert mismatch(json.loads(done.err), ERROR) == ""
    assert done.error["code"] == name
    assert done.error["hint"]
    assert done.error["message"].strip()
    for_people = project.vmrag(*arguments, code=code)
    assert for_people.out == ""
    assert "Traceback" not in for_people.err


def test_no_git_repository_and_a_bare_one(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    (tmp_path / "plain").mkdir()
    plain = terminal.Project(tmp_path / "plain")
    assert plain.vmrag("status", "--json", code=2).error["hint"] == "git init"
    plain.git("init", "-q", "--bare", "bare.git")
    error = plain.vmrag("-C", "bare.git", "status", "--json", code=2).error
    assert error["code"] == "GIT_REPO_NOT_FOUND"
    assert "git worktree add" in error["hint"]


def test_a_settings_file_that_cannot_be_read_names_the_line(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "mine", settings="retrieval:\n  kk: 5\n")
    error = project.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=2).error
    assert (error["code"], error["details"]["line"]) == ("CONFIG_INVALID", 2)
    assert (error["details"]["nearest"], error["hint"]) == ("retrieval.k", "Write `k`, or delete the line.")
    assert not (project.top / ".git/vmrag/kb").exists()


def test_warnings_do_not_get_into_the_json(project):
    project.write(".vmrag.yaml", "embedding:\n  model: hash\n  model_path: /somewhere\n")
    done = project.vmrag("list", "--json")
    assert mismatch(done.json, LIST) == ""
    assert "embedding.model_path (line 3) does not count until you agree" in done.err
    assert project.vmrag("list", "-q").err == ""

"""Queries that are narrowed to paths, languages, symbols and kinds, and lists of definitions: over
files of sources, at commits, with edited files, and over what is stored.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import sources
from tests.support.repos import isolate
from tests.support.sources import change, commit
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project
from vmrag_link.code import languages

pytestmark = pytest.mark.hooks("off")

# Long enough for pieces of its own symbols; `Token` and what is in it are one piece, as others are.
SESSION = (
    '"""Sessions."""\n\n\nclass Session(Base):\n    """A login."""\n\n'
    + "".join(f"    limit_{number} = {number}  # how often a session may ask\n" for number in range(30))
    + "\n    @cached\n    def refresh(self, token):\n"
    + "".join(f"        self.step_{number}(token)  # renews the session\n" for number in range(30))
    + "\n\n"
    + "class Token:\n    def expire(self):\n        session = 1\n        return session\n"
)
STORE = "export class SessionStore {\n  save(session: Session): void {\n    this.session = session;\n  }\n}\n"
HEADER = "int session_open(struct session *s, int flags);\nint session_close(struct session *s);\n"
SHAPES = "class Shape {\n  int area(int a) {\n    return a;\n  }\n  int area(String session) {\n    return 2;\n  }\n}\n"
FILES = {
    "src/auth/session.py": SESSION,
    "src/auth/test_session.py": "def test_session():\n    assert session\n",
    "src/web/store.ts": STORE,
    "src/web/view.tsx": "export const View = () => {\n  return session;\n};\n",
    "src/native/session.h": HEADER,
    "src/Shape.java": SHAPES,
    "src/Money.cs": "class Money {\n  // session\n  public int Cents { get; set; }\n}\n",
    "src/area.go": "package shape\n\nfunc Area(session int) int {\n\treturn session\n}\n",
    "docs/session.md": "# Session\n\nHow a session is kept.\n",
    "docs/my notes/session.txt": "A session of notes.\n",
}


def prepared(folder: Path) -> None:
    project = sources.sourced_project(folder / "top")
    commit(project, "sessions", **FILES)
    project.vmrag("query", "session")


@pytest.fixture(scope="session")
def narrowed_template(tmp_path_factory) -> Path:
    return build_once(tmp_path_factory, "narrowed", prepared)


@pytest.fixture
def project(narrowed_template, tmp_path, monkeypatch) -> Project:
    """Without a knowledge base; indexed."""
    isolate(monkeypatch, tmp_path / "home")
    return Project(copy_tree(narrowed_template / "top", tmp_path / "work"))


def found(project: Project, *arguments: str) -> set[str]:
    """Return the results as `PATH` or, for code, `PATH SYMBOL`: the symbol of the piece."""
    hits = project.ask("query", *arguments, "-k", "50")["results"]
    return {f"{hit['doc_id']} {hit['metadata'].get('symbol', '')}".strip() for hit in hits}


def paths(project: Project, *arguments: str) -> set[str]:
    return {result["doc_id"] for result in project.ask("query", *arguments, "-k", "50")["results"]}


def defined(project: Project, *arguments: str) -> list[tuple[str, int, int, str, str]]:
    rows = project.ask("query", "--symbols", *arguments)["definitions"]
    return [(row["path"], row["line"], row["last_line"], row["symbol"], row["kind"]) for row in rows]


# -- each filter


@pytest.mark.parametrize(
    ("narrowed", "expected"),
    [
        ("path:src/auth", {"src/auth/session.py", "src/auth/test_session.py"}),
        ("path:/docs", {"docs/session.md", "docs/my notes/session.txt", "docs/page.md"}),
        ("path:session", {file for file in FILES if "session" in file}),
        ('path:"my notes"', {"docs/my notes/session.txt"}),
        ("path:src/**/test_*.py", {"src/auth/test_session.py"}),
        ("path:*.ts path:*.go", {"src/web/store.ts", "src/area.go"}),
        ("lang:py", {"src/auth/session.py", "src/auth/test_session.py", "src/a.py"}),
        ("lang:ts", {"src/web/store.ts", "src/web/view.tsx"}),
        ("lang:tsx", {"src/web/view.tsx"}),
        ("lang:c", {"src/native/session.h"}),
        ("lang:markdown", {"docs/session.md", "docs/page.md", "README.md"}),
        ("kind:document", {"docs/session.md", "docs/page.md", "docs/my notes/session.txt", "README.md"}),
        ("kind:code", {*(file for file in FILES if file.startswith("src")), "src/a.py"}),
        ("kind:code path:auth lang:python", {"src/auth/session.py", "src/auth/test_session.py"}),
        ("lang:go lang:java kind:document", set()),
        ("path:nowhere", set()),
    ],
)
@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_files_are_narrowed_by_typed_prefixes(project, narrowed, expected, mode):
    answers = paths(project, f"session {narrowed}", "--mode", mode)
    assert answers <= expected
    assert answers >= {file for file in expected if file in FILES}, "which have the word"
    if mode == "hybrid":
        assert answers == expected


OWN, PARTS = "src/auth/session.py", {"src/auth/session.py Session", "src/auth/session.py Session.refresh"}


@pytest.mark.parametrize(
    ("narrowed", "expected"),
    [
        ("symbol:Session", PARTS),
        ("symbol:session", PARTS),
        ("symbol:Session::refresh", {f"{OWN} Session.refresh"}),
        ("symbol:refresh kind:method", {f"{OWN} Session.refresh"}),
        ("symbol:refresh kind:class", set()),
        ("symbol:refresh kind:document", set()),
        ("symbol:*Store", {"src/web/store.ts SessionStore"}),
        ("symbol:session symbol:sessionstore lang:ts", {"src/web/store.ts SessionStore"}),
        # Symbols in a piece of another name:
        ("symbol:expire", {f"{OWN} Token"}),
        ("symbol:Token.expire kind:method", {f"{OWN} Token"}),
        ("symbol:Session.expire", set()),
        ("symbol:SessionStore#save", {"src/web/store.ts SessionStore"}),
        ("symbol:session_close", {"src/native/session.h session_open"}),
        ("symbol:*pir*", {f"{OWN} Token"}),
        ("symbol:Tok*.exp*", {f"{OWN} Token"}),
        ("symbol:cents kind:property", {"src/Money.cs Money"}),
        ("symbol:step_1", set()),
        ("symbol:fresh", set()),
        (
            "kind:class",
            {
                f"{OWN} Session",
                f"{OWN} Token",
                "src/web/store.ts SessionStore",
                "src/Shape.java Shape",
                "src/Money.cs Money",
            },
        ),
        (
            "kind:method",
            {f"{OWN} Session.refresh", f"{OWN} Token", "src/web/store.ts SessionStore", "src/Shape.java Shape"},
        ),
        ("kind:method lang:java symbol:Shape", {"src/Shape.java Shape"}),
        ("kind:class path:web", {"src/web/store.ts SessionStore"}),
    ],
)
def test_code_is_narrowed_by_its_symbols(project, narrowed, expected):
    assert found(project, f"session {narrowed}") == expected


def test_options_combine_with_typed_prefixes(project):
    options = ("--path", "src/auth", "--lang", "py", "--symbol", "Session", "--kind", "method")
    assert found(project, "session", *options) == {f"{OWN} Session.refresh"}
    assert found(project, "session path:src/auth", "--path", "src/web") == {
        *found(project, "session path:src/auth"),
        *found(project, "session path:src/web"),
    }
    assert found(project, "session kind:class", "--symbol", "Token") == {f"{OWN} Token"}


def test_metadata_and_text_filters_also_apply(project):
    where = ("--where", '{"language": "python"}', "--where-document", '{"$contains": "renews"}')
    assert found(project, "session kind:code", *where) == {f"{OWN} Session.refresh"}
    assert found(project, "session path:web", *where) == set()
    assert found(project, "session symbol:Session kind:class", "--where-document", '{"$contains": "renews"}') == set()
    assert paths(project, "session path:session", "--collection", "docs") == {
        "docs/session.md",
        "docs/my notes/session.txt",
    }


def test_words_that_are_left_are_ranked_by_and_marked(project):
    hit = project.ask("query", "path:src/auth how often may it ask lang:py", "-k", "1")["results"][0]
    assert {hit["text"][one:end] for one, end in hit["matches"]} >= {"often", "ask"}
    assert not {"src", "auth", "python"} & {hit["text"][one:end] for one, end in hit["matches"]}
    assert found(project, "symbol:Session.refresh") == {f"{OWN} Session.refresh"}
    assert found(project, "--symbol", "Session.refresh") == {f"{OWN} Session.refresh"}
    assert paths(project, '"path:src" session') == paths(project, "path session")


def test_unknown_filter_values_are_rejected(project):
    wrong = project.vmrag("query", "session lang:pyhton", "--json", code=2)
    assert wrong.error["message"] == "unknown language 'pyhton'. Did you mean 'python'?"
    assert wrong.error["hint"].endswith(", or write it in quotes to search for the words")
    assert "'class'" in project.vmrag("query", "session", "--kind", "clas", code=2).err
    assert project.vmrag("query", "--json", code=2).error["code"] == "INVALID_PARAMETER"
    nothing = project.vmrag("query", "session path:nowhere lang:py", "--path", "my notes").out
    assert nothing.startswith('Nothing found with path:nowhere path:"my notes" lang:python.\n')
    assert project.vmrag("query", "session path:nowhere", "--budget", "500").out.startswith("Nothing found with path:n")


def told(project: Project, *arguments: str) -> tuple[str, int, str]:
    """Return the file, line and symbol of the best answer."""
    best = project.ask("query", *arguments, "-k", "1")["results"][0]
    return best["doc_id"], best["file_line"], best["symbol"]


def test_answer_has_symbol_with_line_and_name_finds_its_declaration(project):
    token = SESSION[: SESSION.index("class Token")].count("\n") + 1
    assert told(project, "Token.expire") == (OWN, token + 1, "Token.expire"), "its class is one piece"
    assert told(project, "symbol:Token.expire") == (OWN, token + 1, "Token.expire")
    assert told(project, "class Token") == (OWN, token, "Token")
    assert told(project, "Session.refresh") == (OWN, 39, "Session.refresh"), "below its decorator"
    few = (
        '"""Few."""\n\n\ndef bake(dough):\n    return dough\n\n\ndef eat(bread):  # bake\n    """Chews the bread."""\n'
    )
    commit(project, "few", **{"src/few.py": few})
    assert told(project, "eat") == ("src/few.py", 8, "eat"), "a piece has several of them"
    assert told(project, "what chews the bread") == ("src/few.py", 9, "eat")
    assert "src/few.py:8  eat\n" in project.vmrag("query", "eat").out


def test_code_in_another_encoding_has_its_lines(project):
    (project.top / "src/wide.py").write_bytes("import os\n\n\ndef stretch():\n    pass\n".encode("utf-16"))
    project.git("add", "-A")
    assert told(project, "def stretch") == ("src/wide.py", 4, "stretch")
    project.git("commit", "-qm", "wide")
    assert told(project, "def stretch", "--at", "HEAD") == ("src/wide.py", 4, "stretch")


def test_shown_code_ends_at_a_whole_line(project):
    lines = (
        "".join(f"    step({number})\n" for number in range(6))
        + "\n"
        + "".join(f"    leap({number})\n" for number in range(9))
    )
    commit(project, "walk", **{"src/walk.py": f"def walk():\n{lines}"})
    shown = project.vmrag("query", "def walk", "-k", "1").out.splitlines()
    assert shown[1:-1] == ["   def walk():", *(f"       step({number})" for number in range(6))]


# -- places and states


def test_files_of_a_commit_are_narrowed(project):
    commit(project, "moved", **{"src/auth/session.py": None, "src/login.py": SESSION})
    assert found(project, "session symbol:Session") == {part.replace("auth/session", "login") for part in PARTS}
    assert found(project, "session symbol:Session", "--at", "HEAD~1") == PARTS
    assert defined(project, "Session")[0][:2] == ("src/login.py", 4)
    assert defined(project, "Session", "--at", "HEAD~1")[0][:2] == ("src/auth/session.py", 4)
    before = project.git("rev-parse", "--short=7", "HEAD~1")
    shown = project.vmrag("query", "--symbols", "Session", "--at", "HEAD~1").out
    assert shown.startswith(f"{before}:src/auth/session.py:4  class  class Session(Base):\n")


@pytest.mark.parametrize("rules", ["RULES", "RULES_OF_LINES"])
def test_code_is_cut_again_after_a_change_of_rules(project, monkeypatch, rules):
    """Pieces of another version have fewer fields."""
    before = {path.name for path in (project.shared / "sources").iterdir()}
    monkeypatch.setattr(languages, rules, 99)
    assert defined(project, "expire")
    assert {path.name for path in (project.shared / "sources").iterdir()} - before


def test_edited_files_are_narrowed_by_their_current_text(project):
    change(project, "src/auth/session.py", "class Token", "class Ticket")
    assert found(project, "session symbol:Ticket") == {f"{OWN} Ticket"}
    assert found(project, "session symbol:Token") == set()
    row = project.ask("query", "--symbols", "Ticket")["definitions"][0]
    assert (row["path"], row["symbol"], row["uncommitted"]) == ("src/auth/session.py", "Ticket", "modified")
    assert "uncommitted" not in project.ask("query", "--symbols", "Shape")["definitions"][0]


def test_stored_documents_are_narrowed_by_their_ids(project):
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    for name in ("guide/session.md", "guide/other.txt", "session.py"):
        project.put(name, f"A stored session: {name}\n", collection="notes")
    notes = ("--collection", "notes")
    assert paths(project, "session path:guide", *notes) == {"guide/session.md", "guide/other.txt"}
    assert paths(project, "session path:/session*", *notes) == {"session.py"}
    assert paths(project, "session lang:markdown path:session") == {"guide/session.md", "docs/session.md"}
    assert paths(project, "session kind:document", *notes) == {"guide/session.md", "guide/other.txt", "session.py"}
    assert paths(project, "session kind:code", *notes) == set()
    assert paths(project, "session symbol:session", *notes) == set()
    assert defined(project, "session", *notes) == []


# -- definitions


def test_definitions_are_listed_with_their_lines(project):
    shown = project.vmrag("query", "--symbols", "session").out
    assert shown.splitlines()[:-1] == ["src/auth/session.py:4  class  class Session(Base):"]
    assert shown.splitlines()[-1].startswith("from commit ")
    inner = project.vmrag("query", "--symbols", "refresh").out
    assert inner.startswith("src/auth/session.py:39  method of Session  def refresh(self, token):\n")
    end = SESSION[: SESSION.index("\n\n\nclass Token")].count("\n") + 1
    assert defined(project, "Session") == [(OWN, 4, end, "Session", "class")], "once, though it has several pieces"
    assert defined(project, "Session.refresh") == [(OWN, 39, end, "Session.refresh", "method")]
    assert defined(project, "expire") == [(OWN, end + 4, end + 6, "Token.expire", "method")]
    row = project.ask("query", "--symbols", "Session")["definitions"][0]
    assert row == {
        "path": OWN,
        "line": 4,
        "last_line": end,
        "symbol": "Session",
        "kind": "class",
        "signature": "class Session(Base):",
        "collection": "code",
    }


def signatures(project: Project, *arguments: str) -> list[str]:
    return [definition["signature"] for definition in project.ask("query", "--symbols", *arguments)["definitions"]]


def test_definition_without_own_piece_has_its_line_as_signature(project):
    assert signatures(project, "expire") == ["def expire(self):"]
    assert signatures(project, "area") == ["int area(int a)", "int area(String session)", "func Area(session int) int"]
    assert signatures(project, "session_*") == [
        "int session_open(struct session *s, int flags);",
        "int session_close(struct session *s);",
    ]
    assert signatures(project, "Cents", "--kind", "property") == ["public int Cents { get; set; }"]
    long = ", ".join(f"argument_{number}" for number in range(60))
    commit(project, "long", **{"src/long.py": f"class A:\n    def f(self, {long}):\n        pass\n"})
    (result,) = signatures(project, "A.f")
    assert result.startswith("def f(self, argument_0, argument_1")
    assert len(result) == 200


def test_file_is_outlined_whole(project):
    assert [definition[1:] for definition in defined(project, "*", "--path", "store.ts", "--path", "Shape.java")] == [
        (1, 8, "Shape", "class"),
        (2, 4, "Shape.area", "method"),
        (5, 7, "Shape.area", "method"),
        (1, 5, "SessionStore", "class"),
        (2, 4, "SessionStore.save", "method"),
    ]


def test_symbol_search_lists_all_overloads_with_same_case_first(project):
    assert defined(project, "area") == [
        ("src/Shape.java", 2, 4, "Shape.area", "method"),
        ("src/Shape.java", 5, 7, "Shape.area", "method"),
        ("src/area.go", 3, 5, "Area", "function"),
    ]
    assert [definition[0] for definition in defined(project, "Area")] == ["src/area.go"]
    assert [definition[3] for definition in defined(project, "session_*")] == ["session_open", "session_close"]
    assert [definition[3] for definition in defined(project, "shape::AREA".lower())] == ["Shape.area", "Shape.area"]
    assert {definition[3] for definition in defined(project, "*sess*")} == {
        "Session",
        "SessionStore",
        "session_close",
        "session_open",
        "test_session",
    }


def test_lists_are_narrowed(project):
    assert [definition[0] for definition in defined(project, "area", "--lang", "go")] == ["src/area.go"]
    assert [definition[0] for definition in defined(project, "area", "--path", "*.java", "--kind", "code")] == [
        "src/Shape.java"
    ] * 2
    assert [definition[0] for definition in defined(project, "area", "--kind", "function")] == ["src/area.go"]
    assert defined(project, "area", "--kind", "document") == []
    assert [definition[3] for definition in defined(project, "*", "--symbol", "Token")] == ["Token", "Token.expire"]
    assert defined(project, "area", "--collection", "docs") == []
    assert project.vmrag("query", "--symbols", "a", "--collection", "absent", "--json", code=3).error["code"] == (
        "COLLECTION_NOT_FOUND"
    )


def test_unknown_symbol_suggests_a_pattern(project):
    assert project.vmrag("query", "--symbols", "absent").out.startswith(
        "No definition of 'absent' found.\nhint: run 'vmrag query --symbols \"*absent*\"' to find longer names\n"
    )
    assert project.vmrag("query", "--symbols", "absent*").out.startswith("No definition of 'absent*' found.\n")
    assert project.ask("query", "--symbols", "absent")["definitions"] == []


@pytest.mark.parametrize(
    "arguments", [("text",), ("-k", "3"), ("--mode", "keyword"), ("--full",), ("--open",), ("--since", "HEAD")]
)
def test_list_of_definitions_rejects_search_options(project, arguments):
    assert project.vmrag("query", "--symbols", "x", *arguments, "--json", code=2).error["code"] == "INVALID_PARAMETER"


@pytest.mark.parametrize("name", ["?", "::", " "])
def test_name_has_letters(project, name):
    assert f"{name!r}." in project.vmrag("query", "--symbols", name, code=2).err


def test_paths_are_relative_to_the_current_folder(project):
    shown = project.vmrag("-C", str(project.top / "src/auth"), "query", "--symbols", "Session").out
    assert shown.startswith("./session.py:4  class  ")
    shown = project.vmrag("-C", str(project.top / "src/auth"), "show", "./session.py:4").out
    assert shown == SESSION


def test_before_anything_is_set_up_definitions_are_listed(project):
    project.git("rm", "-q", ".vmrag.yaml")
    project.git("commit", "-qm", "nothing is set up")
    assert [definition[:2] for definition in defined(project, "Session")] == [("src/auth/session.py", 4)]
    assert found(project, "symbol:Session.refresh") == {f"{OWN} Session.refresh"}


def test_query_warns_about_code_without_the_extra(project, monkeypatch):
    monkeypatch.setattr(languages, "find_language_problem", lambda: f"no grammar is installed: {languages.EXTRA_HINT}")
    said = "warning: the source 'code' was not searched: no grammar is installed"
    shown = project.vmrag("query", "--symbols", "Session").out
    assert shown.startswith(said)
    assert "No definition of 'Session' found." in shown
    assert project.vmrag("query", "session kind:code").out.startswith(said)
    error = project.vmrag("query", "--symbols", "Session", "--collection", "code", "--json", code=3).error
    assert error["hint"] == languages.EXTRA_HINT

"""`vmrag resolve`: every kind of conflict, every way to decide, and git's own conflicts in the pin
until git's command can go on.
"""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support import terminal
from tests.support.cli import run_patched, start
from tests.support.compare import assert_whole
from tests.support.long import crossed
from tests.support.repos import ENGINE_CLASS
from tests.support.terminal import Project, opened
from vmrag_link.engines.base import Write
from vmrag_link.models import Chunking, Collection, Document, RevisionInfo, content_hash
from vmrag_link.workspace.merge import merge_state

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

OFF = {"VMRAG": "0"}
AUTHOR, DATE = "Bea <bea@example.org>", "2026-02-03T04:05:06Z"


def document(doc_id: str, content: str = "text", **fields: str) -> Document:
    return Document(
        "handbook",
        doc_id,
        fields.pop("title", ""),
        content,
        content_hash(content),
        fields.pop("metadata", "{}"),
        **fields,
    )


def put(*documents: Document) -> Write:
    return Write(put_documents=documents)


def revision(project: Project, onto: str, *rows: Write) -> str:
    with opened(project) as workspace:
        return workspace.engine.commit_onto(onto, rows, message="made", author=AUTHOR, date=DATE)


def at(project: Project, place: str) -> dict[str, Document]:
    with opened(project) as workspace:
        return {"/".join(document.key): document for document in workspace.engine.read_documents(place)}


def texts(project: Project, place: str) -> dict[str, str]:
    return {name: value.content for name, value in at(project, place).items()}


def collections(project: Project, place: str) -> dict[str, Collection]:
    with opened(project) as workspace:
        return {collection.name: collection for collection in workspace.engine.list_collections(place)}


def info(project: Project, place: str) -> RevisionInfo:
    with opened(project) as workspace:
        return workspace.engine.read_revision(place)


def whole(project: Project, tmp_path: Path) -> None:
    scratch = tmp_path / f"scratch-{len(list(tmp_path.glob('scratch-*')))}"
    scratch.mkdir()
    assert_whole(project, scratch)
    assert not list(project.own.glob("merge*.json"))


def refused(project: Project, *arguments: str, code: int = 1, stdin: str = "") -> dict:
    error = project.vmrag(*arguments, "--json", code=code, stdin=stdin).error
    assert error["hint"]
    return error


def pinning(project: Project, place: str) -> str:
    """The bytes of a pin on a revision."""
    return json.dumps(json.loads((project.top / ".dolt-version").read_text()) | {"dolt_commit": place}, indent=2) + "\n"


def pinned_by(project: Project, ref: str) -> str:
    return json.loads(project.git("show", f"{ref}:.dolt-version"))["dolt_commit"]


# -- kinds of conflicts ----------------------------------------------------------------------------

BASE = document("d", "base text", title="base", metadata='{"k":0}', source="base")
NOTES = "notes"


def changed(**fields: str) -> Document:
    if "content" in fields:
        fields["content_hash"] = content_hash(fields["content"])
    return msgspec.structs.replace(BASE, **fields)


KINDS: dict[str, tuple[Write, Write, list[str]]] = {
    "both edited": (put(changed(content="ours")), put(changed(content="theirs")), ["content"]),
    "title": (put(changed(title="ours")), put(changed(title="theirs")), ["title"]),
    "metadata": (put(changed(metadata='{"k":1}')), put(changed(metadata='{"k":2}')), ["metadata"]),
    "source": (put(changed(source="ours")), put(changed(source="theirs")), ["source"]),
    "title and text": (
        put(changed(content="ours", title="ours")),
        put(changed(content="theirs", title="theirs")),
        ["title", "content"],
    ),
    "ours removed it": (Write(remove_documents=[("handbook", "d")]), put(changed(content="theirs")), ["document"]),
    "theirs removed it": (put(changed(content="ours")), Write(remove_documents=[("handbook", "d")]), ["document"]),
}


def torn(project: Project, ours: Write, theirs: Write, *, base: Write | None = None) -> tuple[str, str]:
    """HEAD pins `ours`; returns both revisions. Each side adds a document of its own, too."""
    origin = revision(project, project.pinned, put(BASE), *([base] if base else []))
    left_side = revision(project, origin, ours, put(document("only-ours")))
    right = revision(project, origin, theirs, put(document("only-theirs")))
    project.vmrag("pin", left_side)
    project.git("commit", "-q", "-m", "ours", env=OFF)
    return left_side, right


def renamed(write: Write, doc_id: str) -> Write:
    return Write(
        put_documents=[msgspec.structs.replace(put_document, doc_id=doc_id) for put_document in write.put_documents],
        remove_documents=[(name, doc_id) for name, _ in write.remove_documents],
    )


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.sample(1)  # test_threeway.py has both sides of each
def test_side_is_accepted_completely_for_any_conflict(project, side):
    base = [msgspec.structs.replace(BASE, doc_id=kind) for kind in KINDS]
    origin = revision(project, project.pinned, put(*base))
    left_side, right_side = (
        revision(
            project,
            origin,
            *(renamed(pair[place], kind) for kind, pair in KINDS.items()),
            put(document(f"only-{place}")),
        )
        for place in (0, 1)
    )
    project.vmrag("pin", left_side)
    project.vmrag("merge", right_side, code=1)
    listed = project.ask("resolve", code=1)
    assert {conflict["id"]: conflict["open"] for conflict in listed["conflicts"]} == {
        f"handbook/{kind}": fields for kind, (_, _, fields) in KINDS.items()
    }
    report = project.ask("resolve", f"--{side}")
    assert (report["conflicts"], report["decided"], report["next"]) == ([], len(KINDS), "vmrag merge --continue")
    project.vmrag("merge", "--continue")
    taken, other = (left_side, right_side) if side == "ours" else (right_side, left_side)
    only = {name: row for name, row in at(project, other).items() if name.startswith("handbook/only")}
    assert at(project, project.pinned) == at(project, taken) | only
    assert info(project, project.pinned).parents == (left_side, right_side)


def test_document_that_both_added_with_other_texts(project):
    left_side, right_side = torn(project, put(document("new", "ours")), put(document("new", "theirs")))
    project.vmrag("merge", right_side, code=1)
    row = project.ask("resolve", code=1)["conflicts"][0]
    assert (row["id"], row["open"], row["conflict"]["base"]) == ("handbook/new", ["content"], None)
    project.vmrag("resolve", "handbook/new", "--file", "-", stdin="both")
    project.vmrag("merge", "--continue")
    assert texts(project, project.pinned)["handbook/new"] == "both"
    assert info(project, project.pinned).parents == (left_side, right_side)


def test_fields_are_decided_one_by_one_and_the_others_are_left(project):
    ours, theirs, _ = KINDS["title and text"]
    _, right = torn(project, ours, theirs)
    project.vmrag("merge", right, code=1)
    report = project.ask("resolve", "d", "--field", "title=theirs", code=1)  # the id alone
    assert ([conflict["open"] for conflict in report["conflicts"]], report["decided"]) == ([["content"]], 0)
    assert "title  (decided: theirs)" in project.vmrag("resolve", code=1).out
    printed = project.vmrag("resolve", "handbook/d", "--field", "title=theirs", code=1).out
    assert "conflict  handbook/d  (open: hunk 1)" in printed
    assert "hint: run 'vmrag resolve handbook/d --hunk 1=ours'" in printed
    assert refused(project, "merge", "--continue")["code"] == "MERGE_CONFLICT"
    project.vmrag("resolve", "handbook/d", "--field", "content=ours")
    project.vmrag("merge", "--continue")
    row = at(project, project.pinned)["handbook/d"]
    assert (row.title, row.content) == ("theirs", "ours")


def test_side_with_a_text_or_a_field_of_the_other(project):
    ours, theirs, _ = KINDS["title and text"]
    _, right = torn(project, ours, theirs)
    project.vmrag("merge", right, code=1)
    project.vmrag("resolve", "handbook/d", "--ours", "--file", "-", stdin="by hand")
    project.vmrag("resolve", "handbook/d", "--field", "title=theirs")
    project.vmrag("merge", "--continue")
    row = at(project, project.pinned)["handbook/d"]
    assert (row.title, row.content) == ("theirs", "by hand")


SETTINGS = [Collection("handbook"), *(Collection("handbook", chunking=Chunking(size=size)) for size in (300, 600))]


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.sample(1)
def test_settings_of_a_collection(project, tmp_path, side):
    row = collections(project, project.pinned)["handbook"]
    rows = [msgspec.structs.replace(row, chunking=setting.chunking) for setting in SETTINGS]
    left_side, right_side = torn(project, Write(put_collections=rows[1:2]), Write(put_collections=rows[2:]))
    project.vmrag("merge", right_side, code=1)
    assert [(conflict["id"], conflict["open"]) for conflict in project.ask("resolve", code=1)["conflicts"]] == [
        ("handbook/", ["chunking"])
    ]
    assert refused(project, "resolve", "handbook/", "--file", "-", code=2, stdin="text")["code"] == "INVALID_PARAMETER"
    project.vmrag("resolve", "handbook/", f"--{side}")
    project.vmrag("merge", "--continue")
    assert collections(project, project.pinned)["handbook"].chunking == rows[1 if side == "ours" else 2].chunking
    assert info(project, project.pinned).parents == (left_side, right_side)
    whole(project, tmp_path)


@pytest.mark.parametrize(("removing", "side"), crossed(["ours", "theirs"], ["ours", "theirs"]))
@pytest.mark.sample(1)
def test_collection_that_one_side_removed_and_the_other_wrote_to(project, tmp_path, removing, side):
    row = msgspec.structs.replace(collections(project, project.pinned)["handbook"], name=NOTES)
    old, new = (msgspec.structs.replace(document(name), collection=NOTES) for name in ("old", "new"))
    without, wrote = Write(remove_collections=[NOTES]), put(new)
    pair = (without, wrote) if removing == "ours" else (wrote, without)
    _, right = torn(project, *pair, base=Write(put_collections=[row], put_documents=[old]))
    assert project.ask("merge", right, code=1)["conflicts"] == ["notes/"]
    project.vmrag("resolve", "notes/", f"--{side}")
    project.vmrag("merge", "--continue")
    assert (NOTES in collections(project, project.pinned)) == (side != removing)
    assert ("notes/new" in texts(project, project.pinned)) == (side != removing)
    whole(project, tmp_path)


# -- texts -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def _waiting(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def change(project: Project) -> None:
        ours, theirs, _ = KINDS["both edited"]
        _, right = torn(project, ours, theirs)
        project.vmrag("merge", right, code=1)

    return terminal.derive_template(tmp_path_factory, "waiting", template, change)


@pytest.fixture
def waiting(_waiting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A merge with one conflict of texts, `handbook/d`."""
    return terminal.copied(_waiting, tmp_path, monkeypatch)


def decisions(project: Project) -> dict:
    return json.loads((project.own / "merge.json").read_bytes())["decisions"]


@pytest.mark.parametrize(
    "data",
    [b"", "Grüße\n".encode(), b"a\r\nb\r\n", b"\xef\xbb\xbfwith a mark"],
    ids=["empty", "umlauts", "CRLF", "byte order mark"],
)
@pytest.mark.sample(1)
def test_resolve_stores_bytes_from_file_and_standard_input_unchanged(waiting, tmp_path, data):
    path = tmp_path / "text.md"
    path.write_bytes(data)
    waiting.vmrag("resolve", "handbook/d", "--file", str(path))
    stored = decisions(waiting)
    waiting.vmrag("resolve", "handbook/d", "--ours")
    waiting.vmrag("resolve", "handbook/d", "--file", "-", stdin=data.decode())
    assert decisions(waiting) == stored
    waiting.vmrag("merge", "--continue")
    row = at(waiting, waiting.pinned)["handbook/d"]
    assert (row.content, row.content_hash) == (data.decode(), content_hash(data.decode()))


def test_text_may_have_five_megabytes(waiting, tmp_path):
    path = tmp_path / "text.md"
    path.write_text("word " * 1_000_000)
    waiting.vmrag("resolve", "handbook/d", "--file", str(path))
    with opened(waiting) as workspace:
        rows = merge_state.apply_decisions(workspace, merge_state.require_merge(workspace)).rows
    assert path.read_text() in [put_document.content for put_document in rows.put_documents]


def test_resolve_rejects_files_without_text(waiting, tmp_path):
    before = (waiting.own / "merge.json").read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "nul").write_bytes(b"nul \0")
    for name, code, error in (
        ("latin", 3, "FILE_SYSTEM_ERROR"),
        ("nul", 3, "INVALID_METADATA"),
        ("missing", 3, "FILE_SYSTEM_ERROR"),
        ("folder", 3, "FILE_SYSTEM_ERROR"),
    ):
        assert refused(waiting, "resolve", "handbook/d", "--file", str(tmp_path / name), code=code)["code"] == error
        assert (waiting.own / "merge.json").read_bytes() == before
    assert len(waiting.ask("resolve", code=1)["conflicts"]) == 1


@pytest.mark.parametrize("removing", ["ours removed it", "theirs removed it"])
def test_text_keeps_a_document_that_one_side_removed(project, removing):
    ours, theirs, _ = KINDS[removing]
    _, right = torn(project, ours, theirs)
    project.vmrag("merge", right, code=1)
    assert "removed it" in project.vmrag("resolve", code=1).out
    project.vmrag("resolve", "handbook/d", "--file", "-", stdin="kept")
    project.vmrag("merge", "--continue")
    row = at(project, project.pinned)["handbook/d"]
    assert (row.content, row.title) == ("kept", "base")


# -- deciding --------------------------------------------------------------------------------------


def test_decided_conflict_can_be_decided_again(project):
    ours, theirs = (put(changed(content=side), document("e", side)) for side in ("ours", "theirs"))
    left_side, right_side = torn(project, ours, theirs)
    assert start(project, "merge", right_side).done().code == 1
    assert start(project, "resolve", "handbook/d", "--ours").done().code == 1
    assert [conflict["id"] for conflict in project.ask("resolve", code=1)["conflicts"]] == ["handbook/e"]
    project.vmrag("resolve", "handbook/e", "--theirs")
    assert start(project, "resolve", "handbook/d", "handbook/e", "--theirs").done().code == 0
    project.vmrag("resolve", "handbook/d", "--file", "-", stdin="by hand")
    result = start(project, "merge", "--continue").done()
    assert result.code == 0, result
    assert {name: text for name, text in texts(project, project.pinned).items() if name[-2:] in ("/d", "/e")} == {
        "handbook/d": "by hand",
        "handbook/e": "theirs",
    }
    assert info(project, project.pinned).parents == (left_side, right_side)


WRONG = {
    "an unknown conflict": (["handbook/nope", "--ours"], 3, "DOCUMENT_NOT_FOUND"),
    "one of two is unknown": (["handbook/d", "handbook/nope", "--ours"], 3, "DOCUMENT_NOT_FOUND"),
    "a collection without a conflict": (["handbook/", "--ours"], 3, "DOCUMENT_NOT_FOUND"),
    "an unknown conflict to show": (["handbook/nope", "--list"], 3, "DOCUMENT_NOT_FOUND"),
    "a field that is not in conflict": (["handbook/d", "--field", "title=ours"], 2, "INVALID_PARAMETER"),
    "an unknown field": (["--field", "colour=ours"], 2, "INVALID_PARAMETER"),
    "a field without a side": (["--field", "content"], 2, "INVALID_PARAMETER"),
    "a field with a wrong side": (["--field", "content=mine"], 2, "INVALID_PARAMETER"),
    "a file for all": (["--file", "-"], 2, "INVALID_PARAMETER"),
    "no decision": (["handbook/d"], 2, "INVALID_PARAMETER"),
    "a list that decides": (["--list", "--ours"], 2, "INVALID_PARAMETER"),
}


def test_wrong_decision_decides_nothing(waiting):
    before = (waiting.own / "merge.json").read_bytes()
    for what, (arguments, code, name) in WRONG.items():
        assert refused(waiting, "resolve", *arguments, code=code)["code"] == name, what
        assert (waiting.own / "merge.json").read_bytes() == before, what


def test_resolve_without_a_merge_has_nothing_to_do(project):
    for arguments in ([], ["--ours"], ["--list"], ["handbook/rest.md", "--theirs"]):
        assert refused(project, "resolve", *arguments)["code"] == "MERGE_CONFLICT"


def test_resolve_prints_word_differences_without_colours(waiting):
    out = waiting.vmrag("resolve", code=1).out
    assert "handbook/d" in out
    assert "[-base text-]{+ours+}" in out
    assert "{+theirs+}" in out
    assert "\x1b" not in out
    assert "hint: run 'vmrag resolve handbook/d --ours'" in out


def test_kill_during_resolve_leaves_the_old_or_new_decision(waiting):
    for body in (
        "import vmrag_link.workspace.merge.merge_state as m; m.save_merge = die",
        "from pathlib import Path as m; m.replace = die",
        "import vmrag_link.ops.resolve.resolve as m; m._build_report = die",
    ):
        assert run_patched(waiting, body, "resolve", "--theirs").code == -signal.SIGKILL
    waiting.vmrag("merge", "--continue")
    assert texts(waiting, waiting.pinned)["handbook/d"] == "theirs"


# -- git's own conflicts in the pin ----------------------------------------------------------------


@pytest.fixture(scope="session")
def _parted(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return terminal.derive_template(tmp_path_factory, "parted", template, part)


@pytest.fixture
def parted(_parted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """`main` pins `ours`, `topic` pins `theirs`; tags `ours`, `theirs` and `fork`."""
    return terminal.copied(_parted, tmp_path, monkeypatch)


def part(project: Project) -> None:
    ours, theirs, _ = KINDS["both edited"]
    origin = revision(project, project.pinned, put(BASE))
    left_side = revision(project, origin, ours, put(document("only-ours")))
    right = revision(project, origin, theirs, put(document("only-theirs")))
    for branch, name, place in (("main", "fork", origin), ("topic", "theirs", right), ("main", "ours", left_side)):
        project.git("switch", "-q", *(["-c"] if name == "theirs" else []), branch, env=OFF)
        project.commit(name, pin=pinning(project, place))
        project.git("tag", name)
    project.vmrag("sync")


def merging(project: Project) -> None:
    project.git("merge", "topic", check=False)


def rebasing(project: Project) -> None:
    project.git("rebase", "topic", check=False)


def picking(project: Project) -> None:
    project.git("cherry-pick", "topic", check=False)


def reverting(project: Project) -> None:
    """Ours edits on; then what it had edited before is reverted."""
    later = revision(project, project.pinned, put(changed(content="later"), document("later")))
    project.commit("later", pin=pinning(project, later))
    project.git("revert", "--no-edit", "ours", check=False)


def pulling(project: Project) -> None:
    project.git("pull", "-q", "--no-rebase", ".", "topic", check=False)


def popping(project: Project) -> None:
    project.git("switch", "-q", "-c", "stashing", "fork")
    project.write(".dolt-version", pinning(project, pinned_by(project, "theirs")))
    project.git("stash", "-q")
    project.git("switch", "-q", "main")
    project.git("stash", "pop", check=False)


def switching(project: Project) -> None:
    project.git("switch", "-q", "-c", "carrying", "fork")
    project.write(".dolt-version", pinning(project, pinned_by(project, "theirs")))
    project.git("checkout", "-q", "-m", "main", check=False)


GIT: dict[str, tuple[Callable[[Project], None], str, str, str]] = {
    "merge": (merging, "git commit", "ours", "theirs"),
    "rebase": (rebasing, "git rebase --continue", "theirs", "ours"),
    "cherry-pick": (picking, "git cherry-pick --continue", "ours", "theirs"),
    "revert": (reverting, "git revert --continue", "HEAD", "fork"),
    "pull": (pulling, "git commit", "ours", "theirs"),
    "stash pop": (popping, "git status", "ours", "theirs"),
    "checkout -m": (switching, "git status", "ours", "theirs"),
}
"""The git command of the conflict, the next command, and the owners of the pins that git calls ours
and theirs.
"""


def expected(project: Project, base: str, ours: str, theirs: str, **decided: str) -> dict[str, str]:
    """The union of both sides' changes, by sets."""
    before, our_texts, their_texts = (texts(project, revision) for revision in (base, ours, theirs))
    result = dict(our_texts)
    for name in before.keys() | their_texts.keys():
        if their_texts.get(name) != before.get(name):
            result.pop(name, None)
            if name in their_texts:
                result[name] = their_texts[name]
    return result | {f"handbook/{name}": text for name, text in decided.items()}


@pytest.mark.parametrize(
    ("command", "decision"),
    [*((command, "by hand") for command in GIT), ("revert", "ours")],
)
@pytest.mark.sample(1)
def test_git_conflict_in_the_pin_is_resolved_and_its_command_continues(parted, tmp_path, command, decision):
    begin, following, ours, theirs = GIT[command]
    begin(parted)
    left_side, right_side = pinned_by(parted, ours), pinned_by(parted, theirs)
    base = pinned_by(parted, "ours" if command == "revert" else "fork")
    assert parted.git("ls-files", "--unmerged")
    listed = parted.ask("resolve", "--list", code=1)
    assert (listed["kind"], listed["base"], listed["ours"], listed["theirs"]) == ("git", base, left_side, right_side)
    assert [conflict["id"] for conflict in listed["conflicts"]] == ["handbook/d"]
    if decision == "by hand":
        report = parted.ask("resolve", "handbook/d", "--file", "-", stdin="by hand")
        text = "by hand"
    else:
        report = parted.ask("resolve", f"--{decision}")
        text = texts(parted, left_side if decision == "ours" else right_side)["handbook/d"]
    assert (report["conflicts"], report["decided"], report["staged"], report["next"]) == ([], 1, True, following)
    assert parted.git("ls-files", "--unmerged") == ""
    assert parted.git("show", ":.dolt-version") == (parted.top / ".dolt-version").read_text().strip()
    result = parted.run(*shlex.split(following)[1:])
    assert result.returncode == 0, result
    if following != "git status":
        assert parted.git("status", "--porcelain") == ""
        assert pinned_by(parted, "HEAD") == report["pin"]["dolt_commit"]
    assert texts(parted, parted.pinned) == expected(parted, base, left_side, right_side, d=text)
    joins = command in ("merge", "pull")
    assert info(parted, parted.pinned).parents == ((left_side, right_side) if joins else (left_side,))
    assert parted.status()["state"] == "in_sync"
    whole(parted, tmp_path)


SAID = {
    "merge": "the merge of git's topic is open; run 'vmrag resolve' to resolve the conflicts",
    "rebase": "the merge of your commit {theirs}, which is being rebased, is open; run 'vmrag resolve' to resolve the conflicts",
    "cherry-pick": "the merge of the picked commit {theirs} is open; run 'vmrag resolve' to resolve the conflicts",
    "revert": "the merge of the revert of {ours} is open; run 'vmrag resolve' to resolve the conflicts",
    "pull": "the merge of git's topic is open; run 'vmrag resolve' to resolve the conflicts",
    "stash pop": "the merge of your stash is open; run 'vmrag resolve' to resolve the conflicts",
    "checkout -m": "the merge of git's main is open; run 'vmrag resolve' to resolve the conflicts",
}


@pytest.mark.parametrize("command", [command for command in GIT if command != "checkout -m"])
@pytest.mark.sample(1)
@pytest.mark.hooks("on")
def test_conflict_closed_by_git_add_is_still_open(parted, tmp_path, command):
    """Users commonly type `git add --all`.

    The pin is ours then, and their documents are not lost: status reports them, and resolve finds
    them.
    """
    begin, following, ours, theirs = GIT[command]
    begin(parted)
    left_side, right_side = pinned_by(parted, ours), pinned_by(parted, theirs)
    base = pinned_by(parted, "ours" if command == "revert" else "fork")
    names = {side: parted.git("rev-parse", "--short=7", side) for side in ("ours", "theirs")}
    said = SAID[command].format(ours=names["ours"], theirs=names["ours" if command == "rebase" else "theirs"])
    assert said in parted.status()["reasons"]
    parted.git("add", "--all")
    assert parted.git("ls-files", "--unmerged") == ""
    status = parted.status()
    assert said in status["reasons"]
    assert status["hint"] == ("" if status["in_sync"] else "run 'vmrag resolve' to resolve the conflicts")
    if following == "git commit":
        refusal = parted.run("commit", "-q", "--no-edit")
        assert refusal.returncode
        assert "run 'vmrag resolve' to resolve the conflicts" in refusal.stderr
        assert "--no-verify" not in refusal.stderr
    report = parted.ask("resolve", "--theirs")
    assert (report["conflicts"], report["decided"], report["next"]) == ([], 1, following)
    assert said not in parted.status()["reasons"]
    if following == "git commit":
        assert refused(parted, "resolve", "--ours")["hint"]
    result = parted.run(*shlex.split(following)[1:])
    assert result.returncode == 0, result
    assert texts(parted, parted.pinned) == expected(
        parted, base, left_side, right_side, d=texts(parted, right_side)["handbook/d"]
    )
    whole(parted, tmp_path)


def test_merge_with_superset_side_is_not_open(parted):
    """`git add` with nothing to decide: what is pinned is the merge."""
    parted.git("merge", "-q", "--no-commit", "-s", "ours", "fork", check=False)
    assert not [reason for reason in parted.status()["reasons"] if "resolve" in reason]


def test_decision_is_signed_by_the_person_and_retry_is_identical(parted):
    """An automatic merge takes author and date from its sides, a decided one from the person."""
    merging(parted)
    body = "import vmrag_link.ops.resolve.resolve as m; m.write_atomically = die"
    assert run_patched(parted, body, "resolve", "--theirs").code == -signal.SIGKILL
    with opened(parted) as workspace:
        before = workspace.engine.log(workspace.engine.find_branch("vmrag_keep").head, limit=3)
        made = [revision_info for revision_info in before for parent in revision_info.parents]
    assert made
    parted.vmrag("resolve", "--list")
    signed = info(parted, parted.pinned)
    assert signed.author == "Ada Lovelace <ada@example.com>"
    assert signed.date > DATE
    assert "Vmrag-Merge: lines-1" in signed.message
    assert any(signed.revision in info.parents for info in made), "the revision that was made before the kill"


def test_while_git_waits_vmrag_merge_sends_to_resolve(parted):
    merging(parted)
    assert "vmrag resolve" in refused(parted, "merge", "--continue")["hint"]
    assert refused(parted, "merge", "--abort", code=3)["hint"]
    assert refused(parted, "merge", "first", code=3)["code"] == "GIT_BUSY"
    assert refused(parted, "commit", "-m", "m", code=3)["code"] == "GIT_BUSY"
    assert any("vmrag resolve" in reason for reason in parted.status()["reasons"])


def test_conflict_that_ended_by_hand_leaves_no_decision_for_the_next(parted):
    """Two conflicts wait; one is decided; then git's conflict is ended by hand, and another one
    comes up about the same document.
    """
    more = revision(parted, pinned_by(parted, "theirs"), put(document("only-ours", "theirs")))
    parted.git("switch", "-q", "topic")
    parted.commit("more", pin=pinning(parted, more))
    parted.git("switch", "-q", "main")
    merging(parted)
    parted.vmrag("resolve", "handbook/d", "--theirs", code=1)
    parted.git("checkout", "-q", "--ours", ".dolt-version")
    parted.git("add", ".dolt-version")
    parted.git("commit", "-q", "--no-edit", env=OFF)
    other = revision(parted, pinned_by(parted, "fork"), put(changed(content="third"), document("only-ours", "third")))
    parted.git("switch", "-q", "-c", "third", "fork", env=OFF)
    parted.commit("third", pin=pinning(parted, other))
    parted.git("switch", "-q", "main", env=OFF)
    parted.git("merge", "third", check=False)
    report = parted.ask("resolve", code=1)
    assert ([conflict["id"] for conflict in report["conflicts"]], report["decided"]) == (
        ["handbook/d", "handbook/only-ours"],
        0,
    )
    parted.vmrag("resolve", "--ours")
    assert texts(parted, parted.pinned) == texts(parted, pinned_by(parted, "ours"))


@pytest.mark.parametrize("command", ["merge", "rebase"])
def test_abort_discards_the_decisions(parted, command):
    def count_decided() -> int:
        return parted.ask("resolve", "--list", code=1)["decided"]

    more = revision(parted, pinned_by(parted, "theirs"), put(document("only-ours", "theirs")))
    parted.git("switch", "-q", "topic", env=OFF)
    parted.commit("more", pin=pinning(parted, more))
    parted.git("switch", "-q", "main", env=OFF)
    GIT[command][0](parted)
    parted.vmrag("resolve", "handbook/d", "--ours", code=1)
    parted.git("merge-tree", "--write-tree", "main", "topic", check=False)  # starts the driver, but no merge
    assert count_decided() == 1
    parted.git(command, "--abort")
    GIT[command][0](parted)
    assert count_decided() == 0


def test_resolve_under_index_lock_leaves_pin_unstaged_until_next_try(parted):
    merging(parted)
    lock = parted.top / ".git/index.lock"
    lock.touch()
    result = parted.vmrag("resolve", "--theirs", "--json", code=1)
    assert (result.json["staged"], result.json["next"]) == (False, "git add .dolt-version")
    assert parted.git("ls-files", "--unmerged")
    lock.unlink()
    report = parted.ask("resolve")
    assert (report["staged"], report["next"]) == (True, "git commit")
    assert parted.git("ls-files", "--unmerged") == ""
    assert texts(parted, parted.pinned)["handbook/d"] == "theirs"


@pytest.mark.parametrize(
    "body",
    [
        f"from {ENGINE_CLASS} as m; m.commit_onto = die",
        "import vmrag_link.ops.resolve.resolve as m; m.write_atomically = die",
        "from vmrag_link.git import staging as m; m.stage_path = die",
        "import vmrag_link.workspace.merge.merge_state as m; m.clear_merge = die",
    ],
    ids=["before the revision", "before the pin", "before it is staged", "before merge.json goes"],
)
@pytest.mark.sample(1)
def test_kill_at_any_step_is_finished_by_the_next_resolve(parted, tmp_path, body):
    merging(parted)
    assert run_patched(parted, body, "resolve", "--theirs").code == -signal.SIGKILL
    result = parted.run_quietly("resolve", "--list")
    assert result.code == 0 or "no merge is open" in result.err
    parted.vmrag("sync")
    parted.git("commit", "-q", "--no-edit")
    left_side, right_side = pinned_by(parted, "ours"), pinned_by(parted, "theirs")
    assert info(parted, parted.pinned).parents == (left_side, right_side)
    assert texts(parted, parted.pinned) == expected(
        parted, pinned_by(parted, "fork"), left_side, right_side, d="theirs"
    )
    assert pinned_by(parted, "HEAD") == parted.pinned
    whole(parted, tmp_path)


def test_markers_left_without_the_driver_are_merged_by_resolve(parted, tmp_path):
    parted.git("-c", "merge.vmrag.driver=false", "merge", "topic", check=False)
    assert any("vmrag resolve" in reason for reason in parted.status()["reasons"])
    parted.vmrag("resolve", "--theirs")
    parted.git("commit", "-q", "--no-edit")
    left_side, right_side = pinned_by(parted, "ours"), pinned_by(parted, "theirs")
    assert texts(parted, parted.pinned) == expected(
        parted, pinned_by(parted, "fork"), left_side, right_side, d="theirs"
    )
    whole(parted, tmp_path)


def test_side_with_an_unreadable_or_missing_pin_is_named(parted):
    for name, pin in (("strange", "no pin\n"), ("dangling", pinning(parted, "0" * 40))):
        parted.git("switch", "-q", "-c", name, "fork", env=OFF)
        parted.write(".dolt-version", pin)
        parted.git("commit", "-q", "-a", "-m", name, env=OFF)
        parted.git("switch", "-q", "main", env=OFF)
        parted.git("merge", name, check=False)
        error = refused(parted, "resolve", code=None)
        assert error["code"] in ("PIN_MALFORMED", "PIN_MISSING_REVISION", "COMMIT_NOT_FOUND")
        assert parted.status()["state"] in ("merging", "malformed", "drift")
        parted.git("merge", "--abort")


# -- an open vmrag merge during another operation --------------------------------------------------


def test_resolve_refuses_on_another_branch_that_has_both_sides(project):
    """The same merge was made elsewhere; a command there must not lose the decisions made here."""
    ours, theirs, _ = KINDS["both edited"]
    left_side, right_side = torn(project, ours, theirs, base=put(document("e")))
    left_side = revision(project, left_side, put(document("e", "ours")))
    right_side = revision(project, right_side, put(document("e", "theirs")))
    project.vmrag("pin", left_side)
    project.git("commit", "-q", "-m", "ours", env=OFF)
    project.git("branch", "-q", "done")
    project.vmrag("merge", right_side, code=1)
    project.vmrag("resolve", "handbook/d", "--theirs", code=1)
    with opened(project) as workspace:
        both = workspace.engine.commit_onto(left_side, [], joining=right_side, message="both", author=AUTHOR, date=DATE)
    project.git("switch", "-q", "done", env=OFF)
    project.commit("both", pin=pinning(project, both))
    error = refused(project, "resolve")
    assert (error["code"], "git switch main" in error["hint"]) == ("KB_MOVED", True)
    project.git("switch", "-q", "main", env=OFF)
    report = project.ask("resolve", code=1)
    assert (report["kind"], report["decided"], [conflict["id"] for conflict in report["conflicts"]]) == (
        "merge",
        1,
        ["handbook/e"],
    )
    project.vmrag("resolve", "--ours")
    project.vmrag("merge", "--continue")
    assert texts(project, project.pinned).items() >= {"handbook/d": "theirs", "handbook/e": "ours"}.items()
    assert info(project, project.pinned).parents == (left_side, right_side)


def test_vmrag_merge_stays_open_during_a_git_merge(parted, tmp_path):
    ours = parted.pinned
    third = revision(parted, pinned_by(parted, "fork"), put(document("third")))
    parted.vmrag("merge", third, "--no-commit")
    merging(parted)
    assert parted.ask("resolve", code=1)["kind"] == "git"
    parted.vmrag("resolve", "--theirs")
    parted.git("commit", "-q", "--no-edit")
    both = parted.pinned
    assert any(f"the merge of {third} is open" in reason for reason in parted.status()["reasons"])
    assert refused(parted, "commit", "-m", "m")["code"] == "KB_MOVED"  # the result would not be a merge
    assert parted.marks()["third"] == "added"
    parted.vmrag("pin", ours)  # as the hint advises
    report = parted.ask("commit", "-m", "with the third")
    assert info(parted, report["revision"]).parents == (ours, third)
    assert texts(parted, report["revision"]) == texts(parted, ours) | {"handbook/third": "text"}
    parted.vmrag("merge", both)
    assert info(parted, parted.pinned).parents == (report["revision"], both)
    assert texts(parted, parted.pinned) == texts(parted, both) | {"handbook/third": "text"}
    whole(parted, tmp_path)


def test_decisions_about_a_git_conflict_keep_an_open_vmrag_merge(parted):
    more = revision(parted, pinned_by(parted, "theirs"), put(document("only-ours", "theirs")))
    parted.git("switch", "-q", "topic", env=OFF)
    parted.commit("more", pin=pinning(parted, more))
    parted.git("switch", "-q", "main", env=OFF)
    third = revision(parted, pinned_by(parted, "fork"), put(changed(content="third")))
    parted.vmrag("merge", third, code=1)
    stored = (parted.own / "merge.json").read_bytes()
    merging(parted)
    assert parted.ask("resolve", "handbook/d", "--theirs", code=1)["decided"] == 1
    assert (parted.own / "merge.json").read_bytes() == stored
    parted.git("merge", "--abort")
    report = parted.ask("resolve", code=1)
    assert (report["kind"], report["theirs"], report["decided"]) == ("merge", third, 0)
    merging(parted)
    assert parted.ask("resolve", code=1)["decided"] == 0
    parted.git("merge", "--abort")
    parted.vmrag("resolve", "--theirs")
    parted.vmrag("merge", "--continue")
    assert texts(parted, parted.pinned)["handbook/d"] == "third"


def test_our_conflict_markers_get_into_no_document(waiting: Project) -> None:
    for text, line in (
        ("<<<<<<< main\na\n||||||| base\nb\n=======\nc\n>>>>>>> other\n", 1),
        ("a\r\n||||||| base\r\n", 2),
        ("a\n\n<<<<<<< main  \n", 3),
    ):
        error = refused(waiting, "resolve", "handbook/d", "--file", "-", code=3, stdin=text)
        assert error["details"]["line"] == line
    assert waiting.ask("resolve", "--list", code=1)["conflicts"]


def test_document_about_conflicts_can_be_resolved(project: Project) -> None:
    """Our markers are longer than those that the document shows; only ours are refused."""
    about = "git writes:\n<<<<<<< main\nmine\n=======\nyours\n>>>>>>> theirs\n"
    _, right = torn(project, put(changed(content=f"{about}one")), put(changed(content="two")))
    project.vmrag("merge", right, code=1)
    error = refused(project, "resolve", "handbook/d", "--file", "-", code=3, stdin=f"{about}<<<<<<<< main\n")
    assert error["details"]["line"] == 7
    project.vmrag("resolve", "handbook/d", "--file", "-", stdin=f"{about}{about}both")

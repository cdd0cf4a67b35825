"""Copies of the contract's states, each of which is built once in a run, and what stands for `<X>`
in a call.

A test module takes the fixtures with `templates, world = contract_world.templates,
contract_world.world`; a state is
`world.state("notes")`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.contract.reading import COMMON, TOOLS
from tests.support import compounding
from tests.support.contract_states import MADE, OFF, State, no_model, other_model, pending, remote
from tests.support.mcp import Tools
from tests.support.repos import Repo, isolate
from tests.support.templates import build_once, copy_tree
from tests.support.travel import bare, git_server
from tests.support.websites import Page, website
from vmrag_link import locks
from vmrag_link.engines.folder import LOCK_NAME
from vmrag_link.toolsets.compounding.mirror import ActiveProject
from vmrag_mcp.call import NO_CONSENT

Templates = Callable[[str], Path]


PAGES: dict[str, Page] = {
    "/page.html": (200, {"Content-Type": "text/html"}, b"<title>Page</title><p>Rivers on the web."),
    "/picture": (200, {"Content-Type": "image/x-xcf"}, b"no text"),
    "/blank.html": (200, {"Content-Type": "text/html"}, b"<p> </p>"),
}

CHANGED_BY_READING = ("broken_index",)
"""States that a reading call repairs."""


def open_tools(state: State, tool: str, *, given: str = "", agreed: Mapping[str, bool] = NO_CONSENT) -> Tools:
    """A server for a call of a tool in a state. For tools that want one, a project is active, of
    which no row is written but by the call; not in the state `inactive`.
    """
    tools = Tools(state.top, agreed=agreed)
    if "compounding" in TOOLS[tool]["toolsets"] and tool != "activate_project" and given != "inactive":
        tools.session.state.toolset_values["vmrag_link.toolsets.compounding"] = ActiveProject(
            str(state.top / compounding.CONFIG), read_only=True
        )
    return tools


class World:
    """Copies of the states, and what stands for `<X>` in a call. Use it as a context."""

    def __init__(self, templates: Templates, shared: Path, scratch: Path, patch: pytest.MonkeyPatch) -> None:
        self._templates = templates
        self._shared = shared
        self._scratch = scratch
        self._patch = patch
        self._open = contextlib.ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def state(self, name: str) -> State:
        """Return a private repository in this state; calls are made in its `top`.

        Ends locks of the previous state.
        """
        self._open.close()
        live = getattr(self, f"_live_{name}", None)
        return live() if live else self._copy(name)

    def reading(self, name: str) -> State:
        """Return a shared copy of the state for calls that only read, if reading leaves it
        unchanged.
        """
        if name in CHANGED_BY_READING or hasattr(self, f"_live_{name}"):
            return self.state(name)
        folder = self._shared / name
        if not folder.exists():
            copy_tree(self._templates(name), folder)
        return State(folder / "project")

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

    def _value_guide(self, state: State) -> str:
        return next(document["doc_id"] for document in state.ask("list", "--collection", "handbook")["documents"])

    def _value_config(self, state: State) -> str:
        return str(state.top / compounding.CONFIG)

    def _value_chat(self, state: State) -> str:
        return self._only(state, "chat_history_v1")

    def _value_evidence(self, state: State) -> str:
        results = state.ask("query", "Test run", "--collection", "test_results_v1", "-k", "20")["results"]
        return next(document["doc_id"] for document in results if document["metadata"]["evidence_type"] == "test_run")

    def _only(self, state: State, collection: str) -> str:
        [document] = state.ask("list", "--collection", collection)["documents"]
        return document["doc_id"]

    def _value_doc(self, state: State) -> str:
        noted = state.folder / "doc"
        return noted.read_text() if noted.exists() else "absent"

    def _value_page(self, state: State) -> str:
        return self._served("/page.html", state)

    def _value_picture(self, state: State) -> str:
        return self._served("/picture", state)

    def _value_blank(self, state: State) -> str:
        return self._served("/blank.html", state)

    def _value_gone(self, state: State) -> str:
        return self._served("/gone", state)

    def _served(self, path: str, state: State) -> str:
        """A URL of this machine, whose pages may be fetched in this state from now on."""
        if (state.top / ".git").exists():
            state.git("config", "vmrag.ingest.allow-private-urls", "127.0.0.1")
        site = self._open.enter_context(website())
        site.pages |= PAGES
        return site.url(path)

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
        copy_tree(self._templates(name), target)
        return State(target / "project")

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
            self._open.enter_context(locks.hold_exclusive(path, purpose="a test", timeout=0))
        return state


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """The folder of a state by its name; each is built when a test first asks for it."""

    def template(name: str) -> Path:
        return build_once(tmp_path_factory, f"state-{name}", lambda folder: build(name, folder))

    def build(name: str, folder: Path) -> None:
        parent, make = MADE[name]
        if parent:
            copy_tree(template(parent), folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GIT_TEMPLATE_DIR", "")
            make(State(folder / "project"))

    return template


@pytest.fixture
def world(
    templates: Templates, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", "")
    (tmp_path / "states").mkdir()
    read = tmp_path_factory.getbasetemp() / "read-states"
    read.mkdir(exist_ok=True)
    with World(templates, read, tmp_path / "states", monkeypatch) as made:
        yield made

"""`vmrag` as a person types it and as a program calls it, and repositories with knowledge in them
to start from.

A test module takes the fixtures with `template, project = terminal.template, terminal.project`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import hints
from tests.support.repos import ON, Repo, isolate, make_repo
from tests.support.templates import build_once, copy_tree
from vmrag_link.cli.main import run
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import query
from vmrag_link.workspace.follow.search_scope import ranked_at

SCRIPT = Path(sys.executable).with_name("vmrag")
QUERIES = ("install the program", "rest and sleep", "certificates for TLS", "uv", "faq question")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """Return the error on stderr as JSON; stdout is empty then."""
        assert self.out == ""
        return json.loads(self.err[self.err.index("{") :])["error"]


@dataclass(frozen=True)
class Project(Repo):
    """A git work tree in which `vmrag` is run."""

    def vmrag(self, *arguments: str, code: int | None = 0, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        """Run in this process, as if started in the work tree: no start-up time. `code` None:
        whatever it is.
        """
        result = self._run(arguments, stdin, env)
        assert code in (None, result.code), f"vmrag {' '.join(arguments)}: {result}"
        if hints.ENABLED and result.code:
            self.walk(result, arguments, stdin, env)
        return result

    def walk(
        self, failed: Done, arguments: tuple[str, ...], stdin: str = "", env: dict[str, str] | None = None
    ) -> None:
        """Run the hint of a failed command, on a copy: it must help."""
        hint, folder = hints.read_hint(failed.err), hints.folder_of_test(self.top)
        if not hint or folder is None:
            return

        def again() -> bool:
            return hints.read_hint(self._run(arguments, stdin, env).err) == hint

        for way in hints.list_ways(hint):
            wrong = hints.try_on_copy(folder, lambda way=way: hints.find_problem(way, self.top, again))
            assert wrong is None, f"vmrag {' '.join(arguments)} said: {failed.err}\nIts hint does not help: {wrong}"

    def _run(self, arguments: tuple[str, ...], stdin: str, env: dict[str, str] | None) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.chdir(self.top)
            return Done(run(arguments), out.getvalue(), err.getvalue())

    def ask(self, *arguments: str, code: int = 0, **options: Any) -> Any:
        """Return the command's answer as JSON."""
        return self.vmrag(*arguments, "--json", code=code, **options).json

    def start(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        """Run as a process of its own."""
        result = subprocess.run(
            [SCRIPT, *arguments],
            cwd=self.top,
            env=os.environ | (env or {}),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(result.returncode, result.stdout, result.stderr)

    # -- shorthands --------------------------------------------------------------------------------

    def put(self, doc_id: str, text: str, *, collection: str = "handbook") -> None:
        self.vmrag("add", "-", "--collection", collection, "--id", doc_id, stdin=text)

    def drop(self, doc_id: str, *, collection: str = "handbook") -> None:
        self.vmrag("rm", doc_id, "--collection", collection)

    def record(self, message: str, **documents: str) -> str:
        """Store documents, commit them to the knowledge base and to git; returns the revision.
        `faq="text"` is `faq.md`.
        """
        for name, text in documents.items():
            self.put(f"{name}.md", text)
        revision = self.ask("commit", "-m", message)["revision"]
        self.git("commit", "-q", "--no-verify", "-m", message)
        return revision

    def push(self, *arguments: str) -> str:
        """`git push -q`, with the hook that takes the knowledge along."""
        return self.git("push", "-q", *arguments, env=ON)

    @property
    def pinned(self) -> str:
        return json.loads((self.top / ".dolt-version").read_text())["dolt_commit"]

    def status(self) -> dict[str, Any]:
        report = json.loads(self.run_quietly("status", "--json").out)
        assert report["in_sync"] == (report["state"] == "in_sync")
        return report

    def run_quietly(self, *arguments: str) -> Done:
        """Run with any exit code."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(["-C", str(self.top), *arguments])
        return Done(code, out.getvalue(), err.getvalue())

    def marks(self) -> dict[str, str | None]:
        """How `list` marks each document."""
        return {document["doc_id"]: document["uncommitted"] for document in self.ask("list")["documents"]}

    def texts(self) -> dict[str, str]:
        """Every document's text, as the workspace has it."""
        documents = [document for document in self.ask("list")["documents"] if document["uncommitted"] != "removed"]
        with self._here(), opened(self) as ws:
            texts = {document.key: document.content for document in ws.engine.read_documents(ws.locate_documents())}
        return {document["doc_id"]: texts[document["collection"], document["doc_id"]] for document in documents}

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        """The environment of the person whose work tree this is."""
        yield

    def answers(self, ref: str | None = None) -> list[list[Any]]:
        """Ids, order, scores and texts of all answers in every mode: equal for equal knowledge,
        whatever way it went. As `vmrag query` finds them, in an index that is opened once for all.
        """
        queries = [Query(text, k=20, mode=mode) for text in QUERIES for mode in Mode]
        with self._here(), opened(self) as ws:
            at = ranked_at(ws, ref) if ref is not None else None
            result = query.search_index(
                ws, lambda searcher, _: [searcher.search(query_request) for query_request in queries], at=at
            )
        return [[(hit.collection, hit.doc_id, hit.chunk, hit.score, hit.text) for hit in hits] for hits in result]

    @property
    def own(self) -> Path:
        """Return vmrag's folder for this worktree alone."""
        return Path(self.git("rev-parse", "--path-format=absolute", "--git-dir")) / "vmrag"

    @property
    def shared(self) -> Path:
        return Path(self.git("rev-parse", "--path-format=absolute", "--git-common-dir")) / "vmrag"

    def forget_indexes(self) -> None:
        """The index is derived: from here on it is built afresh."""
        shutil.rmtree(self.shared / "views")
        for name in ("segments", "uncommitted"):
            shutil.rmtree(self.shared / name, ignore_errors=True)

    def consistent(self) -> bool:
        """In sync, and the index equals one that is built afresh from the knowledge base."""
        result = self.answers(), self.ask("list")  # it counts chunks if an index exists: the answers build it
        self.forget_indexes()
        return result == (self.answers(), self.ask("list"))


def new_project(top: Path, *, settings: str = "embedding:\n  model: hash\n") -> Project:
    """An empty git repository with a settings file that makes tests fast; call `isolate` first."""
    project = Project(make_repo(top).top)
    project.write(".vmrag.yaml", settings)
    return project


DOCUMENTS = {
    "setup.md": "# Setup\n\nInstall the program with pip.\n",
    "rest.md": "# Rest\n\nTake a rest, and sleep well.\n",
    "deep/tls.txt": "Certificates for TLS are renewed every month.\n",
}


def build_template(top: Path) -> Project:
    """Two code branches whose knowledge differs, HEAD on `main`; hooks installed.

    main: `first` (three documents) - `faq`;  feature: `first` - `uv` (one added, one modified, one
    removed)
    """
    project = new_project(top)
    for name, text in DOCUMENTS.items():
        project.write(f"docs/{name}", text)
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.vmrag("import", "docs", "--collection", "handbook", "--base", "docs")
    project.vmrag("commit", "-m", "first")
    project.git("add", "-A")
    project.git("commit", "-q", "--no-verify", "-m", "first")
    project.git("tag", "first")
    project.git("switch", "-q", "-c", "feature")
    project.put("rest.md", "# Rest\n\nNever rest.\n")
    project.drop("deep/tls.txt")
    project.record("uv", uv="Use uv.")
    project.git("switch", "-q", "main")
    project.record("faq", faq="A frequent question.")
    return project


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "terminal", lambda folder: build_template(folder / "project")) / "project"


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the template, in an isolated home."""
    return copied(template, tmp_path, monkeypatch)


def derive_template(
    factory: pytest.TempPathFactory, name: str, template: Path, change: Callable[[Project], object]
) -> Path:
    """A template that `change` makes of a copy of another one."""

    def build(folder: Path) -> None:
        change(Project(copy_tree(template, folder / "project")))

    return build_once(factory, name, build, by=change) / "project"


def copied(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return Project(copy_tree(template, tmp_path / "project"))


@contextlib.contextmanager
def opened(project: Project) -> Iterator[Workspace]:
    workspace = Workspace.open(project.top, QUIET)
    try:
        yield workspace
    finally:
        workspace.close()


def on_a_terminal(project: Project, *arguments: str, pager: str) -> str:
    """Return the visible output, including escape sequences; `pager`: value of GIT_PAGER, else
    git's own.
    """
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name != "GIT_PAGER"}
    environ |= {"GIT_PAGER": pager} if pager else {}
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen([SCRIPT, *arguments], cwd=project.top, env=environ, **streams) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # Linux reports a closed other side this way
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode().replace("\r\n", "\n")

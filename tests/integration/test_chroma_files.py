"""Chroma's store has the files of HEAD next to the stored documents, with a knowledge base and
without one.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import chroma as chroma_client
from tests.support.chroma import needs_chroma, read_collections
from tests.support.repos import isolate
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project, new_project, opened
from vmrag_hooks import installer
from vmrag_link import hints
from vmrag_link.chroma import bindings
from vmrag_link.git import hook_choice, hook_config, hooks, plumbing
from vmrag_link.index import view
from vmrag_link.progress import QUIET
from vmrag_link.sync import background, chroma_builder
from vmrag_link.sync.chroma_state import ATTEMPTS, ChromaStores
from vmrag_link.workspace.committed_files import bind_lacking_files

pytestmark = [pytest.mark.hooks("on"), pytest.mark.sample(1), needs_chroma]

client = chroma_client.client

SETTINGS = """embedding:
  model: hash
sources:
  - collection: docs
    paths: ["docs/"]
  - collection: code
    kind: code
    paths: ["src/"]
"""
KINDS = ["files", "stored"]


def build(folder: Path, kind: str) -> Project:
    """Three commits with different files. `stored`: they also pin different documents."""
    project = new_project(folder / "project", settings=SETTINGS)

    def commit(name: str, **documents: str) -> None:
        if kind == "stored" and documents:
            for doc_id, text in documents.items():
                project.put(f"{doc_id}.md", text)
            project.vmrag("commit", "-m", name)
        project.git("add", "-A")
        project.git("commit", "-q", "-m", name)
        project.git("tag", name)

    project.write("docs/install.md", "# Install\n\nA zebra installs it.\n")
    project.write("docs/tls.md", "# TLS\n\nA zebra has certificates.\n")
    project.write("src/stripes.py", "def zebra():\n    return 1\n")
    if kind == "stored":
        project.vmrag("init", "--knowledge-base")
    commit("first", note="A zebra in a note.")
    project.write("docs/tls.md", "# TLS\n\nA zebra renews certificates.\n")
    project.write("docs/deep/more.md", "# More\n\nMore about each zebra.\n")
    commit("second", note="A zebra in a changed note.", more="Another zebra.")
    project.git("rm", "-q", "docs/install.md")
    project.write("src/stripes.py", "def zebra():\n    return 2\n\n\ndef zebras():\n    return 3\n")
    commit("third")
    return project


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        kind: build_once(tmp_path_factory, f"chroma-{kind}", lambda top, kind=kind: build(top, kind)) for kind in KINDS
    }


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def project(
    kind: str, templates: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.delenv("VMRAG_INDEX_CHROMA")
    copied = Project(copy_tree(templates[kind], tmp_path / "copy") / "project")
    copied.vmrag("status", code=None)
    yield copied
    background.wait_for_end(get_job(copied), within=60)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Start no process; return a list with an entry for each that would have been started."""
    starts: list[str] = []

    def start(chroma: ChromaStores) -> int:
        starts.append(chroma.places.top.name)
        process = subprocess.Popen(["true"])
        process.wait()
        return process.pid

    monkeypatch.setattr(ChromaStores, "start_builder", start)
    return starts


def get_job(project: Project) -> background.Job:
    return background.get_chroma_job(plumbing.locate_work_tree(project.top))


def wait_until_ready(project: Project) -> dict[str, str]:
    """Wait for the background process without a command that could start it. Return its store."""
    deadline = time.monotonic() + 60
    while True:
        with opened(project) as ws:
            state = ws.chroma.local.read_state()
        if state.state == "ready":
            assert state.path is not None
            return {"chroma": state.path, "tenant": bindings.TENANT, "database": bindings.DATABASE}
        assert state.state == "following", state
        assert time.monotonic() < deadline, state
        time.sleep(background.POLL_SECONDS)


def query(project: Project, *, code: bool = False) -> dict[str, dict[str, str]]:
    """Return the texts that `vmrag query` finds, by collection and chunk."""
    texts: dict[str, dict[str, str]] = {}
    for result in project.ask("query", "zebra", "-k", "100")["results"]:
        if code or result["collection"] != "code":
            chunks = texts.setdefault(result["collection"], {})
            chunks[f"{result['doc_id']}_chunk_{result['chunk']}"] = result["text"].strip()
    return texts


def read(client: subprocess.Popen[str], report: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the texts that Chroma's client reads, without empty collections."""
    collections = read_collections(client, report)
    stripped = {name: {row: text.strip() for row, text in rows.items()} for name, rows in collections.items()}
    return {name: rows for name, rows in stripped.items() if rows}


def build_here(project: Project) -> list[str]:
    """Do the work of the background process in this one; return its log."""
    log: list[str] = []
    with opened(project) as ws:
        chroma_builder.build_missing_stores(
            ws.chroma.local,
            vectors=ws.read_vectors,
            progress=QUIET,
            log=log.append,
            bind_files=lambda: bind_lacking_files(ws, log.append),
        )
    return log


# -- the same as a query ---------------------------------------------------------------------------


@pytest.mark.parametrize("sources", ["documents", "all"])
@pytest.mark.sample(2)
def test_client_reads_query_results_after_git_operations(project, client, sources):
    project.git("config", "vmrag.index.chroma", "follow")
    project.git("config", "vmrag.chroma.sources", sources)
    project.vmrag("install")
    everything = sources == "all"
    steps = [
        ("switch", "-q", "--detach", "first"),
        ("switch", "-q", "main"),
        ("checkout", "-q", "second"),
        ("switch", "-q", "-c", "side"),
        ("rm", "-q", "docs/tls.md"),
        ("commit", "-q", "-m", "no TLS"),
        ("commit", "-q", "--allow-empty", "-m", "empty"),
        ("rebase", "-q", "main"),
        ("switch", "-q", "main"),
        ("merge", "-q", "--ff-only", "side"),
    ]
    for step in steps:
        output = project.run(*step)
        assert output.returncode == 0, output.stderr
        if step[0] == "rm":
            continue
        store = read(client, wait_until_ready(project))
        assert store == query(project, code=everything), step
        assert ("code" in store) == everything
    log = (project.shared / "builder" / "chroma.log").read_text()
    assert "failed" not in log


def test_store_is_right_after_two_checkouts_in_quick_succession(project, client):
    project.git("config", "vmrag.index.chroma", "follow")
    project.vmrag("install")
    project.git("switch", "-q", "--detach", "first")
    project.git("switch", "-q", "--detach", "second")
    assert read(client, wait_until_ready(project)) == query(project)


def test_pulled_commits_reach_the_store(project, client, tmp_path):
    project.git("config", "vmrag.index.chroma", "follow")
    project.vmrag("install")
    project.git("clone", "-q", "--no-hardlinks", str(project.top), str(tmp_path / "other"), env={"VMRAG": "0"})
    other = Project(tmp_path / "other")
    other.write("docs/pulled.md", "# Pulled\n\nA zebra from elsewhere.\n")
    other.git("add", "-A")
    other.git("commit", "-q", "-m", "elsewhere", env={"VMRAG": "0"})
    project.git("pull", "-q", str(other.top), "main")
    store = read(client, wait_until_ready(project))
    assert store == query(project)
    assert "deep/more.md" not in store["docs"]
    assert "docs/pulled.md_chunk_0" in store["docs"]


def test_path_chroma_prints_that_the_store_has_committed_text_only(project, client, started):
    committed = query(project)
    project.write("docs/tls.md", "# TLS\n\nAn edited zebra.\n")
    project.write("docs/new.md", "# New\n\nA staged zebra.\n")
    project.git("add", "docs/new.md")
    report = project.ask("path", "chroma")
    assert report["commit"] == project.git("rev-parse", "HEAD")
    assert read(client, report) == committed
    line = project.vmrag("path", "chroma").out.splitlines()[-1]
    assert line.startswith("contents  ")
    assert f"files of commit {report['commit'][:7]} (committed text only)" in line
    working = project.ask("path", "chroma", "--working")
    assert read(client, working) == query(project)
    assert "edited" in json.dumps(read(client, working))


def test_chroma_sources_off_adds_no_files(project, client, started, kind):
    project.git("config", "vmrag.chroma.sources", "off")
    if kind == "files":
        error = project.vmrag("path", "chroma", "--json", code=2).error
        assert "chroma.sources: off" in error["message"]
        project.git("config", "--unset", "vmrag.chroma.sources")
        project.git(*shlex.split(hints.list_commands(error["hint"])[0])[1:])
        assert "code" in read(client, project.ask("path", "chroma"))
    else:
        assert set(read(client, project.ask("path", "chroma"))) == {"handbook"}


def test_chroma_sources_of_a_clone_does_not_widen_the_store(project, client, started):
    project.write(".vmrag.yaml", SETTINGS + "chroma:\n  sources: all\n")
    project.git("commit", "-q", "-a", "-m", "settings of a clone")
    assert "code" not in read(client, project.ask("path", "chroma"))
    assert project.vmrag("query", "zebra").err.count("chroma.sources") == 1
    project.vmrag("trust", "--yes")
    assert "code" in read(client, project.ask("path", "chroma"))


@pytest.mark.parametrize("kind", ["stored"], indirect=True)
def test_stored_collection_hides_a_source_of_the_same_name(project, client, started):
    project.write(".vmrag.yaml", SETTINGS.replace("collection: docs", "collection: handbook"))
    project.git("commit", "-q", "-a", "-m", "collision")
    store = read(client, project.ask("path", "chroma"))
    assert store == query(project)
    assert set(store["handbook"]) == {"note.md_chunk_0", "more.md_chunk_0"}


@pytest.mark.parametrize("kind", ["stored"], indirect=True)
def test_notes_hide_a_stored_collection_of_the_same_name(project, client, started):
    notes = '  - collection: handbook\n    paths: [".vmrag/notes/"]\n    write: true\n'
    project.write(".vmrag.yaml", SETTINGS + notes)
    project.write(".vmrag/notes/stripes.md", "A zebra in a note of the repository.\n")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "notes")
    project.vmrag("trust", "--yes")
    store = read(client, project.ask("path", "chroma"))
    assert store == query(project)
    assert list(store["handbook"]) == ["stripes_chunk_0"]


@pytest.mark.parametrize("kind", ["files"], indirect=True)
def test_store_works_before_anything_is_set_up(project, client, started):
    project.git("rm", "-q", ".vmrag.yaml")
    project.git("commit", "-q", "-m", "not set up")
    answer = query(project)
    assert answer
    assert read(client, project.ask("path", "chroma")) == answer
    assert project.git("status", "--porcelain") == ""


@pytest.mark.parametrize("kind", ["files"], indirect=True)
def test_repository_without_files_and_documents_has_no_store(project, started):
    project.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    project.git("commit", "-q", "-a", "-m", "no sources")
    error = project.vmrag("path", "chroma", "--json", code=2).error
    assert error["code"] == "NOT_INITIALIZED"


# -- who starts it ---------------------------------------------------------------------------------


def test_auto_starts_nothing_until_a_store_with_files_is_in_use(project, started, kind):
    build_here(project)
    started.clear()
    for commit in ("first", "main"):
        project.git("switch", "-q", "--detach", commit, env={"VMRAG": "0"})
        project.vmrag("query", "zebra")
        build_here(project)
    assert (project.top.name in started) == (kind == "stored")  # as before: documents have a store
    assert not (project.shared / "tree/committed").exists()
    project.vmrag("path", "chroma")
    started.clear()
    project.vmrag("query", "zebra")
    assert started == []
    commands = [["query", "zebra"], ["status"], ["sync"], ["query", "zebra"]]
    for number, command in enumerate(commands):
        project.git("switch", "-q", "--detach", ("first", "second")[number % 2], env={"VMRAG": "0"})
        assert started == []
        project.vmrag(*command, code=None)
        assert (started == [project.top.name]) == (command != ["status"]), command
        build_here(project)
        project.vmrag("query", "zebra")
        assert len(started) <= 1
        started.clear()
    assert not (project.shared / "builder/follows").exists()


@pytest.mark.parametrize("kind", ["files"], indirect=True)
def test_auto_installs_no_hooks_without_a_knowledge_base(project, started):
    project.vmrag("path", "chroma")
    project.vmrag("sync", "--hooks")
    assert list_hooks(project) == set()


@pytest.mark.parametrize("kind", ["files"], indirect=True)
@pytest.mark.parametrize("command", [["install"], ["sync", "--hooks"]])
def test_follow_installs_only_post_hooks_without_a_knowledge_base(project, started, command):
    project.git("config", "vmrag.index.chroma", "follow")
    project.vmrag(*command)
    with opened(project) as ws:
        assert hook_choice.list_chosen_hooks(ws.places) == hook_config.HOOKS
    assert list_hooks(project) == set(hook_config.SYNCING)
    assert project.git("config", "--get-regexp", "^merge", check=False) == ""
    assert not [finding for finding in findings(project) if finding["code"].startswith("HOOK")]
    project.vmrag("add", "-", "--collection", "handbook", "--id", "a", stdin="The first stored document.")
    with opened(project) as ws:
        assert ws.is_initialized
    assert not [finding for finding in findings(project) if finding["code"].startswith("HOOK")]


@pytest.mark.parametrize("kind", ["files"], indirect=True)
def test_sync_does_not_install_hooks_that_the_user_removed(project, started):
    project.git("config", "vmrag.index.chroma", "follow")
    project.vmrag("install")
    project.vmrag("uninstall")
    project.vmrag("sync", "--hooks")
    assert list_hooks(project) == set()


def list_hooks(project: Project) -> set[str]:
    with opened(project) as ws:
        return set(installer.list_installed_hooks(ws.places, hooks.find_hooks_folder(ws.places)))


def findings(project: Project) -> list[dict[str, str]]:
    topics = project.vmrag("doctor", "--json", code=None).json["topics"]
    return [finding for topic in topics for finding in topic["findings"]]


@pytest.mark.parametrize("kind", ["files"], indirect=True)
def test_hooks_write_no_queue_and_no_mark_without_a_knowledge_base(project):
    project.git("config", "vmrag.index.chroma", "follow")
    project.vmrag("install")
    project.git("commit", "-q", "--allow-empty", "-m", "empty")
    project.git("switch", "-q", "-c", "side", "first")
    project.write("docs/side.md", "A zebra.\n")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "side")
    project.git("rebase", "-q", "main")
    wait_until_ready(project)
    assert not (project.shared / "links.queue").exists()
    assert not (project.shared / "pending").exists()
    assert project.git("status", "--porcelain") == ""


def test_hooks_start_nothing_if_head_has_the_same_commit(project):
    project.git("config", "vmrag.index.chroma", "follow")
    project.vmrag("install")
    project.vmrag("sync", "--wait")
    background.wait_for_end(get_job(project), within=60)
    log = project.shared / "builder/chroma.log"
    before = log.stat().st_size if log.exists() else 0
    (project.shared / "interpreter").write_text(f"{project.top / 'missing'}\n")
    fails = {"PATH": f"{project.top / 'bin'}:{os.environ['PATH']}"}
    project.write("bin/python3", "#!/bin/sh\necho started >&2\nexit 1\n").chmod(0o755)
    switched = project.run("switch", "-q", "-c", "same", env=fails)
    assert (switched.returncode, switched.stderr) == (0, "")
    switched = project.run("switch", "-q", "--detach", "first", env=fails)
    assert "started" in switched.stderr or "no Python" in switched.stderr
    assert (log.stat().st_size if log.exists() else 0) == before


def test_unset_setting_ends_the_work_of_hooks(project):
    project.git("config", "vmrag.index.chroma", "follow")
    project.vmrag("install")
    project.vmrag("sync", "--wait")
    assert (project.shared / "builder/follows").exists()
    project.git("config", "vmrag.index.chroma", "off")
    project.git("switch", "-q", "--detach", "first")
    assert not (project.shared / "builder/follows").exists()


def test_wait_makes_sync_wait_for_the_files(project, client, started):
    project.git("config", "vmrag.index.chroma", "wait")
    project.git("switch", "-q", "--detach", "first", env={"VMRAG": "0"})
    report = project.ask("sync")
    assert report["chroma"]["state"] == "ready"
    assert report["chroma"]["commit"] == project.git("rev-parse", "HEAD")
    expected = {"chroma": report["chroma"]["path"], "tenant": bindings.TENANT, "database": bindings.DATABASE}
    assert read(client, expected) == query(project)


def test_notes_name_chroma_only_if_the_user_set_it(project, started):
    project.vmrag("path", "chroma")
    for command in ("status", "sync", "query zebra"):
        output = project.vmrag(*command.split(), code=None)
        assert "hroma" not in output.out + output.err
    project.git("config", "vmrag.index.chroma", "follow")
    assert "chroma     " in project.vmrag("status").out
    assert "Chroma's store is ready: " in project.vmrag("sync").out


def collect(project: Project) -> None:
    """Remove what is not needed. Without a knowledge base, the background process does that."""
    if (project.top / ".dolt-version").exists():
        project.vmrag("gc", "--apply")


# -- worktrees, removal ----------------------------------------------------------------------------


def test_each_worktree_has_a_store_of_its_commit(project, client):
    project.git("config", "vmrag.index.chroma", "follow")
    project.vmrag("install")
    project.git("worktree", "add", "-q", "../linked", "first")
    linked = Project(project.top.parent / "linked")
    project.vmrag("sync")
    stores = [wait_until_ready(worktree) for worktree in (project, linked)]
    for worktree, store in zip((project, linked), stores, strict=True):
        assert read(client, store) == query(worktree)
    collect(project)
    assert [wait_until_ready(worktree) for worktree in (project, linked)] == stores


def test_gc_removes_stores_of_earlier_commits(project, started):
    project.git("config", "vmrag.index.chroma", "follow")
    for commit in ("first", "second"):
        project.git("switch", "-q", "--detach", commit, env={"VMRAG": "0"})
        project.vmrag("query", "zebra")
        build_here(project)
    assert len([path for path in (project.shared / "chroma").iterdir() if path.is_dir()]) == 1
    collect(project)
    assert not [finding for finding in findings(project) if finding["code"].startswith("CHROMA")]
    assert wait_until_ready(project)


def test_doctor_finds_and_repairs_a_damaged_store_of_files(project, client, started):
    path = Path(project.ask("path", "chroma")["chroma"])
    with bindings.contextlib.closing(bindings.open_store(path)) as store:
        store.delete_rows(store.list_collection_ids()["docs"], ["docs/tls.md_chunk_0"])
    [finding] = [row for row in findings(project) if row["code"].startswith("CHROMA")]
    assert "of 'docs'" in finding["message"]
    project.vmrag("doctor", "--fix", code=None)
    assert read(client, project.ask("path", "chroma")) == query(project)


@pytest.mark.parametrize("meanwhile", ["removed", "moved"])
@pytest.mark.sample(2)
def test_store_is_built_although_files_change_during_the_build(project, client, started, monkeypatch, meanwhile):
    project.git("config", "vmrag.index.chroma", "follow")
    build_store, calls = chroma_builder.build_store, []

    def interrupt(*arguments, between, **given):
        def change_once() -> None:
            calls.append(1)
            if len(calls) == 1 and meanwhile == "removed":
                shutil.rmtree(project.shared / "sources")
            elif len(calls) == 1:
                project.git("switch", "-q", "--detach", "first", env={"VMRAG": "0"})
                project.vmrag("query", "zebra")
            between()

        return build_store(*arguments, between=change_once, **given)

    monkeypatch.setattr(chroma_builder, "build_store", interrupt)
    build_here(project)
    project.vmrag("query", "zebra")
    build_here(project)
    assert calls
    assert read(client, wait_until_ready(project)) == query(project)


@pytest.mark.parametrize("part", [view.VIEW_FILE, "seal.json"])
@pytest.mark.sample(2)
def test_damaged_view_of_files_is_built_again(project, client, started, part):
    project.git("config", "vmrag.index.chroma", "follow")
    with opened(project) as ws:
        bind_lacking_files(ws, print)
        [*_, folder] = ws.chroma.local.list_lacking()[0].views
    (folder / part).write_bytes(b"\0")
    build_here(project)
    assert read(client, wait_until_ready(project)) == query(project)


# -- kills and failures ----------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from vmrag_link.chroma import build, stores
from vmrag_link.chroma.bindings import ChromaStore
from vmrag_link.index import directories
from vmrag_link.sync import background, chroma_state, source_views
from vmrag_link.workspace import committed_files
from vmrag_hooks import chroma
from vmrag_link.git import plumbing
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
{patch}
background.request_work(background.get_chroma_job(plumbing.locate_work_tree(Path.cwd())))
chroma.main()
"""
STEPS = {
    "before HEAD is read": "chroma_state.ChromaStores.lacks_files = die",
    "before files are indexed": "committed_files.bind_files = die",
    "before the view is published": "source_views.SourceIndexer._derive_view = die",
    "before the commit is recorded": "chroma_state.ChromaStores.bind_files = die",
    "before the store is begun": "chroma_state.ChromaStores.list_lacking = die",
    "while the store is written": "ChromaStore.replace_metadata = die",
    "before the store is sealed": "stores.Stores.seal_store = die",
    "before the store is named": "stores.Stores.move_into_place = die",
    "while other stores are removed": "directories.remove_path = die",
}


def kill(project: Project, patch: str) -> None:
    process = subprocess.run([sys.executable, "-c", KILLED.format(patch=patch)], cwd=project.top, check=False)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.sample(2)
def test_killed_build_is_finished_by_the_next_process(project, client, started, step):
    project.git("config", "vmrag.index.chroma", "follow")
    project.git("switch", "-q", "--detach", "first", env={"VMRAG": "0"})
    project.vmrag("query", "zebra")
    build_here(project)
    project.git("switch", "-q", "--detach", "third", env={"VMRAG": "0"})
    if step == "before the view is published":  # otherwise the query makes the view of a clean tree
        project.write("src/new.py", "def another():\n    pass\n")
    if not step.startswith("while other"):
        kill(project, STEPS[step])
    else:
        project.vmrag("query", "zebra")
        kill(project, STEPS[step])
    expected = query(project)
    build_here(project)
    store = wait_until_ready(project)
    assert read(client, store) == expected
    collect(project)
    assert [str(path) for path in (project.shared / "chroma").iterdir() if path.is_dir()] == [store["chroma"]]


def test_process_that_is_killed_each_time_is_not_started_again(project, started):
    project.git("config", "vmrag.index.chroma", "follow")
    for _ in range(ATTEMPTS):
        kill(project, STEPS["before files are indexed"])
    started.clear()
    project.vmrag("query", "zebra")
    state = project.ask("status")["chroma"]
    if project.top.joinpath(".dolt-version").exists():
        build_here(project)  # stored documents still have a store
        state = project.ask("status")["chroma"]
    else:
        assert started == []
    assert (state["state"], hints.list_commands(state["hint"])) == ("failed", ["vmrag sync --wait"])
    assert f"started it {ATTEMPTS} times" in state["error"]
    assert project.ask(*shlex.split(hints.list_commands(state["hint"])[0])[1:])["chroma"]["state"] == "ready"


def test_invalid_settings_of_a_commit_are_reported_and_do_not_repeat(project, started):
    project.git("config", "vmrag.index.chroma", "follow")
    project.write(".vmrag.yaml", "sources: nonsense\n")
    project.git("commit", "-q", "-a", "-m", "broken", env={"VMRAG": "0"})
    project.write(".vmrag.yaml", SETTINGS)
    assert query(project)
    log = build_here(project)
    assert any(line.startswith("failed: ") for line in log)
    started.clear()
    assert query(project)
    assert started == []
    state = project.ask("status")["chroma"]
    assert state["state"] == "failed"
    assert "sources" in state["error"]

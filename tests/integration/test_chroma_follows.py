"""Chroma's store follows the bound views: in the background, for waiting clients, after kills, and
with several worktrees.
"""

from __future__ import annotations

import contextlib
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
from tests.support import terminal
from tests.support.chroma import needs_chroma, read_collections
from tests.support.cli import VMRAG, WITHOUT_RIGHTS, error_of, read_only, small_disk, start
from tests.support.terminal import Done, Project
from vmrag_link import hints, locks
from vmrag_link.chroma import bindings, stores
from vmrag_link.chroma.bindings import open_store
from vmrag_link.chroma.build import BuiltStore
from vmrag_link.errors import Busy, IndexFailed
from vmrag_link.git import plumbing
from vmrag_link.index import directories, view
from vmrag_link.index.view import segments_folder
from vmrag_link.progress import QUIET
from vmrag_link.sync import background, chroma_builder
from vmrag_link.sync.chroma_state import ATTEMPTS, ChromaStores

pytestmark = [pytest.mark.hooks("off"), needs_chroma]

template = terminal.template

client = chroma_client.client


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Follow with Chroma in separate processes, as in normal use."""
    made = terminal.copied(template, tmp_path, monkeypatch)
    monkeypatch.delenv("VMRAG_INDEX_CHROMA")
    yield made
    background.wait_for_end(job(made), within=60)


@pytest.fixture
def alone(project: Project, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No process is started; returns the list of those that would have been, one entry each."""
    started: list[str] = []

    def start(chroma: ChromaStores) -> int:
        started.append(chroma.list_lacking()[0].revision)
        gone = subprocess.Popen(["true"])
        gone.wait()
        return gone.pid

    monkeypatch.setattr(ChromaStores, "start_builder", start)
    return started


def pinned(project: Project) -> dict[str, dict[str, str]]:
    """Return the rows that a client must read: each document is one chunk."""
    with terminal.opened(project) as ws:
        rows = ws.engine.read_documents(project.pinned)
        return {"handbook": {f"{row.doc_id}_chunk_0": row.content.strip() for row in rows}}


def stripped(read: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {name: {name: text.strip() for name, text in rows.items()} for name, rows in read.items()}


def job(project: Project) -> background.Job:
    return background.get_chroma_job(plumbing.locate_work_tree(project.top))


def chroma(project: Project) -> dict:
    return project.status()["chroma"]


def ready(project: Project) -> dict:
    """Wait until status reports the store as ready."""
    deadline = time.monotonic() + 60
    while (state := chroma(project))["state"] != "ready":
        assert state["state"] == "following", state
        assert time.monotonic() < deadline, state
        time.sleep(background.POLL_SECONDS)
    return state


def there(project: Project) -> set[str]:
    """The revisions of the stores on the disk; unfinished ones as they are called."""
    folder = project.shared / "chroma"
    return {path.name.partition("-")[0] or path.name for path in folder.iterdir() if path.is_dir()}


def findings(project: Project) -> list[dict]:
    """Return doctor's findings about Chroma."""
    topics = project.vmrag("doctor", "--json", code=None).json["topics"]
    return [finding for topic in topics for finding in topic["findings"] if finding["code"].startswith("CHROMA")]


def switch(project: Project, *where: str) -> None:
    """A checkout that is followed in this process, as `alone` has it."""
    project.git("switch", "-q", *where, env={"VMRAG_HOOKS_SYNC": "off"})
    project.vmrag("sync")


def build(project: Project, **given) -> list[str]:
    """Run the background build in this process; return its log."""
    log: list[str] = []
    with terminal.opened(project) as ws:
        chroma_builder.build_missing_stores(
            ws.chroma.local, vectors=ws.read_vectors, progress=QUIET, log=log.append, **given
        )
    return log


# -- in the background -----------------------------------------------------------------------------


@pytest.mark.hooks("on")
def test_client_sees_the_pinned_documents_once_status_reports_ready(project, client):
    for branch in ("feature", "main"):
        project.git("switch", "-q", branch)
        assert chroma(project)["revision"] == project.pinned
        assert project.status()["in_sync"] is True
        state = ready(project)
        collections = read_collections(
            client, {"chroma": state["path"], "tenant": bindings.TENANT, "database": bindings.DATABASE}
        )
        assert stripped(collections) == pinned(project)
    assert background.wait_for_end(job(project), within=60)
    assert there(project) == {project.pinned}
    log = (project.shared / "builder" / "chroma.log").read_text()
    assert "failed" not in log
    assert not (project.shared / "builder" / "chroma.json").exists()


@pytest.mark.hooks("on")
def test_second_of_two_quick_checkouts_is_followed(project, client):
    project.git("switch", "-q", "feature")
    project.git("switch", "-q", "main")
    state = ready(project)
    assert state["revision"] == project.pinned
    collections = read_collections(
        client, {"chroma": state["path"], "tenant": bindings.TENANT, "database": bindings.DATABASE}
    )
    assert stripped(collections) == pinned(project)
    assert background.wait_for_end(job(project), within=60)
    assert there(project) == {project.pinned}


def test_store_also_follows_commits_and_queries(project):
    revision = project.record("more", more="One more document.")
    project.vmrag("query", "one more")
    assert ready(project)["revision"] == revision
    with contextlib.closing(open_store(Path(ready(project)["path"]))) as store:
        assert "more.md_chunk_0" in store.list_ids(store.list_collection_ids()["handbook"])


# -- by whom it is started -------------------------------------------------------------------------


def test_build_is_not_started_if_the_store_exists(project, alone):
    project.vmrag("query", "rest")
    assert alone == [project.pinned]
    build(project)
    project.vmrag("query", "rest")
    project.vmrag("sync")
    assert alone == [project.pinned]
    switch(project, "-c", "same")
    project.vmrag("query", "rest")
    assert alone == [project.pinned]


def test_request_without_a_process_is_treated_as_abandoned(project, alone):
    request = project.shared / "builder/chroma.request"
    request.parent.mkdir(exist_ok=True)
    for pid in ("99999999999999999999", "-1", "0", "x", ""):
        request.write_text(pid)
        assert project.vmrag("path", "chroma", "--json").json["chroma"] == chroma(project)["path"]
    request.write_text(str(os.getpid()))
    later = time.time() + 1000
    os.utime(request, (later, later))
    with terminal.opened(project) as ws:
        assert not background.is_running(ws.chroma.local.job)


def test_failures_that_cannot_be_read_stop_no_answer(project, alone):
    (project.shared / "builder/failures.json").mkdir(parents=True)
    shutil.rmtree(project.shared / "chroma", ignore_errors=True)
    assert chroma(project)["state"] == "following"
    project.vmrag("query", "anything")


def test_chroma_off_builds_no_store_and_path_reports_it(project, alone, monkeypatch):
    monkeypatch.setenv("VMRAG_INDEX_CHROMA", "off")
    assert project.ask("query", "rest")["results"]
    project.vmrag("sync")
    assert alone == []
    assert chroma(project) == {
        "state": "off",
        "revision": project.pinned,
        "commit": None,
        "path": None,
        "done": 0,
        "total": 0,
        "error": "",
        "hint": "",
    }
    error = project.vmrag("path", "chroma", "--json", code=2).error
    assert (error["message"], error["hint"]) == (
        "Chroma's store is disabled (index.chroma: off).",
        "run 'git config vmrag.index.chroma follow'",
    )
    monkeypatch.delenv("VMRAG_INDEX_CHROMA")
    project.git(*shlex.split(hints.list_commands(error["hint"])[0])[1:])
    project.vmrag("path", "chroma")


def test_sync_waits_for_the_store_if_configured(project, monkeypatch):
    monkeypatch.setenv("VMRAG_INDEX_CHROMA", "wait")
    assert project.ask("sync")["chroma"]["state"] == "ready"
    project.git("switch", "-q", "feature", env={"VMRAG_HOOKS_SYNC": "foreground"})
    assert chroma(project)["state"] == "ready"


@pytest.mark.hooks("on")
def test_hook_prints_the_position_although_the_store_fails(project):
    project.vmrag("query", "rest", env={"VMRAG_INDEX_CHROMA": "off"})
    (project.shared / "chroma").write_text("in the way")
    environ = {"VMRAG_HOOKS_SYNC": "foreground", "VMRAG_INDEX_CHROMA": "wait"}
    result = project.run("switch", "-q", "feature", env=environ)
    assert f"the knowledge base is now at {project.pinned[:7]}" in result.stderr
    assert "cannot build a store of Chroma" in result.stderr


# -- waiting clients -------------------------------------------------------------------------------


def test_path_chroma_waits_and_holds_the_pinned_documents_alone(project, client, alone):
    project.put("draft.md", "Not committed yet.")
    report = project.ask("path", "chroma")
    assert stripped(read_collections(client, report)) == pinned(project)
    working = project.ask("path", "chroma", "--working")
    assert working["chroma"] != report["chroma"]
    assert stripped(read_collections(client, working)) == {
        "handbook": pinned(project)["handbook"] | {"draft.md_chunk_0": "Not committed yet."}
    }
    assert project.ask("path", "chroma", "--working")["chroma"] == working["chroma"]
    project.put("draft.md", "Changed.")
    assert (
        read_collections(client, project.ask("path", "chroma", "--working"))["handbook"]["draft.md_chunk_0"]
        == "Changed."
    )
    assert project.ask("path", "index")["chroma"] is None
    project.drop("draft.md")
    assert project.ask("path", "chroma", "--working")["chroma"] == report["chroma"]


def test_collection_of_two_letters_has_a_name_that_chroma_takes(project, client, alone):
    for texts in ({"one": "First."}, {"one": "Other.", "two": "Second."}):
        for name, text in texts.items():
            project.put(name, text, collection="go")
        project.record("go")
        collections = read_collections(client, project.ask("path", "chroma"))
        assert stripped(collections)["go-4cd0e21a"] == {f"{name}_chunk_0": text for name, text in texts.items()}
    assert findings(project) == []


def test_gc_keeps_leased_stores_until_the_lease_expires(project, alone):
    lent = Path(project.ask("path", "chroma")["chroma"])
    project.put("draft.md", "Not committed yet.")
    drafts = Path(project.ask("path", "chroma", "--working")["chroma"])
    project.drop("draft.md")
    switch(project, "feature")
    build(project)
    project.vmrag("gc", "--apply")
    assert lent.is_dir()
    assert drafts.is_dir()
    for path in (lent, drafts):
        lease = path.with_name(f"{path.name}.lease")
        long_ago = lease.stat().st_mtime - stores.LEASE_SECONDS - 1
        os.utime(lease, (long_ago, long_ago))
    chroma = project.ask("gc")["leftovers"]["chroma"]
    assert set(chroma["names"]) == {lent.name, drafts.name}
    project.vmrag("gc", "--apply")
    assert there(project) == {project.pinned}
    assert not list((project.shared / "chroma").glob("*.lease"))
    assert project.ask("gc")["leftovers"]["chroma"]["names"] == []


def test_sync_wait_returns_the_store_that_another_process_builds(project):
    project.git("switch", "-q", "feature")  # which starts a process
    report = project.ask("sync", "--wait")
    assert report["chroma"]["state"] == "ready"
    assert Path(report["chroma"]["path"]).is_dir()


# -- kills -----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from vmrag_link.chroma import build, stores
from vmrag_link.chroma.bindings import ChromaStore
from vmrag_link.sync import chroma_state
from vmrag_link.index import directories
from vmrag_hooks import chroma
from vmrag_link.sync import background
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
{patch}
from vmrag_link.errors import Busy
from vmrag_link.git import plumbing
from vmrag_link.index import directories
background.request_work(background.get_chroma_job(plumbing.locate_work_tree(Path.cwd())))
chroma.main()
"""
STEPS = {
    "before it looks": "chroma_state.ChromaStores.list_lacking = die",
    "before it is begun": "chroma_state.ChromaStores.note_start = die",
    "before it is copied": "stores.Stores.copy_store = die",
    "while it is written": "ChromaStore.replace_metadata = die",
    "before it is compared": "build.check.find_difference = die",
    "before it is sealed": "stores.Stores.seal_store = die",
    "before it is named": "stores.Stores.move_into_place = die",
    "when it is there": "chroma_state.ChromaStores.forget_failure = die",
    "while others are removed": "directories.remove_path = die",
}


def killed(project: Project, patch: str) -> None:
    result = subprocess.run([sys.executable, "-c", KILLED.format(patch=patch)], cwd=project.top, check=False)
    assert result.returncode == -signal.SIGKILL


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.sample(2)
def test_leftovers_of_a_killed_build_are_removed_by_the_next_one(project, alone, step):
    switch(project, "--detach", "first")
    build(project)
    switch(project, "main")  # one document more
    killed(project, STEPS[step])
    assert project.status()["in_sync"] is True
    assert project.ask("query", "faq")["results"]
    alone.clear()
    project.vmrag("query", "rest")
    if chroma(project)["state"] == "following":
        assert alone == [project.pinned]
    build(project)
    assert chroma(project)["state"] == "ready"
    assert there(project) == {project.pinned}
    assert project.ask("gc")["leftovers"]["chroma"]["names"] == []


def test_builder_killed_each_time_is_abandoned_until_requested(project, alone):
    project.vmrag("query", "rest")
    for _ in range(ATTEMPTS):
        assert chroma(project)["state"] == "following"
        killed(project, STEPS["before it is sealed"])
    state = chroma(project)
    assert (state["state"], hints.list_commands(state["hint"])) == ("failed", ["vmrag sync --wait"])
    assert f"started it {ATTEMPTS} times" in state["error"]
    alone.clear()
    assert project.ask("query", "rest")["kb"]["in_sync"] is True
    assert alone == []
    project.vmrag(*shlex.split(hints.list_commands(state["hint"])[0])[1:])
    assert chroma(project)["state"] == "ready"


# -- what goes wrong -------------------------------------------------------------------------------


def test_failure_is_shown_with_its_reason_and_retried_on_request(project, alone, monkeypatch):
    def fails(*_: object, **__: object) -> BuiltStore:
        raise IndexFailed("Chroma failed to add 5 chunks.", hint="look at the disk")

    real = chroma_builder.build_store
    project.vmrag("query", "rest")
    monkeypatch.setattr(chroma_builder, "build_store", fails)
    assert any("failed: Chroma failed to add" in line for line in build(project))
    state = chroma(project)
    assert state["state"] == "failed"
    assert state["error"] == "Chroma failed to add 5 chunks."
    assert state["hint"] == "look at the disk, then run 'vmrag sync --wait' to build it again"
    assert "chroma" not in project.vmrag("status").out
    assert findings(project) == []
    with monkeypatch.context() as by_user:
        by_user.setenv("VMRAG_INDEX_CHROMA", "follow")
        assert f"chroma     {project.pinned[:7]}, failed: " in project.vmrag("status").out
        [finding] = findings(project)
        assert hints.list_commands(finding["fix"]) == ["vmrag sync --wait"]
    alone.clear()
    project.vmrag("query", "rest")
    assert alone == [], "no busy loop"
    monkeypatch.setattr(chroma_builder, "build_store", real)
    switch(project, "feature")
    assert alone == [project.pinned], "another target"
    build(project)
    switch(project, "main")
    project.vmrag("sync", "--wait")
    assert chroma(project)["state"] == "ready"


def test_process_that_fails_before_any_store_is_shown_with_its_reason(project):
    (project.shared / "chroma").write_text("in the way")
    project.vmrag("query", "rest")
    assert background.wait_for_end(job(project), within=60)
    state = chroma(project)
    assert (state["state"], hints.list_commands(state["hint"])) == ("failed", ["vmrag sync --wait"])
    assert f"{project.shared / 'chroma'} is not a folder" in state["error"]
    (project.shared / "chroma").unlink()
    command = hints.list_commands(state["hint"])[0]
    assert project.ask(*command.split()[1:])["chroma"]["state"] == "ready"


def test_store_build_reports_busy_while_index_is_exchanged(project, alone, monkeypatch):
    monkeypatch.setattr(directories, "READ_TIMEOUT", 0.1)
    project.vmrag("query", "rest")
    with terminal.opened(project) as ws:
        store = ws.chroma.local.get_store(project.pinned)
        exchange = locks.hold_exclusive(directories.lock_path(store.views[0]), purpose="replace a view", timeout=5)
        with exchange, pytest.raises(Busy):
            chroma_builder.provide_store(ws.chroma.local, store, vectors=ws.read_vectors, progress=QUIET)
        assert chroma_builder.provide_store(ws.chroma.local, store, vectors=ws.read_vectors, progress=QUIET).is_dir()


def test_queries_continue_under_a_process_limit(project, alone):
    program = (
        "import resource, sys\nfrom vmrag_link.sync import chroma_builder\n"
        "sys.argv[1:]\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
        "from vmrag_link.cli.main import run\nsys.exit(run(sys.argv[1:]))"
    )

    def limited(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", program, *arguments]
        return subprocess.run(argv, cwd=project.top, capture_output=True, text=True, check=False)

    project.vmrag("query", "rest")
    result = limited("sync", "--wait", "--json")
    assert result.returncode == 3
    assert "ulimit -n 256" in result.stderr
    assert chroma(project)["state"] == "failed"
    assert hints.list_commands(chroma(project)["hint"]) == ["ulimit -n 256", "vmrag sync --wait"]
    assert project.ask("query", "rest")["results"]


def test_damaged_store_is_found_and_made_again(project, alone, monkeypatch):
    path = Path(project.ask("path", "chroma")["chroma"])
    with contextlib.closing(open_store(path)) as store:
        store.delete_rows(store.list_collection_ids()["handbook"], ["rest.md_chunk_0"])
    [finding] = findings(project)
    assert "Chroma has 3 chunks of 'handbook', but the index has 4" in finding["message"]
    alone.clear()
    project.vmrag("doctor", "--fix", code=None)
    assert alone == [project.pinned]
    build(project)
    assert findings(project) == []
    monkeypatch.setenv("VMRAG_INDEX_STORE_DOCUMENTS", "false")
    assert findings(project) == [], "it is of other settings"
    monkeypatch.delenv("VMRAG_INDEX_STORE_DOCUMENTS")
    (path / stores.CONTENTS_FILE).unlink()
    assert chroma(project)["state"] == "following"
    build(project)
    assert chroma(project)["state"] == "ready"


# -- several work trees, removal meanwhile ---------------------------------------------------------


def test_two_work_trees_have_a_store_each_the_newest_first(project, alone, client):
    project.vmrag("query", "rest")
    project.git("worktree", "add", "-q", "../other", "feature", env={"VMRAG_HOOKS_SYNC": "off"})
    other = Project(project.top.parent / "other")
    other.vmrag("query", "uv")
    log = build(project)
    assert [line.split()[1].partition("-")[0] for line in log] == [other.pinned, project.pinned]
    assert (chroma(project)["state"], chroma(other)["state"]) == ("ready", "ready")
    for user in (project, other):
        user.vmrag("gc", "--apply")
        user.vmrag("sync")
        assert stripped(read_collections(client, user.ask("path", "chroma"))) == pinned(user)
    project.git("worktree", "remove", "--force", "../other")
    for lease in (project.shared / "chroma").glob("*.lease"):
        os.utime(lease, (0, 0))
    project.vmrag("sync")
    assert there(project) == {project.pinned}


def test_build_of_unbound_store_is_dropped_between_batches(project, alone, monkeypatch):
    project.vmrag("query", "rest")
    begun = project.pinned
    real = chroma_builder.build_store

    def switching(*arguments, between, **given):
        def moved() -> None:
            if project.pinned == begun:
                switch(project, "feature")
            between()

        return real(*arguments, between=moved, **given)

    monkeypatch.setattr(chroma_builder, "build_store", switching)
    log = build(project)
    assert log[0].startswith(f"dropped {begun}")
    assert log[1].startswith(f"fresh: {project.pinned}")
    assert there(project) == {project.pinned}


@pytest.mark.parametrize("meanwhile", [["gc", "--apply"], ["sync", "--rebuild"], ["doctor", "--fix"]])
@pytest.mark.sample(1)
def test_removal_and_rebuilding_during_a_build_do_no_harm(project, alone, monkeypatch, client, meanwhile):
    project.vmrag("query", "rest")
    real, calls = chroma_builder.build_store, []

    def interrupted(*arguments, between, **given):
        def once() -> None:
            if not calls:
                calls.append(project.vmrag(*meanwhile, code=None, env={"VMRAG_LOCK_TIMEOUT_S": "0"}).code)
            between()

        return real(*arguments, between=once, **given)

    monkeypatch.setattr(chroma_builder, "build_store", interrupted)
    build(project)
    assert calls == [0]
    assert chroma(project)["state"] == "ready"
    assert stripped(read_collections(client, project.ask("path", "chroma"))) == pinned(project)


@pytest.mark.parametrize("damaged", ["view", "segment"])
def test_store_follows_damaged_index_only_after_its_rebuild(project, alone, damaged):
    project.vmrag("query", "rest")
    with terminal.opened(project) as ws:
        folder = ws.views.view_path(project.pinned)
    [part] = view.read_view(folder).parts
    file = folder / view.VIEW_FILE if damaged == "view" else segments_folder(folder) / part.segment / "vectors-1.i8"
    file.write_bytes(b"\0")
    assert build(project) == []
    assert chroma(project)["state"] == "following"
    project.vmrag("query", "rest")
    build(project)
    assert chroma(project)["state"] == "ready"


def test_queries_continue_on_a_full_disk_with_the_reason_shown(project, alone):
    project.vmrag("query", "rest")
    (project.shared / "chroma").mkdir()
    with small_disk(project.shared / "chroma", kilobytes=200) as fill:
        fill(0)
        assert any(line.startswith("failed: ") for line in build(project))
        assert project.ask("query", "rest")["kb"]["in_sync"] is True
        state = chroma(project)
        assert state["state"] == "failed"
        assert hints.list_commands(state["hint"]) == ["vmrag gc --apply", "vmrag sync --wait"]
        assert [path for path in (project.shared / "chroma").iterdir() if path.is_dir()] == []
    project.vmrag("sync", "--wait")
    assert chroma(project)["state"] == "ready"


def without_rights(project: Project, *command: str) -> Done:
    return start(project, *command, program=(*WITHOUT_RIGHTS, *VMRAG)).done()


def test_queries_and_existing_stores_work_in_a_read_only_folder(project, alone):
    project.vmrag("query", "rest")
    with read_only(project.shared):
        result = without_rights(project, "query", "rest", "--json")
        assert result.json["kb"]["in_sync"] is True
        state = without_rights(project, "status", "--json").json["chroma"]
        assert state["state"] == "failed"
        assert "is not writable" in state["error"]
        assert error_of(without_rights(project, "path", "chroma", "--json"))["hint"]
    path = project.ask("path", "chroma")["chroma"]
    with read_only(project.shared):
        assert without_rights(project, "path", "chroma", "--json").json["chroma"] == path

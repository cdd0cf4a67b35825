"""The Action's own steps, run from `action.yml` by what stands for GitHub's runner, in real
checkouts of a real repository.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import vmrag_link
from tests.support import events, hosted, people, poison
from tests.support.actions_runner import Finished, restore_packages
from tests.support.events import FORK
from tests.support.hosted import Ci, drop
from tests.support.repos import Repo
from tests.support.terminal import QUERIES, Project
from vmrag_action import install

pytestmark = pytest.mark.hooks("off")

shared, world, ci, ci_of_processes = people.shared, people.world, hosted.ci, hosted.ci_of_processes

ROOT = Path(__file__).parents[2]


# -- sync, and the cache


@pytest.mark.hooks("on")
@pytest.mark.usefixtures("ci_of_processes")
def test_sync_prepares_the_pinned_index_and_next_job_embeds_nothing(ci):
    cold = ci.on_push()
    assert cold.passed
    expected = {
        "in-sync": "true",
        "revision": ci.ada.pinned,
        "fingerprint": ci.ada.fingerprint(),
        "cache-hit": "false",
        "vmrag-version": vmrag_link.__version__,
        "findings": "0",
        "chroma-path": "",
    }
    assert expected.items() <= cold.outputs.items()
    assert Path(cold.outputs["index-path"]).is_dir()
    assert "built here" in cold.log
    assert ", 0 embedded" not in cold.log
    assert len(ci.cache.entries) == 1

    warm = ci.on_push()
    assert warm.passed
    assert warm.outputs | {"index-path": ""} == cold.outputs | {"index-path": "", "cache-hit": "true"}
    assert "built with vectors from the cache" in warm.log
    assert warm.step("store").outcome == "skipped"
    assert len(ci.cache.entries) == 1
    assert warm.annotations == []


@pytest.mark.hooks("on")
@pytest.mark.usefixtures("ci_of_processes")
def test_later_steps_have_the_command_and_the_knowledge(ci):
    run = ci.on_push()
    assert run.variables["VMRAG_INDEX_CHROMA"] == run.variables["VMRAG_CHROMA_SHARE"] == "off"
    paths = os.pathsep.join([*run.paths, os.environ["PATH"]])
    environ = os.environ | run.variables | {"PATH": paths, "GITHUB_ACTIONS": "true"}
    result = subprocess.run(
        ["vmrag", "query", "certificates", "--json"],
        cwd=ci.workspace,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(result.stdout)
    assert answer["kb"]["in_sync"]
    assert answer["results"] == ci.ada.ask("query", "certificates")["results"]
    assert result.stderr == (
        "warning: 3 stored copies of tracked files may be outdated; "
        "run 'vmrag init && vmrag sources dedupe' to search the files instead\n"
    )
    assert [Path(path).joinpath("python").exists() for path in run.paths] == [False]  # the job's own Python stays


@pytest.mark.hooks("on")
def test_cache_of_another_revision_is_a_warm_start(ci):
    ci.on_push()
    ci.ada.write_document("new.md", "Words that nobody had written before.")
    ci.ada.git("push", "-q")
    run = ci.on_push()
    assert run.outputs["cache-hit"] == "false"
    assert "4 chunks added, 1 embedded" in run.log
    assert len(ci.cache.entries) == 2


@pytest.mark.parametrize("spoil", [*poison.FORGED])
@pytest.mark.sample(1)
def test_poisoned_cache_is_found_built_again_and_replaced(ci, spoil):
    good = ci.on_push()
    spoil(ci.cache.root / ci.cache.entries[0])
    run = ci.on_push()
    assert run.passed
    assert (run.outputs["cache-hit"], run.outputs["fingerprint"]) == ("false", good.outputs["fingerprint"])
    assert len(run.said("notice")) == 1
    assert run.said("notice")[0].startswith("The cache was not used: ")
    assert len(ci.cache.entries) == 2
    assert ci.on_push().outputs["cache-hit"] == "true"


@pytest.mark.parametrize("spoil", [poison.truncated, poison.altered_vectors, poison.no_database])
@pytest.mark.sample(1)
@pytest.mark.long
def test_cache_without_usable_vector_is_replaced(ci, spoil):
    good = ci.on_push()
    spoil(ci.cache.root / ci.cache.entries[0])
    run = ci.on_push()
    assert run.passed
    assert (run.outputs["cache-hit"], run.outputs["fingerprint"]) == ("false", good.outputs["fingerprint"])
    assert ", 0 embedded" not in run.log
    assert run.annotations == []
    assert len(ci.cache.entries) == 2
    assert ci.on_push().outputs["cache-hit"] == "true"


def test_unavailable_cache_service_does_not_fail_the_run(ci):
    """It is `actions/cache` that warns of it, and fails no step: `test_action_jobs.py`."""
    ci.cache.broken = True
    run = ci.on_push()
    assert run.passed
    assert run.outputs["in-sync"] == "true"
    assert run.step("save").outcome == "success"
    assert (ci.cache.entries, run.annotations) == ([], [])


@pytest.mark.parametrize(
    ("inputs", "restored", "saved"),
    [({"enable_cache": "false"}, False, False), ({"save_cache": "false"}, True, False)],
)
@pytest.mark.sample(1)
def test_workflow_may_do_without_the_cache(ci, inputs, restored, saved):
    run = ci.on_push(**inputs)
    assert (run.step("restore").outcome == "success") is restored
    assert bool(ci.cache.entries) is saved


def test_branch_that_is_not_the_default_one_writes_no_cache(ci):
    ci.ada.git("push", "-q", "origin", "main:refs/heads/topic")
    run = ci.on_push(ref="refs/heads/topic")
    assert run.passed
    assert run.step("restore").outcome == "success"
    assert ci.cache.entries == []


@pytest.mark.long
def test_older_commit_in_the_same_workspace_gets_its_older_knowledge(ci):
    """A machine of one's own keeps the workspace."""
    old, revision = ci.tip, ci.ada.pinned
    ci.ada.write_document("new.md", "Words that nobody had written before.")
    ci.ada.git("push", "-q")
    assert ci.on_push(depth=None).outputs["revision"] == ci.ada.pinned
    run = ci.on_push(sha=old, again=True, first=lambda repo: repo.git("checkout", "-q", old))
    assert (run.outputs["in-sync"], run.outputs["revision"]) == ("true", revision)


def test_sparse_checkout_has_its_knowledge(ci):
    run = ci.on_push(sparse=True)
    assert not (ci.workspace / ".dolt-version").exists()
    assert (run.outputs["in-sync"], run.outputs["revision"]) == ("true", ci.ada.pinned)


# -- the packages, and their cache


def fresh_machines(ci: Ci, monkeypatch: pytest.MonkeyPatch) -> None:
    """No job finds its packages; what is called `uv` brings those of the tests."""

    def prepared(temp: Path, inputs: Mapping[str, str], event: str) -> None:
        restore_packages(temp, inputs, event)
        install.packages_folder({"RUNNER_TEMP": str(temp)}).rename(ci.folder / "index")

    uv = ci.folder / "path" / "uv"
    uv.parent.mkdir()
    uv.write_text(
        "#!/bin/sh\n"
        "[ $1 = --version ] && echo uv 99.0 && exit\n"
        'while [ "$1" != --target ]; do shift; done\n'
        f'mv "{ci.folder}/index" "$2" && rm "$2/{install.MARKER}"\n'
    )
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(hosted, "restore_packages", prepared)


@pytest.mark.usefixtures("ci_of_processes")
@pytest.mark.long
def test_packages_are_kept_by_the_default_branch_and_restored_by_everybody(ci, monkeypatch):
    fresh_machines(ci, monkeypatch)
    ci.ada.git("push", "-q", "origin", "main:refs/heads/topic")
    topic = ci.on_push(ref="refs/heads/topic", mode="verify")
    assert (topic.passed, topic.step("install").outputs["fresh"], ci.cache.entries) == (True, "true", [])
    shutil.rmtree(ci.folder / "index", ignore_errors=True)

    first = ci.on_push(mode="verify")
    assert first.passed
    [entry] = ci.cache.entries
    assert entry.startswith("vmrag-packages-1-")
    assert [path.name for path in (ci.cache.root / entry).iterdir() if path.name.startswith("vmrag")] == []

    for again in (ci.on_push, lambda **given: ci.on_pull_request(ci.tip, ci.tip, source=FORK, **given)):
        shutil.rmtree(ci.folder / "index", ignore_errors=True)
        result = again(mode="verify")
        assert result.passed
        assert result.step("install").outputs["fresh"] == "false"
        assert ci.cache.entries == [entry]

    shutil.rmtree(ci.folder / "index")
    without = ci.on_push(mode="verify", enable_cache="false")
    assert (without.passed, without.step("install").outputs["fresh"]) == (True, "true")
    assert ci.cache.entries == [entry]


@pytest.mark.long
def test_broken_library_from_the_cache_is_replaced(ci, monkeypatch):
    fresh_machines(ci, monkeypatch)
    ci.on_push(mode="verify")
    (ci.cache.root / ci.cache.entries[0] / install.MARKER).unlink()
    run = ci.on_push(mode="verify")
    assert (run.passed, run.step("install").outputs["fresh"]) == (True, "true")
    assert len(ci.cache.entries) == 2


# -- what cannot be synced


def broken(content: str | bytes | None):
    """A commit with this pin."""

    def commit(ci: Ci) -> None:
        ci.ada.commit("pin", pin=content)
        ci.ada.git("push", "-q", "--no-verify")

    return commit


def pin(**changed: str) -> str:
    fields = {
        "dolt_remote": "git:",
        "dolt_branch": "main",
        "dolt_commit": "f" * 40,
        "linked_at": "2026-01-02T03:04:05Z",
    }
    return json.dumps(fields | changed, indent=2) + "\n"


@pytest.mark.parametrize(
    ("content", "title", "said"),
    [
        (pin(), "PIN_MISSING_REVISION", "the remote does not have it either"),
        (pin(dolt_commit="::set-output name=x::y"), "PIN_MALFORMED", "dolt_commit"),
        (pin(dolt_remote="ext::sh -c touch% /tmp/pwned"), "PIN_MALFORMED", "dolt_remote"),
        (pin(dolt_branch="\n::error::x"), "PIN_MALFORMED", "dolt_branch"),
        ("{" * 100_000, "PIN_MALFORMED", ""),
    ],
    ids=["missing", "command", "program", "newline", "endless"],
)
@pytest.mark.sample(1)
def test_invalid_pin_is_annotated_at_the_pin_with_a_hint(ci, content, title, said):
    broken(content)(ci)
    run = ci.on_push()
    assert not run.passed
    assert (run.outputs["in-sync"], run.outputs["findings"], run.outputs["revision"]) == ("false", "1", "")
    [error] = [annotation for annotation in run.annotations if annotation.level == "error"]
    assert (error.file, error.title) == (".dolt-version", title)
    message, hint = error.message.rsplit("\n", 1)
    assert said in message
    assert hint
    assert ci.cache.entries == []


def test_pin_with_crlf_is_followed(ci):
    """Check out with `core.autocrlf`, so that the pin has CRLF."""
    ci.ada.commit("crlf", pin=(ci.ada.top / ".dolt-version").read_bytes().replace(b"\n", b"\r\n"))
    ci.ada.git("push", "-q", "--no-verify")
    run = ci.on_push()
    assert run.passed
    assert run.outputs["revision"] == ci.ada.pinned


def test_findings_may_be_warnings(ci):
    broken(pin())(ci)
    run = ci.on_push(fail_on="never")
    assert run.passed
    assert (run.outputs["in-sync"], run.outputs["findings"]) == ("false", "1")
    assert [annotation.title for annotation in run.annotations if annotation.level == "warning"] == [
        "PIN_MISSING_REVISION"
    ]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"mode": "destroy"}, "the input mode must be"),
        ({"enable_cache": "yes"}, "the input enable-cache must be"),
        ({"fail_on": "::error::"}, "the input fail-on must be"),
        ({"remote": "ext::sh"}, "the input remote"),
        ({"working_directory": "nowhere"}, "is not there"),
        ({"version": "1.0; touch x"}, "version must be an exact version"),
        ({"extras": "../../x"}, "extras may be"),
    ],
)
@pytest.mark.sample(2)
def test_mistake_in_the_inputs_fails_before_anything_is_done(ci, inputs, said):
    run = ci.on_push(**inputs)
    assert not run.passed
    assert said in run.said("error")[0]
    assert run.step("sync").outcome == "skipped"


# -- verify, by event


@pytest.mark.hooks("on")
def test_merge_group_that_drops_knowledge_fails_from_a_shallow_checkout(ci):
    base, merge = drop(ci.ada)
    result = ci.run("merge_group", events.merge_group(base, merge), sha=merge, ref="refs/heads/queue", mode="verify")
    assert not result.passed
    assert result.outputs["findings"] == "1"
    [error] = [annotation for annotation in result.annotations if annotation.level == "error"]
    assert (error.file, error.title) == (".dolt-version", "KNOWLEDGE_DROPPED")
    assert "vmrag merge --repair" in error.message
    assert "drops documents" in result.summary
    assert result.step("sync").outcome == "skipped"


def test_pull_request_reads_the_cache_and_writes_nothing(ci):
    ci.on_push()
    base = ci.tip
    head = ci.ada.commit("code", **{"code.py": "print()"})
    ci.ada.git("push", "-q", "origin", "main:refs/heads/topic")
    ci.cache.entries[:] = ci.cache.entries[:1]
    run = ci.on_pull_request(base, head, mode="sync,verify")
    assert run.passed
    assert run.outputs["cache-hit"] == "true"
    assert run.step("save").outcome == "skipped"
    assert run.variables["VMRAG_SETTINGS_FROM"] == base
    assert len(ci.cache.entries) == 1


def test_fork_that_pins_a_known_revision_needs_no_secret(ci):
    base = ci.tip
    head = ci.ada.commit("code", **{"code.py": "print()"})
    ci.ada.git("push", "-q", "origin", "main:refs/heads/topic")
    run = ci.on_pull_request(base, head, source=FORK, mode="sync,verify", token="")
    assert run.passed
    assert run.outputs["in-sync"] == "true"
    assert len(run.said("notice")) == 1
    assert "no cache is written" in run.said("notice")[0]
    assert run.variables["VMRAG_NO_SERVICES"] == "1"
    assert ci.cache.entries == []


def test_verify_of_fork_suggests_adopt_for_missing_revision(ci):
    base, pinned = ci.tip, ci.ada.pinned
    revision = ci.ada.write_document("theirs.md", "Knowledge that is nowhere but in the fork.")
    head = ci.ada.git("rev-parse", "HEAD")
    ci.ada.git("push", "-q", "--no-verify", "origin", "main:refs/heads/topic")
    assert revision != pinned
    run = ci.on_pull_request(base, head, source=FORK, mode="verify")
    assert not run.passed
    [error] = [annotation for annotation in run.annotations if annotation.level == "error"]
    assert "vmrag adopt" in error.message
    assert "https://github.example/me/project" in error.message


@pytest.mark.hooks("on")
def test_pull_request_target_reads_untrusted_commits_without_checkout(ci):
    base, merge = drop(ci.ada)
    head = ci.world.hub.git("commit-tree", f"{merge}^{{tree}}", "-p", merge, "-m", "head")
    run = ci.on_pull_request(base, head, event="pull_request_target", source=FORK, mode="verify")
    assert not run.passed
    assert "KNOWLEDGE_DROPPED" in [annotation.title for annotation in run.annotations]
    assert Repo(ci.workspace).git("rev-parse", "HEAD") == base
    assert Repo(ci.workspace).git("status", "--porcelain") == ""
    assert run.variables["VMRAG_SETTINGS_FROM"] == base


@pytest.mark.hooks("on")
def test_push_is_compared_with_the_previous_head(ci):
    base, merge = drop(ci.ada)
    ci.ada.git("push", "-q", "--no-verify", "origin", f"{merge}:refs/heads/main")
    run = ci.on_push(before=base, mode="verify", fail_on="never")
    assert run.passed
    assert run.outputs["findings"] == "1"
    assert [annotation.title for annotation in run.annotations] == ["KNOWLEDGE_DROPPED"]


# -- golden queries, and untrusted text


def test_golden_queries_are_run_and_misses_are_annotated_at_their_line(ci):
    ci.ada.write(
        ".vmrag/queries.yaml",
        "queries:\n  - query: certificates\n    first: handbook/tls.md\n  - query: '::error::##[group]'\n    expect: [handbook/none.md]\n",
    )
    ci.ada.git("add", ".vmrag")
    ci.ada.git("commit", "-q", "-m", "queries")
    ci.ada.git("push", "-q")
    run = ci.on_push(mode="verify,check", results_path="out/vmrag")
    assert not run.passed
    files = {path.name: path.read_text() for path in (ci.workspace / "out" / "vmrag").iterdir()}
    assert sorted(files) == ["check.junit.xml", "check.sarif", "verify.junit.xml", "verify.sarif"]
    assert (files["check.junit.xml"].count("<failure"), files["verify.junit.xml"].count("<failure")) == (2, 0)
    assert [result["ruleId"] for result in json.loads(files["check.sarif"])["runs"][0]["results"]] == [
        "QUERY_MISSED"
    ] * 2
    annotations = [annotation for annotation in run.annotations if annotation.level == "error"]
    assert {annotation.file for annotation in annotations} == {".vmrag/queries.yaml"}
    assert run.outputs["findings"] == str(len(annotations))
    assert run.outputs["in-sync"] == "true"
    assert "wanted: 1. handbook/tls.md\ngot:    1. handbook/" in annotations[0].message
    assert "wanted: 1. handbook/tls.md<br>got:" in run.summary
    assert "&#58;&#58;error&#58;&#58;" in run.summary
    assert ci.cache.entries == []  # saved by what passed


@pytest.mark.hooks("on")
def test_untrusted_ids_and_branches_are_shown_as_text(ci):
    """The fake fails for any command other than those of the steps."""
    ci.ada.git("switch", "-q", "-c", "`id`$(touch${IFS}pwned);error-##x")
    ci.ada.put("::error::id ##[group] <b>&`id`.md", "::set-output name=x::y\n##[error]z\n", collection="handbook")
    ci.ada.vmrag("commit", "-m", "::error::commit\n##[error]message")
    ci.ada.git("commit", "-q", "-am", "::error::code")
    ci.ada.git("push", "-q", "origin", "HEAD:main")
    ci.ada.write(
        ".vmrag/queries.yaml",
        "queries:\n  - query: otters\n    expect: ['handbook/::error::id ##[group] <b>&`id`.md']\n",
    )
    ci.ada.git("add", ".vmrag")
    ci.ada.git("commit", "-q", "-m", "queries")
    ci.ada.git("push", "-q", "origin", "HEAD:main")
    run = ci.on_push(mode="verify,check")
    assert run.outputs["in-sync"] == "true"
    assert not list(ci.workspace.glob("pwned"))
    assert "<b>" not in run.summary


def test_action_at_the_top_runs_the_same_modules(ci):
    """Its other steps are the same text."""
    run = ci.on_push(action=ROOT / "action.yml", mode="destroy")
    assert run.step("install").outcome == "success"
    assert "the input mode must be" in run.said("error")[0]


# -- the same answers, and the installation


@pytest.mark.long
@pytest.mark.timeout(900)
def test_answers_equal_the_developer_machine_for_every_kind_of_index(ci):
    """Grown through fifty commits; built afresh; restored; in a shallow clone; under another
    Python.
    """
    for number in range(50):
        name = f"page{number % 12}.md"
        ci.ada.put(name, f"# Page {number}\n\nOtters number {number} and certificates of edition {number % 7}.\n" * 3)
        ci.ada.vmrag("commit", "-m", str(number))
        ci.ada.git("commit", "-q", "-am", str(number))
    ci.ada.git("push", "-q")
    expected, fingerprint = ci.ada.answers(), ci.ada.fingerprint()

    built = ci.on_push(depth=None)
    assert (built.outputs["cache-hit"], built.outputs["fingerprint"]) == ("false", fingerprint)
    assert answers(ci, built) == expected
    restored = ci.on_push()
    assert (restored.outputs["cache-hit"], restored.outputs["fingerprint"]) == ("true", fingerprint)
    assert answers(ci, restored) == expected
    for number, python in enumerate(newer_pythons(ci.folder)):
        shallow = events.checkout(ci.world.hub.top, ci.folder / f"shallow-{number}", ci.tip)
        result = subprocess.run(
            [python, "-I", "-c", ASK, json.dumps(QUERIES)], cwd=shallow.top, capture_output=True, check=False
        )
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout) == [fingerprint, [[list(hit) for hit in answer] for answer in expected]]


def answers(ci: Ci, run: Finished) -> list[list[Any]]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in run.variables.items():
            patch.setenv(name, value)
        return Project(ci.workspace).answers()


ASK = """
import contextlib, io, json, sys
from vmrag_link.cli.main import run

def said(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(arguments) == 0
    return out.getvalue()

run(["sync", "-q"])
found = [
    [[each[key] for key in ("collection", "doc_id", "chunk", "score", "text")] for each in json.loads(answer)["results"]]
    for text in json.loads(sys.argv[1])
    for mode in ("hybrid", "vector", "keyword")
    for answer in [said("query", text, "--mode", mode, "-k", "20", "--json")]
]
print(json.dumps([said("fingerprint").strip(), found]))
"""


def newer_pythons(folder: Path) -> list[str]:
    """Environments of Python 3.13 with what the Action installs, if that Python is here."""
    beside = sorted(Path(sys.base_prefix).parent.glob("3.13*/bin/python3.13"))
    for python in (shutil.which("python3.13"), *map(str, beside)):
        if python and subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0:
            environ = {"RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "output"), "INPUT_MODE": "check"}
            subprocess.run([python, "-I", install.__file__, "install"], env=os.environ | environ, check=True)
            return [str(install.action_folder(environ) / "venv" / "bin" / "python")]
    return []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_action_installs_by_hash_and_ignores_modules_in_work_tree(ci, monkeypatch):
    """Modules with vmrag's names in an untrusted working tree are not imported."""
    for name in ("vmrag_action/__main__.py", "vmrag_link/__init__.py", "json.py", "requests.py"):
        ci.ada.write(name, "open('pwned', 'w')\n")
        ci.ada.git("add", name)
    ci.ada.git("commit", "-q", "-m", "hostile")
    ci.ada.git("push", "-q")
    monkeypatch.setattr(hosted, "restore_packages", lambda *_: None)
    run = ci.on_push(mode="verify,check", fail_on="never")
    assert run.said("warning") == []
    assert run.outputs["in-sync"] == "true"
    assert run.outputs["vmrag-version"] == vmrag_link.__version__
    assert not list(ci.workspace.rglob("pwned"))
    environment = ci.workspace.parent / "temp" / "vmrag-action" / "venv"
    listed = subprocess.run([environment / "bin" / "vmrag", "--version"], capture_output=True, text=True, check=True)
    assert listed.stdout.startswith(f"vmrag, version {vmrag_link.__version__}\n")

    again = ci.on_push(mode="verify,check", fail_on="never")
    assert again.outputs | {"index-path": "", "cache-hit": ""} == run.outputs | {"index-path": "", "cache-hit": ""}
    assert again.step("install").outputs["fresh"] == "false"
    assert again.step("save-packages").outcome == "skipped"

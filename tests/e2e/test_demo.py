"""`vmrag demo` as a newcomer runs it: nothing in HOME, no configuration of git, no network."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.support.templates import build_once, copy_tree
from vmrag_link.demo import play, story

VMRAG = [sys.executable, "-P", "-m", "vmrag_link.cli.main"]
FEW = ["--pages", "40"]


def _newcomer(folder: Path) -> dict[str, str]:
    """Return an environment with an empty HOME, its own TMPDIR, and a proxy that does not
    listen.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "VMRAG", "XDG_"))}
    for name in ("home", "tmp"):
        (folder / name).mkdir(parents=True)
    nowhere = "http://127.0.0.1:9"
    return kept | {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), nowhere),
    }


def _offline() -> list[str]:
    """A prefix that takes the network away, where the system lets us."""
    wrapper = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") and subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode == 0:
        return wrapper
    return []


def _run(*arguments: str, env: dict[str, str], cwd: Path, prefix: list[str] | None = None):
    argv = [*(prefix or []), *VMRAG, *arguments]
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def newcomer(tmp_path_factory) -> Path:
    """Run the demo as a newcomer and keep its repository; `report.json` is the output."""
    return build_once(tmp_path_factory, "demo", _demonstrate)


def _demonstrate(folder: Path) -> None:
    env = _newcomer(folder)
    result = _run("demo", "--into", "kept", "--json", *FEW, env=env, cwd=folder, prefix=_offline())
    assert (result.returncode, result.stderr) == (0, "")
    (folder / "report.json").write_text(result.stdout)


@pytest.fixture
def kept(newcomer):
    return json.loads((newcomer / "report.json").read_text())


def test_two_branches_pin_two_revisions_that_differ_as_described(kept):
    assert kept["ok"]
    assert len({*kept["branches"].values()}) == 2
    assert kept["difference"] == {
        "added": [f"{name}.md" for name in sorted(story.ADDED)],
        "modified": [f"{name}.md" for name in sorted(story.EDITED)],
        "removed": [f"{name}.md" for name in sorted(story.REMOVED)],
    }
    assert 30 <= kept["pages"] <= 40


def test_every_answer_comes_from_the_revision_that_the_branch_pins(kept):
    assert [visit["branch"] for visit in kept["visits"]] == ["main", "next-release", "main"]
    for visit in kept["visits"]:
        assert visit["revision"] == kept["branches"][visit["branch"]]
        for answer in visit["answers"]:
            assert answer["in_sync"]
            assert answer["revision"] == visit["revision"]


def _documents(answer) -> list[str]:
    return list(dict.fromkeys(result["doc_id"] for result in answer["results"]))


def test_answers_differ_between_the_branches_as_designed(kept):
    json_main, options_main, limit_main = kept["visits"][0]["answers"]
    json_next, options_next, limit_next = kept["visits"][1]["answers"]
    assert "comments=True" in json_next["results"][0]["text"]
    assert not any("comments=True" in result["text"] for result in json_main["results"])
    assert {"getopt.md", "optparse.md"} <= set(_documents(options_main))
    assert {"getopt.md", "optparse.md"}.isdisjoint(_documents(options_next))
    assert {"getopt.md", "optparse.md"} <= set(options_next["compared"]["went"])
    assert _documents(limit_next)[0] == "ratelimit.md"
    assert "ratelimit.md" not in _documents(limit_main)
    assert limit_next["compared"]["came"] == ["ratelimit.md"]


def test_switching_back_gives_the_same_answers_from_the_existing_index(kept):
    first, _, back = kept["visits"]
    assert [answer["results"] for answer in back["answers"]] == [answer["results"] for answer in first["answers"]]
    assert back["snapshot"] == "reused"


def test_every_step_has_its_time(kept):
    assert all(step["seconds"] >= 0 for step in kept["steps"])
    assert kept["seconds"] >= sum(step["seconds"] for step in kept["steps"])
    assert [check["ok"] for check in kept["checks"]] == [True] * 9


def test_kept_repository_still_works(kept, newcomer, tmp_path):
    assert Path(kept["repository"]) == (newcomer / "kept").resolve()
    top, env = copy_tree(newcomer / "kept", tmp_path / "kept"), _newcomer(tmp_path)
    for branch in ("next-release", "main"):
        subprocess.run(["git", "checkout", "-q", branch], cwd=top, env=env, check=True, capture_output=True)
        result = _run("query", story.QUESTIONS[0].text, "--json", env=env, cwd=top)
        assert (result.returncode, result.stderr) == (0, "")
        assert json.loads(result.stdout)["kb"]["commit"] == kept["branches"][branch]
    assert _run("status", env=env, cwd=top).returncode == 0
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=top, env=env, check=True, capture_output=True, text=True
    )
    assert status.stdout == ""


def test_demo_leaves_no_files_in_home_or_temporary_folder(newcomer):
    assert list((newcomer / "home").iterdir()) == []
    assert list((newcomer / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"revision": "0" * 40}, "Every answer came from the revision that the checked-out code pins."),
        ({"in_sync": False}, "Every answer came from the revision that the checked-out code pins."),
        ({"results": ()}, "Back on a branch, all answers and scores are the same as before."),
    ],
)
def test_answer_that_is_not_as_promised_fails_the_demo(kept, change, broken):
    report = msgspec.convert(kept, play.DemoReport)
    *visits, last = report.visits
    answers = (*last.answers[:-1], msgspec.structs.replace(last.answers[-1], **change))
    visits.append(msgspec.structs.replace(last, answers=answers))
    checks = play._list_checks(report.branches, report.difference, tuple(visits))
    assert [check.what for check in checks if not check.ok] == [broken]


def test_folder_in_use_is_refused_and_left_alone(tmp_path):
    env = _newcomer(tmp_path / "newcomer")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.txt").write_text("mine")
    for place in ("used", "used/thesis.txt"):
        result = _run("demo", "--into", place, "--json", env=env, cwd=tmp_path)
        error = json.loads(result.stderr)["error"]
        assert (result.returncode, result.stdout, error["code"]) == (2, "", "INVALID_PARAMETER")
        assert error["message"] == f"{tmp_path / place} is not an empty folder."
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["thesis.txt"]


def test_demo_shows_commands_changes_and_next_steps_in_a_hundred_columns(tmp_path):
    env = _newcomer(tmp_path)
    result = _run("demo", *FEW, env=env | {"VMRAG": "0", "GIT_AUTHOR_NAME": "Somebody"}, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert list((tmp_path / "tmp").iterdir()) == []
    text = result.stdout
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "\x1b" not in text
    for line in (
        "git init -b main",
        "vmrag init --knowledge-base --no-sources",
        "vmrag import pages --collection python --base pages",
        "git checkout next-release",
    ):
        assert f"\n  $ {line}\n" in text
    assert re.search(r"vmrag: knowledge is at [0-9a-v]{7} \(\+2 ~5 -3 documents\)  \(\d+\.\d\d s\)\n", text)
    assert "\n    - getopt, optparse\n" in text
    assert "\n    + ratelimit\n" in text
    assert "The answers and scores are the same as at the last checkout of main." in text
    assert "Removed the temporary repository. 'vmrag demo --into DIR' makes one that stays." in text
    assert "\n  cd your-repo && vmrag init\n" in text


def test_interrupted_demo_leaves_nothing_behind(tmp_path):
    env = _newcomer(tmp_path)
    demo = subprocess.Popen(
        [*VMRAG, "demo", *FEW],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    for line in demo.stdout:
        if "vmrag import pages" in line:
            break
    time.sleep(0.2)  # somewhere in the import
    os.killpg(demo.pid, signal.SIGINT)
    said = demo.communicate(timeout=30)[1]
    assert demo.returncode == 130
    *progress, last = said.strip().splitlines()  # on a slow machine it prints its progress
    assert last == "Interrupted. No stored data was lost."
    assert all(" of " in line for line in progress)
    assert list((tmp_path / "tmp").iterdir()) == []

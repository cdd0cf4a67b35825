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
from vmrag_link.demo import library, play
from vmrag_link.errors import FileFailed

VMRAG = [sys.executable, "-P", "-m", "vmrag_link.cli.main"]
FEW = ["--pages", "20"]


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


def test_every_answer_comes_from_the_revision_that_the_branch_pins(kept):
    assert (kept["ok"], kept["problems"]) == (True, [])
    assert 15 <= kept["pages"] <= 20
    pins = [answer["pin"] for answer in kept["answers"]]
    assert (len({*pins}), pins[0:3], pins[3:6]) == (2, pins[6:9], [pins[3]] * 3)
    json_next, options_next = kept["answers"][3:5]
    assert "comments=True" in json_next["results"][0]["text"]
    assert "getopt.md" not in [result["doc_id"] for result in options_next["results"]]
    assert kept["seconds"] >= sum(step["seconds"] for step in kept["steps"])


def list_views(top: Path) -> dict[str, int]:
    """Return the name and the inode of each index."""
    return {path.name: path.stat().st_ino for path in (top / ".git/vmrag/views").iterdir() if path.is_dir()}


def test_kept_repository_still_works(kept, newcomer, tmp_path):
    assert Path(kept["repository"]) == (newcomer / "kept").resolve()
    top, env = copy_tree(newcomer / "kept", tmp_path / "kept"), _newcomer(tmp_path)
    views = list_views(top)
    for branch, answer in (("next-release", kept["answers"][3]), ("main", kept["answers"][0])):
        subprocess.run(["git", "checkout", "-q", branch], cwd=top, env=env, check=True, capture_output=True)
        result = _run("query", answer["query"], "--json", env=env, cwd=top)
        assert (result.returncode, result.stderr) == (0, "")
        assert json.loads(result.stdout)["kb"]["commit"] == answer["revision"]
    assert list_views(top) == views, "a checkout uses the index of its branch again"
    assert _run("status", env=env, cwd=top).returncode == 0
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=top, env=env, check=True, capture_output=True, text=True
    )
    assert status.stdout == ""


def test_demo_leaves_no_files_in_home_or_temporary_folder(newcomer):
    assert list((newcomer / "home").iterdir()) == []
    assert list((newcomer / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"revision": "0" * 40}, "was not answered from the pinned revision."),
        ({"in_sync": False}, "was not answered from the pinned revision."),
        ({"results": ()}, "has other results than at the last checkout of the same branch."),
    ],
)
def test_answer_that_is_not_as_promised_fails_the_demo(kept, change, problem):
    *answers, last = msgspec.convert(kept, play.DemoReport).answers
    assert list(play.list_problems([*answers, last])) == []
    changed = msgspec.structs.replace(last, **change)
    assert list(play.list_problems([*answers, changed])) == [f"{last.query!r} {problem}"]


@pytest.mark.parametrize(
    "expected",
    [{"first": "optparse.md"}, {"documents": ("csv.md",)}, {"missing": ("getopt.md",)}, {"only": "options"}],
)
def test_answer_without_the_expected_documents_fails_the_demo(kept, expected):
    answer = msgspec.convert(kept, play.DemoReport).answers[1]
    assert list(play.list_contradictions(play.StoryStep(query=answer.query), answer)) == []
    (problem,) = play.list_contradictions(play.StoryStep(query=answer.query, **expected), answer)
    assert problem.startswith(f"{answer.query!r} found getopt.md, ")


SOURCE = '''
"""Says what
  the module is for."""
def undocumented(): pass
def _private():
    """Not for others."""
async def wait(seconds=1.0, /, *rest, **named):
    """Waits."""
class Box:
    """Holds things."""
    def open(self, key):
        """Opens it."""
class Speaking:
    def say(self, word):
        """Says it."""
'''


def test_page_has_the_documentation_of_a_module():
    assert library.format_page("boxes", SOURCE).split("\n\n") == [
        *("# boxes", "Says what\nthe module is for."),
        *("## `boxes.wait(seconds=1.0, /, *rest, **named)`", "Waits."),
        *("## `boxes.Box`", "Holds things.", "## `boxes.Box.open(self, key)`", "Opens it."),
        *("## `boxes.Speaking.say(self, word)`", "Says it.\n"),
    ]
    assert library.format_page("silent", "x = 1") == ""


def test_pages_are_those_of_public_modules():
    names = [library.name_module(path) for path in library.list_sources(["shutil"])]
    assert 200 <= len(names) <= 400
    assert (names[0], names[1:]) == ("shutil", sorted(names[1:]))
    assert {"json", "json.decoder", "asyncio.tasks", "os", "datetime"} <= {*names}
    assert not [name for name in names if name.split(".")[0] in library.EXCLUDED or "._" in f".{name}"]


def test_python_without_its_source_cannot_tell_the_story(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "list_sources", lambda first: [])
    with pytest.raises(FileFailed, match=r"lacks the source of its standard library \(pages/getopt"):
        play.play_demo(tmp_path, lambda lines: None, kept=True, bars=False, number=None)


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
    assert re.search(
        r"vmrag: the knowledge base is now at [0-9a-v]{7} \(\+2 ~5 -3 documents\)  \(\d+\.\d\d s\)\n", text
    )
    assert "\n    - getopt, optparse\n" in text
    assert "\n    + ratelimit" in text
    assert "Every answer came from the revision that the checked-out code pins (" in text
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

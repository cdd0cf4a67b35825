import os
import shutil
import time

import pytest

from tests.support.pace import slack
from tests.support.repos import Repo, isolate, make_repo
from vmrag_link import env
from vmrag_link.git import history, plumbing


@pytest.fixture(autouse=True)
def _isolated(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path / "home")


@pytest.fixture
def repo(tmp_path):
    return make_repo(tmp_path / "repo")


def pins(repo, **options):
    return history.list_pins(plumbing.locate_work_tree(repo.top), **options)


def test_empty_repository_has_no_pins(repo):
    assert pins(repo) == {}


def test_every_content_is_mapped_to_the_commits_that_introduced_it(repo):
    one = repo.commit("1", pin=b"one\x00\xff\n\n")
    repo.commit("2", code="x")
    two = repo.commit("3", pin=b"two")
    repo.commit("4", pin=None)
    again = repo.commit("5", pin=b"one\x00\xff\n\n")
    assert pins(repo) == {b"one\x00\xff\n\n": [again, one], b"two": [two]}


def test_partial_clone_fetches_the_pins_that_it_lacks_at_once(repo, tmp_path):
    commits = [repo.commit(f"{number}", pin=f"pin {number}", code=f"{number}") for number in range(5)]
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    clone = Repo(tmp_path / "clone")
    repo.git("clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{repo.top}", str(clone.top))
    packs = clone.top / ".git/objects/pack"
    before = len(list(packs.glob("*.pack")))
    assert pins(clone) == {f"pin {number}".encode(): [commit] for number, commit in enumerate(commits)}
    assert len(list(packs.glob("*.pack"))) == before + 1
    clone.git("remote", "set-url", "origin", "file:///nowhere")
    assert len(pins(clone)) == 5


def test_pin_dropped_by_a_merge_is_still_found(repo):
    repo.commit("1", pin="one")
    repo.git("checkout", "-q", "-b", "side")
    side = repo.commit("2", pin="side")
    repo.git("checkout", "-q", "main")
    main = repo.commit("3", pin="main")
    repo.git("merge", "-q", "-s", "ours", "--no-edit", "side")
    repo.git("branch", "-D", "side")
    result = pins(repo, reflogs=False)
    assert result[b"side"] == [side]
    assert result[b"main"] == [main]  # the merge brings nothing of its own


def test_pins_of_given_commits_match_those_of_all_history(repo):
    one, _, two = repo.commit("1", pin="one"), repo.commit("2", code="x"), repo.commit("3", pin="two")
    gone, tree = "0" * 39 + "1", repo.git("rev-parse", "HEAD^{tree}")
    places = plumbing.locate_work_tree(repo.top)
    everything = [*repo.git("rev-list", "HEAD").split(), gone, tree]
    assert history.read_introduced_pins(places, everything) == {one: b"one", two: b"two"}
    assert history.read_introduced_pins(places, [gone]) == history.read_introduced_pins(places, []) == {}


def test_pin_that_only_a_merge_has_is_found(repo):
    repo.commit("1", pin="one")
    repo.git("checkout", "-q", "-b", "side")
    repo.commit("2", pin="side")
    repo.git("checkout", "-q", "main")
    repo.commit("3", pin="main")
    repo.git("merge", "-q", "side", check=False)
    merge = repo.commit("merge", pin="both")
    assert pins(repo)[b"both"] == [merge]


def test_pins_reachable_only_from_reflogs_are_found_in_each_worktree(repo, tmp_path):
    repo.commit("1", pin="one")
    repo.git("worktree", "add", "-q", "--detach", "../linked")
    linked = Repo(tmp_path / "linked")
    linked.commit("2", pin="linked")
    linked.git("reset", "-q", "--hard", "HEAD~1")
    linked.commit("3", pin="linked head")
    repo.commit("4", pin="gone")
    repo.git("reset", "-q", "--hard", "HEAD~1")
    repo.write(".dolt-version", "stashed")
    repo.git("stash", "-q")
    assert set(pins(repo)) == {b"one", b"linked", b"linked head", b"gone", b"stashed"}
    assert set(pins(linked)) == set(pins(repo))
    assert set(pins(repo, reflogs=False)) == {b"one", b"linked head", b"stashed"}


def test_invalid_pins_are_left_out(repo):
    repo.commit("1", pin="x" * 8193)
    repo.commit("2", pin=None)
    repo.commit("3", **{".dolt-version/file": "x"})
    shutil.rmtree(repo.top / ".dolt-version")
    assert pins(repo) == {}


def test_inherited_git_dir_does_not_lead_to_another_repository(repo, tmp_path, monkeypatch):
    repo.commit("1", pin="one")
    other = make_repo(tmp_path / "other")
    other.commit("1", pin="other")
    monkeypatch.setenv("GIT_DIR", str(other.top / ".git"))
    assert set(pins(repo)) == {b"one"}


def test_git_processes_inherit_no_misleading_variables(repo, tmp_path, monkeypatch):
    repo.commit("1", pin="one")
    places = plumbing.locate_work_tree(repo.top)
    log, program = tmp_path / "environments", tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nenv >> "{log}"\necho "== $*" >> "{log}"\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    hostile = dict.fromkeys(env.GIT_SCRUBBED, "1") | {"GIT_EXTERNAL_DIFF": "false"}
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    setting = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "diff.external", "GIT_CONFIG_VALUE_0": "false"}
    for name, value in setting.items():
        monkeypatch.setenv(name, value)

    assert plumbing.read_blob(places, "HEAD:.dolt-version") == b"one"
    call_count = log.read_text().count("\n== ")
    walk = history.walk_range(places, "HEAD")
    assert set(walk.contents.values()) == set(history.list_pins(places)) == {b"one"}
    assert [described.subject for described in history.describe_commits(places, walk.parents).values()] == ["1"]
    assert log.read_text().count("\n== ") > call_count > 0
    inherited = {line.split("=")[0] for line in log.read_text().splitlines()}
    assert inherited & hostile.keys() == set()
    assert setting.keys() <= inherited, "a person's own configuration holds everywhere"


def test_ten_thousand_commits_take_less_than_two_seconds(repo):
    stream = []
    for number in range(10_000):
        stream.append(f"commit refs/heads/main\ncommitter A <a@b> {number} +0000\ndata 1\nx\n")
        if number % 20 == 0:
            pin = f"pin {number // 20}\n"
            stream.append(f"M 644 inline .dolt-version\ndata {len(pin)}\n{pin}\n")
    repo.git("fast-import", "--quiet", stdin="".join(stream))
    start = time.perf_counter()
    assert len(pins(repo)) == 500
    assert time.perf_counter() - start < 2 * slack()


def test_new_pins_exclude_those_of_remotes_for_many_tips(repo):
    one = repo.commit("1", pin="one")
    two = repo.commit("2", pin="two")
    repo.git("tag", "-a", "-m", "t", "t")
    tag, blob = repo.git("rev-parse", "t"), repo.git("rev-parse", "HEAD:.dolt-version")
    places = plumbing.locate_work_tree(repo.top)
    many = [tag, *[one] * 60_000]
    assert history.list_new_pins(places, many) == {b"one": [one], b"two": [two]}
    assert history.collect_pins(places, many) == {b"one", b"two"}
    assert history.collect_pins(places, [one, blob]) == {b"one"}
    repo.git("update-ref", "refs/remotes/fork/main", one)
    assert history.list_new_pins(places, [tag]) == {b"two": [two]}
    repo.git("update-ref", "refs/remotes/origin/main", two)
    assert history.list_new_pins(places, [tag]) == {}
    assert history.list_new_pins(places, []) == {}
    assert history.collect_pins(places, []) == set()

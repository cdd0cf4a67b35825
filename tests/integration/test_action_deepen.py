"""How the Action gets the history that a comparison needs, and that it never guesses without."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.checkout import TOKEN, Checkout
from tests.support.events import checkout
from tests.support.long import examples
from tests.support.repos import Repo, isolate, make_repo
from tests.support.travel import git_server
from vmrag_action import git_access
from vmrag_link.errors import HistoryMissing
from vmrag_link.git import history, objects, plumbing
from vmrag_link.workspace.commits import deepen
from vmrag_link.workspace.commits.ancestry import MergeBases, is_comparable


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    isolate(monkeypatch, tmp_path / "home")
    host = make_repo(tmp_path / "host")
    host.git("config", "uploadpack.allowFilter", "true")
    return host


def merge(host: Repo, *parents: str) -> str:
    """A merge of these commits, which a ref keeps."""
    made = host.git("commit-tree", "HEAD^{tree}", *[f"-p{parent}" for parent in parents], "-m", "merge")
    host.git("update-ref", "refs/heads/merged", made)
    return made


def line(host: Repo, name: str, length: int, start: str = "") -> str:
    """So many commits on the branch `name`, each with other content of its file."""
    parts = []
    for number in range(length):
        parts.append(f"commit refs/heads/{name}\ncommitter A <a@example.com> {1_700_000_000 + number} +0000\n")
        parts.append(f"data {len(str(number))}\n{number}\n")
        if start and not number:
            parts.append(f"from {start}\n")
        parts.append(f"M 100644 inline file-{name}\ndata {len(name + str(number))}\n{name}{number}\n")
    host.git("fast-import", "--quiet", stdin="".join(parts))
    return host.git("rev-parse", name)


def places(repo: Repo):
    return plumbing.locate_work_tree(repo.top)


def count(repo: Repo, *what: str) -> int:
    return int(repo.git("rev-list", "--count", *what))


# -- deepening


@pytest.mark.parametrize(
    ("behind", "most"),
    [(5, 60), (120, 210), (300, 900), (1000, 1200)],
    ids=["50", "200", "800", "all"],
)
def test_checkout_of_one_commit_is_deepened_to_the_merge_base(host, tmp_path, behind, most):
    start = line(host, "main", 120)
    head = line(host, "topic", 3, start)
    base = line(host, "main", behind, start)
    repo = checkout(host.top, tmp_path / "checkout", head)
    deepen.make_comparable(places(repo), base, head)
    assert repo.git("merge-base", base, head) == start
    assert count(repo, f"{base}..{head}") == 3
    assert behind < count(repo, base, head) <= most + 60
    blobs = repo.git("rev-list", "--objects", "--missing=print", "--no-object-names", base).count("?")
    assert blobs >= min(behind, 50) - 1  # the files of old commits did not come


def test_deepen_leaves_complete_history_unchanged(host, tmp_path):
    start = line(host, "main", 3)
    head = line(host, "topic", 3, start)
    base = line(host, "main", 3, start)
    repo = checkout(host.top, tmp_path / "checkout", head, depth=None)
    deepen.make_comparable(places(repo), base, head)  # the base comes, and makes nothing shallow
    assert (count(repo, base, head), history.read_shallow_boundary(places(repo))) == (9, set())
    repo.git("remote", "set-url", "origin", "file:///nowhere")
    deepen.make_comparable(places(repo), base, head)


def test_deep_checkout_contacts_no_remote(host, tmp_path):
    head = line(host, "main", 30)
    repo = checkout(host.top, tmp_path / "checkout", head, depth=3)
    repo.git("remote", "set-url", "origin", "file:///nowhere")
    deepen.make_comparable(places(repo), repo.git("rev-parse", "HEAD~1"), head)
    deepen.make_comparable(places(repo), None, head)
    assert count(repo, "HEAD") == 3


def test_head_without_a_base_is_compared_with_its_parents(host, tmp_path):
    main = line(host, "main", 80)
    side = line(host, "side", 5, f"{main}~60")
    head = merge(host, main, side)
    repo = checkout(host.top, tmp_path / "checkout", head)
    deepen.make_comparable(places(repo), None, head)
    assert objects.read_parents(places(repo), head) == [main, side]
    assert repo.git("merge-base", main, side) == host.git("rev-parse", f"{main}~60")
    root = host.git("rev-list", "--max-parents=0", "main")
    deepen.make_comparable(places(repo), None, root)


def test_merges_within_the_range_are_comparable_afterwards(host, tmp_path):
    """The branch has merged `main` again, so the tips' merge base is near, and that of the merge is
    far.
    """
    start = line(host, "main", 40)
    line(host, "topic", 2, start)
    near = line(host, "main", 150, start)
    head = merge(host, host.git("rev-parse", "topic"), near)
    base = line(host, "main", 1, near)
    repo = checkout(host.top, tmp_path / "checkout", head)
    deepen.make_comparable(places(repo), base, head)
    assert repo.git("merge-base", *objects.read_parents(places(repo), head)) == start


def test_unrelated_histories_are_comparable_with_complete_history(host, tmp_path):
    head, base = line(host, "main", 300), line(host, "other", 300)
    repo = checkout(host.top, tmp_path / "checkout", head)
    deepen.make_comparable(places(repo), base, head)
    assert count(repo, f"{base}..{head}") == 300
    assert history.read_shallow_boundary(places(repo)) == set()


@pytest.mark.parametrize(("version", "persist"), [("v5", True), ("v7", True), ("v7", False)])
def test_checkouts_own_way_in_is_the_way_to_its_history(host, tmp_path, monkeypatch, version, persist):
    """Without such a header the input `token` applies; without either, the step fails and reports
    the reason.
    """
    start = line(host, "main", 40)
    base, head = line(host, "main", 30, start), line(host, "topic", 3, start)
    host.git("clone", "-q", "--bare", ".", str(tmp_path / "host.git"))
    host.git("-C", str(tmp_path / "host.git"), "config", "uploadpack.allowFilter", "true")
    with git_server(tmp_path, user="x-access-token", password=TOKEN) as server:
        action = Checkout(tmp_path / "work", tmp_path / "temp", server.url, TOKEN, version, persist_credentials=persist)
        clone_places = places(action.run("host.git", "refs/heads/topic"))
        if not persist:
            with pytest.raises(HistoryMissing) as caught:
                deepen.make_comparable(clone_places, base, head)
            assert "fetch-depth: 0" in caught.value.hint
            monkeypatch.setenv("GITHUB_SERVER_URL", server.url)
        for name, value in git_access.build_git_environment(clone_places, TOKEN).items():
            monkeypatch.setenv(name, value)
        deepen.make_comparable(clone_places, base, head)
        assert is_comparable(clone_places, base, head)
        assert len(set(filter(None, server.seen))) == 1


# -- where that fails


def test_unreachable_remote_fails_with_a_hint_about_fetch_depth(host, tmp_path):
    head = line(host, "main", 30)
    repo = checkout(host.top, tmp_path / "checkout", head)
    repo.git("remote", "set-url", "origin", "file:///nowhere")
    for base in (None, host.git("rev-parse", "main~5")):
        with pytest.raises(HistoryMissing) as caught:
            deepen.make_comparable(places(repo), base, head)
        assert "fetch-depth: 0" in caught.value.hint


def test_checkout_without_a_remote_is_one(host, tmp_path):
    head = line(host, "main", 30)
    repo = checkout(host.top, tmp_path / "checkout", head)
    repo.git("remote", "remove", "origin")
    with pytest.raises(HistoryMissing):
        deepen.make_comparable(places(repo), None, head)


def test_remote_that_is_shallow_itself_is_one(host, tmp_path):
    line(host, "main", 30)
    mirror = Repo(tmp_path / "mirror")
    host.git("clone", "-q", "--bare", "--depth=3", f"file://{host.top}", str(mirror.top))
    head, base = mirror.git("rev-parse", "main"), line(mirror, "other", 2)
    repo = checkout(mirror.top, tmp_path / "checkout", head)
    with pytest.raises(HistoryMissing):
        deepen.make_comparable(places(repo), base, head)


def test_missing_commit_is_recognized_as_missing(host, tmp_path):
    repo = checkout(host.top, tmp_path / "checkout", line(host, "main", 3))
    with pytest.raises(HistoryMissing) as caught:
        deepen.fetch_commits(places(repo), ["ab" * 20])
    assert deepen.is_gone(caught.value)
    repo.git("remote", "set-url", "origin", "file:///nowhere")
    with pytest.raises(HistoryMissing) as caught:
        deepen.fetch_commits(places(repo), ["ab" * 20])
    assert not deepen.is_gone(caught.value)


def test_looking_for_a_commit_fetches_nothing_in_a_partial_clone(host, tmp_path):
    base, head = line(host, "main", 60), line(host, "other", 60)
    repo = checkout(host.top, tmp_path / "checkout", head)
    repo.git("fetch", "-q", "--filter=blob:none", "--deepen=5", "origin", head)
    assert repo.git("config", "remote.origin.promisor") == "true"
    before = sorted((repo.top / ".git/objects/pack").iterdir())
    assert objects.find_missing_commits(places(repo), [base, head]) == [base]
    assert sorted((repo.top / ".git/objects/pack").iterdir()) == before


# -- what a shallow clone can tell


@pytest.mark.parametrize("seed", range(examples(12)))
def test_merge_bases_of_shallow_clone_match_whole_history(host, tmp_path, seed):
    """Compare random histories, also criss-cross ones, cut at each depth: the answer is equal, or
    unknown.
    """
    chance = random.Random(seed)
    commits = [host.commit("root")]
    tree = host.git("rev-parse", "HEAD^{tree}")
    for number in range(24):
        recent = commits[-6:] if chance.random() < 0.8 else commits
        parents = chance.sample(recent, min(len(recent), chance.choice((1, 1, 1, 2, 2, 3))))
        commits.append(host.git("commit-tree", tree, *[f"-p{parent}" for parent in parents], "-m", str(number)))
    left_tip, right_tip = commits[-1], chance.choice(commits[-6:-1])
    for number, tip in enumerate((left_tip, right_tip)):
        host.git("update-ref", f"refs/heads/tip{number}", tip)
    whole = MergeBases(places(host), left_tip, right_tip)
    answered = settled = 0
    for depth in (1, 2, 3, 4, 6, 9, 13):
        repo = make_repo(tmp_path / f"clone{depth}")
        repo.git("remote", "add", "origin", f"file://{host.top}")
        repo.git("fetch", "-q", f"--depth={depth}", "origin", left_tip, right_tip)
        shallow_bases = MergeBases(places(repo), left_tip, right_tip)
        for one, other in ((left_tip, right_tip), (right_tip, left_tip)):
            bases = shallow_bases.find_bases(one, other)
            if bases is not None:
                assert sorted(bases) == sorted(whole.find_bases(one, other) or []), depth
                answered += 1
                commits = history.list_commits(places(repo), [one], without=other)
                if shallow_bases.is_settled(one, other, commits):
                    assert commits.keys() == history.list_commits(places(host), [one], without=other).keys(), depth
                    settled += 1
    assert answered >= settled >= 2

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support.repos import Repo, isolate, make_repo
from vmrag_link import env, hints
from vmrag_link.errors import GitFailed, GitReferenceMissing, GitRepositoryMissing, PinMalformed
from vmrag_link.git import (
    configuration,
    git_operation,
    identity,
    listing,
    own_keys,
    pin_conflict,
    plumbing,
    remotes,
    staging,
)
from vmrag_link.git.run import check_git
from vmrag_link.paths import PIN_NAME


@pytest.fixture(autouse=True)
def _isolated(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path / "home")


@pytest.fixture
def repo(tmp_path):
    made = make_repo(tmp_path / "a 'repo' ü")
    made.commit("first", pin="one\n", code="1")
    return made


@pytest.fixture
def places(repo):
    return plumbing.locate_work_tree(repo.top)


# -- locate


def test_subdirectory_belongs_to_its_work_tree(repo):
    (repo.top / "sub" / "deep").mkdir(parents=True)
    places = plumbing.locate_work_tree(repo.top / "sub" / "deep")
    assert (places.top, places.git_dir, places.common) == (repo.top, repo.top / ".git", repo.top / ".git")


def test_linked_work_tree_has_own_git_dir_and_common_dir(repo, tmp_path):
    repo.git("worktree", "add", "-q", "../linked", "-b", "side")
    places = plumbing.locate_work_tree(tmp_path / "linked")
    assert places.top == tmp_path / "linked"
    assert places.git_dir == repo.top / ".git" / "worktrees" / "linked"
    assert places.common == repo.top / ".git"
    assert plumbing.read_head(places).branch == "side"


def test_submodule_is_a_repository_of_its_own(repo, tmp_path):
    outer = make_repo(tmp_path / "outer")
    outer.git("submodule", "--quiet", "add", str(repo.top), "inner")
    places = plumbing.locate_work_tree(outer.top / "inner")
    assert places.git_dir == places.common == outer.top / ".git" / "modules" / "inner"
    assert plumbing.read_pin_bytes(places) == b"one\n"
    assert plumbing.read_blob(places, "HEAD:code") == b"1"


def test_variables_inherited_from_a_hook_do_not_lead_to_another_repository(repo, tmp_path, monkeypatch):
    other = make_repo(tmp_path / "other")
    other.commit("x", pin="other\n")
    monkeypatch.setenv("GIT_DIR", str(other.top / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.top))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.top / ".git" / "index"))
    places = plumbing.locate_work_tree(repo.top)
    assert places.top == repo.top
    assert plumbing.read_blob(places, f":{PIN_NAME}") == b"one\n"


def test_scrubbed_variables_are_those_that_git_lists():
    listed = subprocess.run(["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True)
    assert set(listed.stdout.split()) - {"GIT_CONFIG_COUNT"} <= set(env.GIT_LOCAL)


def test_outside_of_a_repository_the_hint_is_git_init(tmp_path):
    with pytest.raises(GitRepositoryMissing) as raised:
        plumbing.locate_work_tree(tmp_path)
    assert raised.value.hint == "change to a folder of your repository, or run 'git init' to create one"


def test_bare_repository_is_refused_in_a_sentence(tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare"], check=True)
    with pytest.raises(GitRepositoryMissing):
        plumbing.locate_work_tree(tmp_path / "bare")


def test_path_with_a_line_break_is_refused(tmp_path):
    with pytest.raises(GitFailed):
        plumbing.locate_work_tree(make_repo(tmp_path / "a\nb").top)


def test_missing_directory_is_refused(tmp_path):
    with pytest.raises(GitRepositoryMissing):
        plumbing.locate_work_tree(tmp_path / "absent")


def test_missing_git_error_suggests_the_installation(repo, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitFailed) as raised:
        plumbing.locate_work_tree(repo.top)
    assert "install git" in raised.value.hint


def test_repository_of_another_owner_repeats_the_advice_of_git(repo, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GitFailed, match="dubious ownership") as raised:
        plumbing.locate_work_tree(repo.top)
    assert raised.value.hint.startswith("run 'git config --global --add safe.directory")


def test_repository_that_git_cannot_read_is_not_called_missing(repo):
    (repo.top / ".git" / "config").write_text("[broken")
    with pytest.raises(GitFailed, match="config"):
        plumbing.locate_work_tree(repo.top)


# -- head


def test_head_follows_git_through_loose_packed_detached_and_unborn(repo, places):
    def agrees():
        head = plumbing.read_head(places)
        assert head.symbolic == (repo.git("symbolic-ref", "-q", "HEAD", check=False) or None)
        assert head.commit == (repo.git("rev-parse", "-q", "--verify", "HEAD", check=False) or None)
        return head

    assert agrees().branch == "main"
    repo.git("checkout", "-q", "-b", "feature/ü")
    repo.commit("second")
    assert agrees().branch == "feature/ü"
    repo.git("pack-refs", "--all")
    assert not (repo.top / ".git" / "refs" / "heads" / "main").exists()
    assert agrees().commit
    repo.git("checkout", "-q", "--detach")
    assert agrees().branch is None
    repo.git("checkout", "-q", "--orphan", "unborn")
    assert agrees().commit is None
    repo.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    repo.git("symbolic-ref", "HEAD", "refs/heads/alias")
    assert plumbing.read_head(places).commit == repo.git("rev-parse", "main")


def test_head_takes_well_under_a_millisecond(places):
    best = min(_seconds(lambda: plumbing.read_head(places)) for _ in range(50))
    assert best < 0.001


def _seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# -- busy


@pytest.fixture
def diverged(repo):
    repo.git("checkout", "-q", "-b", "side")
    repo.commit("side", code="side")
    repo.commit("more", other="more")
    repo.git("checkout", "-q", "main")
    repo.commit("main", code="main")
    return repo


@pytest.mark.parametrize(
    ("command", "what", "abort"),
    [
        (("rebase", "side"), "rebase", ("rebase", "--abort")),
        (("rebase", "--apply", "side"), "rebase", ("rebase", "--abort")),
        (("merge", "side"), "merge", ("merge", "--abort")),
        (("cherry-pick", "side~1"), "cherry-pick", ("cherry-pick", "--abort")),
        (("revert", "--no-edit", "main~1"), "revert", ("revert", "--abort")),
        (("bisect", "start"), "bisect", ("bisect", "reset")),
    ],
)
def test_operation_is_detected_with_the_command_that_ends_it(diverged, places, command, what, abort):
    assert git_operation.find_operation(places) is None
    diverged.git(*command, check=False)
    assert git_operation.find_operation(places) == what
    goes_on = "commit" if what == "merge" else f"{what} --continue"
    assert hints.list_commands(git_operation.suggest_finish(what)) == (
        ["git bisect reset"] if what == "bisect" else [f"git {goes_on}", "git status"]
    )
    diverged.git(*abort)
    assert git_operation.find_operation(places) is None


def test_applying_a_mailbox_is_not_taken_for_a_rebase(diverged, places):
    patch = diverged.git("format-patch", "--stdout", "-1", "side~1")
    diverged.git("am", check=False, stdin=patch + "\n")
    assert git_operation.find_operation(places) == "am"


def test_cherry_pick_of_several_is_still_under_way_between_two(diverged, places):
    diverged.git("cherry-pick", "side~1", "side", check=False)
    diverged.commit("resolved", code="resolved")
    assert not (places.git_dir / "CHERRY_PICK_HEAD").exists()
    assert git_operation.find_operation(places) == "cherry-pick"


def test_rebase_in_one_work_tree_leaves_the_other_idle(diverged, places, tmp_path):
    diverged.git("worktree", "add", "-q", "../linked", "side")
    Repo(tmp_path / "linked").git("rebase", "main", check=False)
    assert git_operation.find_operation(places) is None
    assert git_operation.find_operation(plumbing.locate_work_tree(tmp_path / "linked")) == "rebase"


# -- the pin's conflict


@pytest.mark.parametrize(("begin", "base"), [("-b", b"one\n"), ("--orphan", None)])
def test_closed_conflict_is_read_from_commits_if_the_index_lost_it(repo, places, begin, base):
    repo.git("checkout", "-q", begin, "side")
    repo.commit("theirs", pin="theirs\n")
    repo.git("checkout", "-q", "main")
    repo.commit("ours", pin="ours\n")
    repo.git("merge", "--allow-unrelated-histories", "side", check=False)
    repo.git("read-tree", "HEAD")
    assert not repo.git("ls-files", "--unmerged", "--resolve-undo")
    versions = pin_conflict.Stages(base, b"ours\n", b"theirs\n")
    assert pin_conflict.find_undecided(places) == pin_conflict.UndecidedConflict(versions, closed=True)


# -- contents


def test_blobs_are_read_from_index_and_commits_byte_for_byte(repo, places):
    first = repo.git("rev-parse", "HEAD")
    repo.commit("binary", code=b"\x00\xff\n\r\n")
    repo.write("code", "staged")
    repo.git("add", "code")
    assert plumbing.read_blob(places, ":code") == b"staged"
    assert plumbing.read_blob(places, "HEAD:code") == b"\x00\xff\n\r\n"
    assert plumbing.read_blob(places, f"{first}:code") == b"1"
    assert plumbing.read_blob(places, "HEAD:absent") is None
    assert plumbing.read_blob(places, ":absent") is None


def test_reference_that_is_missing_is_not_a_missing_path(places):
    with pytest.raises(GitReferenceMissing) as raised:
        plumbing.read_blob(places, "no-such-branch:code")
    assert raised.value.hint


def test_blob_above_the_limit_is_refused_before_it_is_read(repo, places):
    repo.commit("big", code="x" * 100)
    assert plumbing.read_blob(places, "HEAD:code", limit=100)
    with pytest.raises(GitFailed, match="100 bytes"):
        plumbing.read_blob(places, "HEAD:code", limit=99)


def test_pin_is_read_from_file_then_index_then_head(repo, places):
    repo.write(PIN_NAME, "index\n")
    repo.git("add", PIN_NAME)
    pin = repo.write(PIN_NAME, "file\n")
    assert plumbing.read_pin_bytes(places) == b"file\n"
    pin.unlink()
    assert plumbing.read_pin_bytes(places) == b"index\n"
    repo.git("rm", "-q", "-f", "--cached", PIN_NAME)
    assert plumbing.read_pin_bytes(places) == b"one\n"
    repo.git("commit", "-q", "-m", "no pin")
    assert plumbing.read_pin_bytes(places) is None


def test_repository_without_commits_has_no_pin(tmp_path):
    assert plumbing.read_pin_bytes(plumbing.locate_work_tree(make_repo(tmp_path / "empty").top)) is None


def test_pin_other_than_a_regular_file_is_rejected(repo, places, tmp_path):
    (tmp_path / "secret").write_text("secret")
    places.pin.unlink()
    places.pin.symlink_to(tmp_path / "secret")
    with pytest.raises(PinMalformed):
        plumbing.read_pin_bytes(places)
    places.pin.unlink()
    places.pin.mkdir()
    with pytest.raises(PinMalformed):
        plumbing.read_pin_bytes(places)


def test_pin_is_read_up_to_8_kib(repo, places):
    repo.write(PIN_NAME, "x" * 100_000)
    assert plumbing.read_pin_bytes(places) == b"x" * 8192


def test_revision_resolves_to_its_commit(repo, places):
    repo.git("tag", "-a", "v1", "-m", "v1")
    commit = repo.git("rev-parse", "HEAD")
    assert {plumbing.resolve_commit(places, ref) for ref in ("HEAD", "main", "v1", commit[:10])} == {commit}


@pytest.mark.parametrize("ref", ["absent", "--all", "-h", "", "^main", "main..main", "HEAD:code", "a\nb", "0" * 40])
def test_resolve_commit_rejects_unknown_names(places, ref):
    with pytest.raises(GitReferenceMissing):
        plumbing.resolve_commit(places, ref)


def test_hint_for_unknown_commit_fetches_history_of_shallow_clone(places):
    with pytest.raises(GitReferenceMissing) as complete:
        plumbing.resolve_commit(places, "HEAD~900")
    assert complete.value.hint.startswith("run 'git fetch', or ")
    (places.common / "shallow").touch()
    with pytest.raises(GitReferenceMissing) as shallow:
        plumbing.resolve_commit(places, "HEAD~900")
    assert shallow.value.hint.startswith("run 'git fetch --unshallow', or ")


# -- writing


def test_staging_adds_one_path_and_nothing_else(repo, places):
    repo.write(PIN_NAME, "two\n")
    repo.write("code", "2")
    assert staging.stage_path(places, places.pin)
    assert repo.git("diff", "--cached", "--name-only") == PIN_NAME


def test_ignored_path_is_still_staged(repo, places):
    repo.write(".gitignore", ".*\n")
    repo.write("*.new", "x")
    repo.git("rm", "-q", "--cached", PIN_NAME)
    assert staging.stage_path(places, places.pin)
    assert repo.git("ls-files") == f"{PIN_NAME}\ncode"


def test_path_left_out_by_a_sparse_checkout_is_staged(repo, places):
    repo.git("sparse-checkout", "set", "--no-cone", "/code")
    assert not places.pin.exists()
    repo.write(PIN_NAME, "two\n")
    assert staging.stage_path(places, places.pin)
    assert repo.git("show", f":{PIN_NAME}") == "two"


def test_staging_waits_for_a_lock_and_gives_up_after_two_seconds(repo, places, monkeypatch):
    repo.write(PIN_NAME, "two\n")
    lock = repo.write(".git/index.lock", "")
    assert git_operation.is_index_locked(places)
    monkeypatch.setattr(staging, "INDEX_LOCK_SECONDS", 0.1)
    assert staging.stage_path(places, places.pin) is False
    monkeypatch.setattr(staging, "INDEX_LOCK_SECONDS", 10)
    threading.Timer(0.2, lock.unlink).start()
    assert staging.stage_path(places, places.pin) is True


def test_staging_a_missing_file_is_an_error_not_a_wait(places):
    with pytest.raises(GitFailed, match="did not match"):
        staging.stage_path(places, places.top / "absent")


def test_commit_hook_can_stage_into_the_index_of_its_commit(repo, places, tmp_path):
    other = tmp_path / "next-index"
    other.write_bytes((repo.top / ".git" / "index").read_bytes())
    repo.write(PIN_NAME, "two\n")
    assert staging.stage_path(places, places.pin, index_file=other)
    assert repo.git("show", f":{PIN_NAME}") == "one"
    assert repo.git("show", f":{PIN_NAME}", env={"GIT_INDEX_FILE": str(other)}) == "two"


# -- configuration and identity


def test_read_section_returns_the_last_of_several_values(repo, places):
    assert configuration.read_section(places, "vmrag") == {}
    repo.git("config", "vmrag.remote", "first")
    repo.git("config", "--add", "vmrag.remote", "-x\ny ü")
    repo.git("config", "vmrag.Sub.Key", "v")
    with (places.common / "config").open("a") as config:
        config.write("[vmrag]\n\tflag\n")
    assert configuration.read_section(places, "vmrag") == {
        "vmrag.remote": "-x\ny ü",
        "vmrag.Sub.key": "v",
        "vmrag.flag": "true",
    }


def test_kb_branch_follows_renamed_code_branch_and_ends_with_deleted_one(repo, places):
    repo.git("branch", "feature/a.b")
    own_keys.set_kb_branch(places, "feature/a.b", "b/x-1")
    repo.git("branch", "-m", "feature/a.b", "Other")
    assert own_keys.find_kb_branch(places, "Other") == "b/x-1"
    assert own_keys.find_kb_branch(places, "feature/a.b") is None
    repo.git("branch", "-D", "Other")
    assert own_keys.find_kb_branch(places, "Other") is None
    own_keys.set_kb_branch(places, "main", "first")
    own_keys.set_kb_branch(places, "main", "main")
    assert own_keys.read_kb_branches(places) == {"main": "main"}


def test_kb_branch_that_others_write_down_is_seen_at_once(repo, places):
    own_keys.set_kb_branch(places, "main", "one")
    for name in ("two", "six"):
        repo.git("config", "branch.main.vmragBranch", name)
        assert own_keys.find_kb_branch(places, "main") == name
    repo.git("config", "--unset", "branch.main.vmragBranch")
    assert own_keys.find_kb_branch(places, "main") is None


def test_settings_are_read_once_and_reread_after_changes(repo, places, tmp_path, monkeypatch):
    """In files that were not there before, too: git reads them, so their changes count."""
    of_person = Path(os.environ["GIT_CONFIG_GLOBAL"])
    included, later = tmp_path / "included", tmp_path / "later"
    repo.git("config", "include.path", str(included))
    repo.git("config", "includeIf.onbranch:side.path", str(later))
    repo.git("config", "extensions.worktreeConfig", "true")
    later.write_text("[vmrag]\n\tremote = side\n")
    requests = []
    monkeypatch.setattr(configuration, "check_git", lambda *it, **more: requests.append(it) or check_git(*it, **more))

    def remote() -> str | None:
        configuration.read_section(places, "vmrag")
        before = len(requests)
        value = configuration.read_section(places, "vmrag").get("vmrag.remote")
        assert len(requests) == before, "git was asked again where nothing had changed"
        return value

    assert remote() is None
    of_person.write_text("[vmrag]\n\tremote = global\n")
    assert remote() == "global"
    included.write_text("[vmrag]\n\tremote = included\n")
    assert remote() == "included"
    repo.git("switch", "-q", "-c", "side")
    assert remote() == "side"
    repo.git("config", "--worktree", "vmrag.remote", "worktree")
    assert remote() == "worktree"
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "vmrag.remote")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "environment")
    assert remote() == "environment"


def test_conflict_in_another_terminal_is_seen_despite_the_cache(repo, places):
    assert pin_conflict.read_stages(places) is None
    repo.git("switch", "-q", "-c", "side")
    repo.commit("two", pin="two\n")
    repo.git("switch", "-q", "main")
    repo.commit("three", pin="three\n")
    assert pin_conflict.read_stages(places) is None
    assert repo.run("merge", "-q", "side").returncode != 0
    assert pin_conflict.read_stages(places) == (b"one\n", b"three\n", b"two\n")
    repo.git("merge", "--abort")
    assert pin_conflict.read_stages(places) is None


def test_identity_is_that_of_a_commit(places, monkeypatch):
    assert identity.read_identity(places) == "Ada Lovelace <ada@example.com>"
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Grace Hopper")
    assert identity.read_identity(places) == "Grace Hopper <ada@example.com>"


REMOTES = [
    ["remote.a.url=one", "remote.a.url=two", "remote.b.fetch=+refs/heads/*:refs/remotes/b/*", "remote.pushDefault=a"],
    ["remote.x.y.url=with dot", "remote.c.pushurl=p", "remote.d.url=o", "remote.d.pushurl=1", "remote.d.pushurl=2"],
    ["remote.a.url=hub:me/a", "url.https://hub.example/.insteadOf=hub:", "remote.b.url=other"],
    ["remote.a.url=hub:me/a", "url.ssh://hub.example/.pushInsteadOf=hub:"],
    ["remote.Z.url=upper", "remote.a.url=lower", "remotes.group=a Z", "branch.main.remote=elsewhere"],
    ["remote./a.url=ignored", "remote.b.url=b"],
]


@pytest.mark.parametrize("settings", REMOTES)
def test_remotes_equal_those_that_git_lists(repo, places, settings):
    for setting in settings:
        repo.git("config", "--add", *setting.split("=", 1))
    configuration.clear_cache(places)
    listed = [line.partition("\t") for line in repo.git("remote", "--verbose").split("\n") if line]
    assert remotes.list_remotes(places) == [*dict.fromkeys(name.strip() for name, _, _ in listed)]
    for name in remotes.list_remotes(places):
        urls = [text for listed_name, _, text in listed if listed_name == name]
        fetch, push = ([url.removesuffix(way) for url in urls if url.endswith(way)] for way in (" (fetch)", " (push)"))
        if fetch:
            assert (remotes.read_url(places, name), remotes.read_push_urls(places, name)) == (fetch[0], push)


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({}, {}),
        ({"author.name": "Grace"}, {}),
        ({"author.email": "grace@example.com", "user.name": "Grace  Hopper"}, {}),
        ({"user.name": "Jr."}, {}),
        ({"user.name": 'A <b> "c"'}, {}),
        ({"user.name": "Zoë 王"}, {"GIT_AUTHOR_EMAIL": "zoe@example.com"}),
        ({"user.name": ""}, {"GIT_AUTHOR_NAME": "Ada"}),
        ({"user.email": " ada@example.com "}, {}),
        ({"user.email": "x"}, {"EMAIL": "other@example.com"}),
    ],
)
def test_identity_equals_that_of_git(repo, places, monkeypatch, settings, environment):
    for key, value in settings.items():
        repo.git("config", key, value)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    expected = repo.git("var", "GIT_AUTHOR_IDENT").rsplit(" ", 2)[0]
    assert identity.read_identity(places) == expected


def test_identity_is_refused_if_the_environment_names_an_empty_one(places, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_NAME", "")
    with pytest.raises(GitFailed):
        identity.read_identity(places)


def test_missing_identity_error_hints_how_to_set_one(places, monkeypatch, tmp_path):
    (tmp_path / "none").write_text("[user]\n\tuseConfigOnly = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    with pytest.raises(GitFailed) as raised:
        identity.read_identity(places)
    assert "git config --global user.name" in raised.value.hint


def test_index_shows_without_git_whether_it_names_files(tmp_path: Path, git_log: Path) -> None:
    repo = make_repo(tmp_path / "empty")
    places = plumbing.locate_work_tree(repo.top)
    assert not listing.tracks_files(places), "git has written no index yet"
    repo.commit(**{"a.txt": "a"})
    git_log.write_text("")
    assert listing.tracks_files(places)
    assert not git_log.read_text()
    repo.git("update-index", "--split-index")
    assert listing.tracks_files(places), "the entries are in another file"
    repo.git("rm", "-q", "a.txt")
    assert not listing.tracks_files(places)
    (repo.top / ".git" / "index").write_bytes(b"DIRC")
    with pytest.raises(GitFailed):
        listing.tracks_files(places)

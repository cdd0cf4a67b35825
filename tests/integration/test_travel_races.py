"""Several who push at once, and processes that are killed between any two steps: everything
arrives, and both sides stay valid.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.support import travel
from tests.support.engines import AUTHOR, head
from tests.support.long import examples
from tests.support.repos import Repo
from tests.support.travel import DATA_REF, Clone, Pair, at_once, git_clone
from vmrag_link.engines.doltlite import remotes as engine_remotes
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.errors import RemoteRejected
from vmrag_link.git import objects, transfer
from vmrag_link.transport import copies, git_transport, segments

pytestmark = pytest.mark.hooks("off")

home, pair, _pair = travel.home, travel.pair, travel._pair

ROUNDS = examples(24)

PUSHING = """
from tests.support.engines import head
clone, where, name = Clone(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
until = Path(sys.argv[4])
until.with_name(until.name + name).touch()
while not until.exists(): time.sleep(0.01)
for number in range(ROUNDS):
    revision = clone.record("page", f"{name} {number}", branch=name)
    if number % 5 == 0:  # on no branch there: under the one `vmrag_keep` of both
        clone.engine.move_branch(name, clone.engine.map_parents([revision])[revision][0], expected=revision)
        clone.push(where, revisions=(revision,))
    else:
        clone.push(where, name)
    print(revision)
"""


def both_push(pair: Pair, where: str) -> list[str]:
    """All revisions that two processes pushed at the same time."""
    pair.ada.close()
    pair.bob.close()
    go = pair.folder / "go"
    body = PUSHING.replace("ROUNDS", str(ROUNDS))
    bodies = {
        name: f"sys.argv[1:] = {[str(pair.folder / name), where, name, str(go)]!r}\n{body}" for name in ("ada", "bob")
    }
    return [revision for out in at_once(go, bodies) for revision in out.split()]


@pytest.mark.parametrize("kind", ["git", "file"])
@pytest.mark.sample(1)
def test_all_that_two_push_at_once_arrives(kind: str, pair: Pair) -> None:
    where = "origin" if kind == "git" else f"file://{pair.folder}/remote.doltlite"
    for name in ("ada", "bob"):
        shutil.rmtree(pair.folder / name / ".git" / "hooks", ignore_errors=True)
    pushed = both_push(pair, where)
    assert len(set(pushed)) == 2 * ROUNDS
    heads = []
    for clone in (pair.ada, pair.bob):
        assert clone.fetch(where)
        clone.push(where)
        remote_heads = clone.engine.remote_heads(clone.at(where).key)
        assert clone.engine.find_unreachable(pushed, heads=remote_heads.values()) == []
        heads.append(remote_heads)
    assert heads[0].keys() == heads[1].keys()
    if kind == "git":
        assert pair.hub.git("fsck", "--strict", "--no-dangling") == ""
        assert int(pair.hub.git("rev-list", "--count", DATA_REF)) > 2 * ROUNDS


@pytest.mark.parametrize("kind", ["git", "file"])
def test_forced_push_keeps_a_concurrent_push(kind: str, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "origin" if kind == "git" else f"file://{pair.folder}/remote.doltlite"
    pair.ada.push(where)
    pair.bob.fetch(where)
    engine = pair.ada.engine
    first = head(engine, "main")
    engine.move_branch("main", engine.map_parents([first])[first][0], expected=first)
    mine = pair.ada.record("rewritten")
    pair.bob.engine.create_branch("main", first)
    theirs = pair.bob.record("meanwhile")
    real = DoltliteEngine.push

    def other_first(self: DoltliteEngine, *arguments: object, force: bool = False) -> None:
        if force:
            monkeypatch.undo()
            pair.bob.push(where, "main")
        real(self, *arguments, force=force)  # type: ignore[arg-type]

    monkeypatch.setattr(DoltliteEngine, "push", other_first)
    pair.ada.push(where, "main", force=True)
    pair.bob.fetch(where)
    assert pair.bob.heads(where)["main"] == mine
    heads = pair.bob.engine.remote_heads(pair.bob.at(where).key).values()
    assert pair.bob.engine.find_unreachable([first, theirs], heads=heads) == []


# -- killed between two steps ----------------------------------------------------------------------


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def instead(where: object, name: str) -> Callable[[], None]:
    return lambda: setattr(where, name, die)


def after(where: object, name: str, times: int = 1) -> Callable[[], None]:
    """Dies when that was called so many times."""

    def arm() -> None:
        real, remaining = getattr(where, name), iter(range(times - 1))

        def then(*arguments: object, **options: object) -> object:
            result = real(*arguments, **options)
            if next(remaining, None) is None:
                die()
            return result

        setattr(where, name, then)

    return arm


PUSH_STEPS = {
    "before anything": instead(git_transport.GitTransport, "push"),
    "one branch is in the copy": after(engine_remotes, "push"),
    "all branches are in the copy": instead(segments, "store_file"),
    "a segment is stored": after(objects.ObjectWriter, "write_blob"),
    "all segments are stored": instead(objects.ObjectWriter, "write_commit"),
    "the commit is made": instead(transfer, "push"),
    "the remote has it": after(transfer, "push"),
    "the tracking ref was moved": after(transfer, "set_ref"),
    "the note was written": after(copies, "record_file"),
}

FETCH_STEPS = {
    "before anything": instead(transfer, "fetch"),
    "git has fetched": after(transfer, "fetch"),
    "the copy is about to be restored": instead(objects, "read_blobs"),
    "the copy is restored": after(segments, "restore_file"),
    "the engine has fetched": after(engine_remotes, "fetch"),
    "the note was written": after(copies, "record_file"),
    "the tracking ref was moved": after(transfer, "set_ref"),
}

CLONE_STEPS = {
    **{name: step for name, step in FETCH_STEPS.items() if name != "the engine has fetched"},
    "the engine begins": instead(DoltliteEngine, "clone"),
    "the knowledge base is there": after(DoltliteEngine, "clone"),
}


def dies(clone: Clone, arm: Callable[[], None], action: Callable[[], object]) -> None:
    """Run the action in a separate process, which has no open files of vmrag."""
    clone.close()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            arm()
            action()
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@pytest.mark.parametrize("step", PUSH_STEPS)
@pytest.mark.sample(1)
def test_push_that_was_killed_leaves_both_sides_valid(step: str, pair: Pair) -> None:
    pair.ada.record("next")
    pair.ada.record("side", branch="side")
    mine = pair.ada.state()
    dies(pair.ada, PUSH_STEPS[step], pair.ada.push)
    # -- for everybody else it happened or did not
    before = pair.bob.heads()
    assert pair.bob.fetch()
    happened = step in list(PUSH_STEPS)[6:]
    assert (pair.bob.heads() != before) is happened
    pair.bob.push("origin", "bob")
    # -- and the next one brings the rest
    assert pair.ada.state() == mine
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == pair.ada.heads()
    assert pair.bob.heads()["side"] == head(pair.ada.engine, "side")


@pytest.mark.parametrize("step", FETCH_STEPS)
@pytest.mark.sample(1)
def test_fetch_that_was_killed_is_made_up_for(step: str, pair: Pair) -> None:
    pair.ada.record("long", travel.LONG[::-1])
    pair.ada.push()
    mine = pair.bob.state()
    dies(pair.bob, FETCH_STEPS[step], pair.bob.fetch)
    assert pair.bob.state() == mine
    pair.bob.push("origin", "bob")
    assert pair.bob.fetch()
    assert pair.ada.fetch()
    assert pair.bob.heads() == pair.ada.heads()


@pytest.mark.parametrize("step", CLONE_STEPS)
@pytest.mark.sample(1)
def test_clone_that_was_killed_can_be_made_again(step: str, pair: Pair) -> None:
    fresh = git_clone(pair.hub.top, pair.folder / "fresh")
    dies(fresh, CLONE_STEPS[step], fresh.clone_knowledge)
    if not DoltliteEngine.exists(fresh.places.kb):
        assert fresh.clone_knowledge()
    assert fresh.fetch()
    assert fresh.heads() == pair.ada.heads()
    fresh.record("fresh", branch="fresh")
    fresh.push()
    assert pair.ada.fetch()
    assert pair.ada.heads() == fresh.heads()
    fresh.close()


# -- what is remembered here is wrong --------------------------------------------------------------


def lose_an_object(clone: Clone) -> None:
    """Delete an object of the tracked state; packed objects are unpacked for that."""
    objects = clone.store.top / "objects"
    for path in list((objects / "pack").glob("*.pack")):
        aside = path.rename(clone.repo.top / path.name)
        for index in (path.with_suffix(".idx"), path.with_suffix(".rev")):
            index.unlink(missing_ok=True)
        with aside.open("rb") as stream:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=clone.store.top, stdin=stream, check=True)
    name = clone.store.git("rev-parse", f"{clone.tracking}:000001")
    (objects / name[:2] / name[2:]).unlink()


def lose_an_object_and_the_copy(clone: Clone) -> None:
    lose_an_object(clone)
    shutil.rmtree(clone.places.remotes)


WRONG = {
    "the note is missing": lambda clone: clone.copy.with_name("stands-at").unlink(),
    "the note names another commit": lambda clone: clone.copy.with_name("stands-at").write_text("0" * 40),
    "the note is no text": lambda clone: clone.copy.with_name("stands-at").write_bytes(b"\xff\xfe\x00"),
    "the copy is missing": lambda clone: clone.copy.unlink(),
    "the copy is empty": lambda clone: clone.copy.write_bytes(b""),
    "the copy is shorter": lambda clone: clone.copy.write_bytes(clone.copy.read_bytes()[:-300]),
    "the copy has rubbish in it": lambda clone: clone.copy.write_bytes(b"x" * clone.copy.stat().st_size),
    "the whole folder is missing": lambda clone: shutil.rmtree(clone.places.remotes),
    "the tracking ref is missing": lambda clone: clone.store.git("update-ref", "-d", clone.tracking),
    "the tracking ref is a commit of something else": lambda clone: clone.store.git(
        "update-ref", clone.tracking, clone.store.git("commit-tree", "-m", "x", clone.store.git("mktree"))
    ),
    "the tracking ref is a blob": lambda clone: clone.store.git(
        "update-ref", clone.tracking, f"{clone.tracking}:000001"
    ),
    "the git repository of remotes is missing": lambda clone: shutil.rmtree(clone.store.top),
    "the engine knows nothing of the remote": lambda clone: clone.engine.forget_remote(clone.at().key),
    "an object was lost": lose_an_object,
    "an object was lost, and the copy": lose_an_object_and_the_copy,
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.sample(1)
def test_wrong_tracking_state_does_not_harm_a_push(name: str, pair: Pair) -> None:
    if name != "the engine knows nothing of the remote":
        pair.bob.close()
    revision = pair.ada.record("next")
    pair.ada.push()
    WRONG[name](pair.bob)
    pair.bob.push("origin", "bob")
    assert pair.bob.heads() == {"main": revision, "bob": head(pair.bob.engine, "bob")}
    assert pair.ada.fetch()
    assert pair.ada.heads() == pair.bob.heads()
    assert pair.ada.copy.read_bytes() == pair.bob.copy.read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "the note is no text",
        "the copy is shorter",
        "the engine knows nothing of the remote",
        "an object was lost, and the copy",
    ],
)
@pytest.mark.sample(2)
def test_wrong_tracking_state_does_not_harm_a_fetch(name: str, pair: Pair) -> None:
    WRONG[name](pair.bob)
    assert pair.bob.fetch()
    assert pair.bob.heads() == pair.ada.heads()


def test_unrelated_knowledge_base_in_old_clone_is_rejected(pair: Pair) -> None:
    pair.bob.close()
    shutil.rmtree(pair.bob.places.shared)
    DoltliteEngine.create(pair.bob.places.kb, author=AUTHOR, date="2027-01-01T00:00:00Z").close()
    pair.bob.record("own")
    mine = pair.bob.state()
    for action in (pair.bob.push, pair.bob.fetch, pair.bob.push):
        with pytest.raises(RemoteRejected):
            action()
    assert pair.bob.state() == mine
    pair.hub.git("update-ref", "-d", DATA_REF)  # they have agreed to start from the beginning
    pair.bob.push()
    assert git_clone(pair.hub.top, pair.folder / "fresh").clone_knowledge()


# -- the remote ------------------------------------------------------------------------------------


def test_two_first_pushes_make_one_knowledge_base(pair: Pair) -> None:
    pair.hub.git("update-ref", "-d", DATA_REF)
    for clone in (pair.ada, pair.bob):
        clone.store.git("update-ref", "-d", clone.tracking)
    pair.bob.push()
    pair.ada.push()
    pair.bob.fetch()
    assert pair.bob.heads().keys() == {"main", "bob"}


def test_ref_that_two_put_back_at_once_is_put_back(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.hub.git("update-ref", "-d", DATA_REF)
    real = git_transport.GitTransport.restore_remote

    def other_first(self: git_transport.GitTransport) -> bool:
        monkeypatch.undo()
        pair.ada.push()
        return real(self)

    monkeypatch.setattr(git_transport.GitTransport, "restore_remote", other_first)
    pair.bob.push("origin", "bob")
    assert pair.ada.fetch()
    assert pair.ada.heads().keys() == {"main", "bob"}


def test_clone_that_was_moved_knows_all_branches_after_a_push(pair: Pair) -> None:
    """The fixture has copied it from where it was made, with what it remembers."""
    pair.ada.engine.create_branch("topic", pair.ada.heads()["main"])
    pair.ada.push("origin", "topic")
    assert set(pair.ada.heads()) == {"main", "topic"}


def test_remote_that_gets_another_url_is_another_place(pair: Pair) -> None:
    """The code moves to another host, where nothing is yet."""
    heads = pair.bob.heads()
    before = pair.bob.repo.git("remote", "get-url", "origin")
    other = travel.bare(pair.folder / "other.git")
    pair.bob.repo.git("remote", "set-url", "origin", str(other.top))
    assert pair.bob.heads() == {}
    pair.bob.push("origin", "bob")
    assert pair.bob.heads() == {"bob": head(pair.bob.engine, "bob")}
    pair.bob.repo.git("remote", "set-url", "origin", before)
    assert pair.bob.heads() == heads


def test_knowledge_refs_are_hidden_from_branches_and_tags(pair: Pair) -> None:
    pair.ada.record("next")
    pair.ada.push()
    fresh = git_clone(pair.hub.top, pair.folder / "fresh", "--no-local")
    assert fresh.repo.git("for-each-ref", "refs/vmrag", "--format=%(refname)") == ""
    assert transfer.read_tip(fresh.places, DATA_REF) is None
    assert DATA_REF not in Repo(pair.folder).git("ls-remote", "--heads", "--tags", str(pair.hub.top))

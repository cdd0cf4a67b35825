"""Links travel with the knowledge base, on a separate branch: through clones, concurrent pushes,
and forks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import dolt, people, travel
from tests.support.engines import AUTHOR, DATE
from tests.support.people import User, World
from tests.support.repos import Repo
from tests.support.templates import build_once, copy_tree
from tests.support.travel import Clone, Pair, at_once, child
from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import LINKS_BRANCH
from vmrag_link.errors import KnowledgeRefused
from vmrag_link.models import Link
from vmrag_link.transport import connection
from vmrag_link.transport.publish import PublishRequest, publish

pytestmark = pytest.mark.hooks("off")

shared, world, home = people.shared, people.world, travel.home


# -- what people see


def rows(user: User) -> dict[str, dict[str, str]]:
    return {link["git_commit"]: link for link in user.ask("links", "list")["links"]}


def share(user: User) -> None:
    user.git("config", "vmrag.link.share", "true")


@pytest.fixture
def ada(world: World) -> User:
    """A user who shares links.

    The hook links her first documents; an old commit is linked manually.
    """
    ada = world.ada
    share(ada)
    ada.vmrag("links", "rebuild")
    return ada


def test_links_are_not_pushed_by_default(world: World) -> None:
    world.ada.vmrag("link")
    assert "link" not in world.ada.vmrag("push").out
    bob = world.join("bob")
    bob.vmrag("clone")
    assert rows(bob) == {}


def test_file_of_the_repository_alone_does_not_share_links(world: World) -> None:
    ada = world.ada
    ada.write(".vmrag.yaml", people.SETTINGS + "link:\n  share: true\n")
    ada.vmrag("link")
    assert ada.ask("push")["links"] == 0
    ada.vmrag("trust", "--yes")
    assert ada.ask("push")["links"] == 1


def test_links_survive_a_clone_including_manual_ones(world: World, ada: User) -> None:
    other = ada.pinned
    later = ada.write_document("setup.md", "# Setup\nother words\n")
    first = ada.git("rev-parse", "HEAD~1")
    ada.vmrag("link", "--git-commit", first)
    ada.git("push", "-q", "origin", "HEAD")
    result = ada.vmrag("push")
    assert "2 links between commits and revisions" in result.out
    assert "everything already" in ada.vmrag("push").out
    bob = world.join("bob")
    bob.vmrag("clone")
    assert rows(bob) == rows(ada)
    assert {row["dolt_commit"] for row in rows(bob).values()} == {later}
    assert rows(bob)[first]["source"] == "manual"
    assert bob.ask("links", "show", "HEAD~1")["dolt_commit"] == later != other
    assert "vmrag_links" not in bob.vmrag("branch").out


def test_fetch_and_pull_bring_links_that_survive_rederivation(world: World, ada: User) -> None:
    bob = world.join("bob")
    bob.vmrag("clone")
    ada.vmrag("link")
    ada.vmrag("push")
    bob.vmrag("fetch")
    assert rows(bob) == rows(ada) != {}
    ada.write_document("setup.md", "# Setup\nother words\n")
    ada.git("push", "-q", "origin", "HEAD")
    ada.vmrag("push")
    bob.git("fetch", "-q")
    bob.vmrag("pull")
    bob.vmrag("links", "rebuild")
    assert rows(bob) == rows(ada)


def test_links_shared_by_two_users_are_merged(world: World, ada: User) -> None:
    bob = world.join("bob")
    bob.vmrag("clone")
    share(bob)
    commit = ada.git("rev-parse", "HEAD")
    bob.vmrag("link", "--git-commit", commit)
    ada.vmrag("push")
    bob.vmrag("push")
    ada.vmrag("fetch")
    assert rows(ada) == rows(bob)
    assert rows(ada)[commit]["source"] == "manual"


def test_links_of_local_commits_are_not_pushed(ada: User) -> None:
    ada.git("switch", "-q", "-c", "secret-plans")
    ada.write_document("setup.md", "# Setup\nother words\n")
    hidden = ada.git("rev-parse", "HEAD")
    ada.git("switch", "-q", "main")
    ada.vmrag("links", "rebuild")
    assert hidden in rows(ada)
    assert ada.ask("push")["links"] == 1


def test_commit_without_available_parents_is_not_linked(world: World) -> None:
    """It may have its pin from them."""
    ada = world.ada
    later = ada.write_document("setup.md", "# Setup\nother words\n")
    ada.vmrag("push")
    ada.git("push", "-q", "origin", "HEAD")
    bob = world.join("bob", "--depth=2", url=f"file://{world.hub.top}")
    bob.git("fetch", "-q", "--depth=1", "origin", "HEAD")
    share(bob)
    bob.vmrag("clone")
    assert bob.ask("push")["links"] == 0
    bob.git("fetch", "-q", "--unshallow", "origin")
    assert bob.ask("push")["links"] == 2
    assert rows(bob)[bob.git("rev-parse", "HEAD")]["dolt_commit"] == later


# -- both engines, untrusted links, and concurrent pushes


@pytest.fixture(scope="session", params=["doltlite", "dolt"])
def _engine_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    kind = request.param
    if kind == "dolt":
        dolt.require()
    return kind, build_once(tmp_path_factory, f"links-{kind}", lambda folder: travel.build_pair(folder, kind))


@pytest.fixture
def pair(_engine_pair: tuple[str, Path], tmp_path: Path, home: Path) -> Iterator[Pair]:
    kind, made = _engine_pair
    for name in ("hub.git", "ada", "bob"):
        copy_tree(made / name, tmp_path / name)
    ada, bob = Clone(tmp_path / "ada", kind=kind), Clone(tmp_path / "bob", kind=kind)  # type: ignore[arg-type]
    yield Pair(tmp_path, ada, bob, Repo(tmp_path / "hub.git"))
    ada.close()
    bob.close()


def link(clone: Clone, number: int, **fields: Any) -> Link:
    return replace(Link(f"{number:040x}", clone.heads()["main"], "main", linked_at=DATE), **fields)


def push_links(clone: Clone, *put: Link, where: str = "origin") -> int:
    address = clone.at(where)
    with connection.open_transport(clone.places, clone.engine, address, timeout=60) as peer:
        return len(publish(clone.engine, address.key, peer, PublishRequest({}, links=put)).links)


def links_at(clone: Clone, where: str = "origin") -> list[Link]:
    """Return the links of the remote, as last fetched."""
    return clone.engine.list_links(at=clone.engine.remote_heads(clone.at(where).key)[LINKS_BRANCH])


def test_refused_push_of_links_takes_theirs_first(pair: Pair) -> None:
    assert pair.ada.fetch()
    assert pair.bob.fetch()
    mine, theirs = link(pair.ada, 1), link(pair.ada, 2)
    by_hand = link(pair.ada, 1, source="manual", git_branch="topic")
    assert push_links(pair.ada, mine) == 1
    assert push_links(pair.bob, by_hand, theirs) == 2  # its first try is refused
    assert push_links(pair.ada, mine) == 0
    assert links_at(pair.ada) == links_at(pair.bob) == [by_hand, theirs]
    assert pair.ada.engine.list_links() == []


@pytest.mark.sample(1)
def test_links_go_to_a_remote_that_git_does_not_carry(pair: Pair) -> None:
    where = f"file://{pair.folder}/elsewhere"
    pair.ada.push(where)
    assert push_links(pair.ada, link(pair.ada, 1), where=where) == 1
    assert pair.ada.fetch(where)
    assert links_at(pair.ada, where) == [link(pair.ada, 1)]


PUSHING = """
from tests.integration.test_link_sharing import link, push_links
from tests.support.travel import Clone
top, kind, first, go = sys.argv[1:]
clone = Clone(Path(top), kind=kind)
clone.fetch()
Path(go + first).touch()
while not Path(go).exists():
    pass
for number in range(int(first), int(first) + 3):
    push_links(clone, link(clone, number))
"""


@pytest.mark.sample(1)
def test_all_links_that_two_push_at_once_arrive(pair: Pair) -> None:
    kind = pair.ada.engine.name
    pair.ada.close()
    pair.bob.close()
    go = pair.folder / "go"
    bodies = {
        first: f"sys.argv[1:] = {[str(pair.folder / name), kind, first, str(go)]!r}\n{PUSHING}"
        for name, first in (("ada", "10"), ("bob", "20"))
    }
    at_once(go, bodies)
    assert pair.ada.fetch()
    assert [int(link.git_commit, 16) for link in links_at(pair.ada)] == [10, 11, 12, 20, 21, 22]


BAD = {
    "the name of no commit": {"git_commit": "--all"},
    "what is no revision": {"dolt_commit": "main"},
    "a word for a time": {"linked_at": "soon"},
    "what a terminal obeys": {"git_branch": "\x1b]0;owned\x07"},
    "an option for a commit": {"superseded_by": "-x"},
    "metadata that are none": {"metadata": "[]"},
    "a text without end": {"git_repo_url": "u" * 5000},
    "a source that nobody knows": {"source": "oracle"},
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.sample(2)
def test_links_of_a_forged_remote_are_rejected(bad: str, pair: Pair) -> None:
    assert pair.bob.fetch()
    before = pair.ada.engine.remote_heads(pair.ada.at().key)
    _smuggle(pair.bob, link(pair.bob, 1, **BAD[bad]))
    with pytest.raises(KnowledgeRefused, match="vmrag_links"):
        pair.ada.fetch()
    assert pair.ada.engine.remote_heads(pair.ada.at().key) == before


@pytest.mark.sample(1)
def test_links_hidden_under_another_name_are_rejected(pair: Pair) -> None:
    assert pair.bob.fetch()
    head = _smuggle(pair.bob, link(pair.bob, 1), branch="main-too")
    with pytest.raises(KnowledgeRefused, match="git_links"):
        pair.ada.fetch()
    assert not pair.ada.engine.has_revision(head)


@pytest.mark.sample(1)
def test_push_rejects_links_that_remotes_reject(pair: Pair) -> None:
    assert pair.bob.fetch()
    with pytest.raises(Exception, match="invalid link"):
        push_links(pair.bob, link(pair.bob, 1, git_branch="\x1b"))


def _smuggle(clone: Clone, row: Link, *, branch: str = LINKS_BRANCH) -> str:
    """Push a row without any checks, as another program would."""

    def write(engine: Engine, url: str) -> str:
        with engine.write_lock("push"):
            head = engine.build_links_head(None, [row], message="links", author=AUTHOR, date=DATE)
            engine.push(clone.at().key, url, {branch: head})
        return head

    with connection.open_transport(clone.places, clone.engine, clone.at(), timeout=60) as peer:
        return peer.push(lambda url: write(clone.engine, url))


def test_link_that_the_commit_itself_denies_is_left_out(world: World) -> None:
    """A pusher links a commit to another revision than its tree pins."""
    ada = world.ada
    first, old = ada.git("rev-parse", "HEAD"), ada.pinned
    later = ada.write_document("setup.md", "# Setup\nother words\n")
    ada.vmrag("push")
    body = f"""
from tests.integration.test_link_sharing import push_links
from tests.support.travel import Clone
from vmrag_link.models import Link
clone = Clone(Path({str(ada.top)!r}), kind={people.ENGINE!r})
push_links(clone, Link({first!r}, {later!r}, "main"), Link("7" * 40, {old!r}, "main"))
"""
    with ada._here():
        running = child(body)
        said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    bob = world.join("bob")
    bob.vmrag("clone")
    bob.vmrag("links", "rebuild")
    assert rows(bob)["7" * 40]["dolt_commit"] == old  # what is not here cannot be denied
    assert rows(bob)[first]["dolt_commit"] == old

"""A user with push access changes the remote's data with git: the change is reported, nothing local
is harmed, and the next sound state is fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.support import travel
from tests.support.doltlite_server import doltlite_server
from tests.support.engines import document, guide, head, root, store
from tests.support.repos import Repo
from tests.support.travel import DATA_REF, Pair, git_clone
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.errors import RemoteDamaged, RemoteMoved, RemoteRejected, RemoteTooNew
from vmrag_link.transport import connection, segments

home, pair, _pair = travel.home, travel.pair, travel._pair

Entry = tuple[str, str, str]
"""Mode, kind, name of the object."""


@dataclass
class Data:
    """The data on the hub, which a test changes and pushes."""

    hub: Repo
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, hub: Repo) -> Data:
        lines = hub.git("ls-tree", DATA_REF).splitlines()
        result = ((line.partition("\t")[2], line.partition("\t")[0].split()) for line in lines)
        return cls(hub, {name: (mode, kind, blob) for name, (mode, kind, blob) in result})

    @property
    def manifest(self) -> dict:
        return json.loads(self.bytes("manifest.json"))

    @manifest.setter
    def manifest(self, value: object) -> None:
        self.put("manifest.json", json.dumps(value).encode())

    def bytes(self, name: str) -> bytes:
        return self.object(self.entries[name][2])

    def object(self, blob: str) -> bytes:
        return self._git("cat-file", "blob", blob)

    def put(self, name: str, content: bytes) -> None:
        self.entries[name] = (
            "100644",
            "blob",
            self._git("hash-object", "-w", "--stdin", stdin=content).decode().strip(),
        )

    @property
    def file(self) -> bytes:
        return b"".join(self.bytes(name) for name in sorted(self.entries) if name != "manifest.json")

    @file.setter
    def file(self, content: bytes) -> None:
        """With a manifest that is right about it."""
        size = segments.SEGMENT_SIZE
        parts = [content[at : at + size] for at in range(0, len(content), size)]
        self.entries = {}
        for number, part in enumerate(parts):
            self.put(f"{number:06d}", part)
        checksums = [hashlib.sha256(part).hexdigest() for part in parts]
        self.manifest = {"format": 1, "size": len(content), "segment_size": size, "sha256": checksums}

    def publish(self) -> None:
        listing = "".join(f"{mode} {kind} {name}\t{path}\n" for path, (mode, kind, name) in self.entries.items())
        tree = self._git("mktree", "--missing", stdin=listing.encode()).decode().strip()
        commit = self.hub.git(
            "-c", "user.name=Eve", "-c", "user.email=e@v.e", "commit-tree", tree, "-p", DATA_REF, "-m", "x"
        )
        self.hub.git("update-ref", DATA_REF, commit)

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return subprocess.run(
            ["git", *arguments], cwd=self.hub.top, input=stdin, capture_output=True, check=True
        ).stdout


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


TAMPERING: dict[str, Callable[[Data], object]] = {}


def tampering(change: Callable[[Data], object]) -> Callable[[Data], object]:
    TAMPERING[change.__name__.replace("_", " ")] = change
    return change


@tampering
def a_segment_is_missing(data: Data) -> None:
    del data.entries["000001"]


@tampering
def the_last_segment_is_missing(data: Data) -> None:
    del data.entries[max(data.entries.keys() - {"manifest.json"})]


@tampering
def two_segments_are_swapped(data: Data) -> None:
    data.entries["000000"], data.entries["000001"] = data.entries["000001"], data.entries["000000"]


@tampering
def a_segment_is_truncated(data: Data) -> None:
    data.put("000001", data.bytes("000001")[:-1])


@tampering
def there_is_one_segment_more(data: Data) -> None:
    data.put("000009", b"more")


@tampering
def there_is_a_file_more(data: Data) -> None:
    data.put("README", b"more")


@tampering
def a_segment_has_another_name(data: Data) -> None:
    data.entries["1"] = data.entries.pop("000001")


@tampering
def a_byte_differs(data: Data) -> None:
    data.put("000001", flipped(data.bytes("000001"), 77))


@tampering
def a_checksum_is_wrong(data: Data) -> None:
    data.manifest = data.manifest | {"sha256": ["0" * 64, *data.manifest["sha256"][1:]]}


@tampering
def the_manifest_is_missing(data: Data) -> None:
    del data.entries["manifest.json"]


@tampering
def the_tree_is_empty(data: Data) -> None:
    data.entries = {}


@tampering
def the_manifest_is_no_json(data: Data) -> None:
    data.put("manifest.json", b"\xff\x00 certainly not")


@tampering
def the_manifest_is_empty(data: Data) -> None:
    data.put("manifest.json", b"")


@tampering
def the_manifest_is_a_list(data: Data) -> None:
    data.manifest = [data.manifest]


@tampering
def the_manifest_is_nested_deeply(data: Data) -> None:
    data.put("manifest.json", b"[" * 100_000)


@tampering
def the_manifest_is_huge(data: Data) -> None:
    data.put("manifest.json", b" " * 300_000 + data.bytes("manifest.json"))


@tampering
def the_manifest_has_another_format(data: Data) -> None:
    data.manifest = data.manifest | {"format": 2}


@tampering
def the_size_contradicts_the_segments(data: Data) -> None:
    data.manifest = data.manifest | {"size": data.manifest["size"] + segments.SEGMENT_SIZE}


@tampering
def the_size_is_a_byte_less(data: Data) -> None:
    data.manifest = data.manifest | {"size": data.manifest["size"] - 1}


@tampering
def the_size_is_nothing(data: Data) -> None:
    data.manifest = {"format": 1, "size": 0, "segment_size": segments.SEGMENT_SIZE, "sha256": []}


@tampering
def the_size_is_negative(data: Data) -> None:
    data.manifest = data.manifest | {"size": -1}


@tampering
def the_size_is_absurd(data: Data) -> None:
    data.manifest = data.manifest | {"size": 2**200}


@tampering
def segments_have_no_size(data: Data) -> None:
    data.manifest = data.manifest | {"segment_size": 0}


@tampering
def segments_are_absurdly_large(data: Data) -> None:
    data.manifest = data.manifest | {"segment_size": 2**40, "sha256": data.manifest["sha256"][:1]}


@tampering
def segments_are_absurdly_many(data: Data) -> None:
    data.manifest = {"format": 1, "size": 1_000_001, "segment_size": 1, "sha256": [""] * 1_000_001}


@tampering
def a_segment_is_a_link(data: Data) -> None:
    data.put("000001", b"/etc/passwd")
    data.entries["000001"] = ("120000", *data.entries["000001"][1:])


@tampering
def a_segment_is_a_directory(data: Data) -> None:
    data.entries["000001"] = ("040000", "tree", data.hub.git("rev-parse", f"{DATA_REF}^{{tree}}"))


@tampering
def a_segment_is_a_submodule(data: Data) -> None:
    data.entries["000001"] = ("160000", "commit", data.hub.git("rev-parse", DATA_REF))


@tampering
def a_byte_differs_and_the_manifest_says_so(data: Data) -> None:
    data.file = flipped(data.file, 100_000)


@tampering
def the_beginning_differs_and_the_manifest_says_so(data: Data) -> None:
    data.file = flipped(data.file, 3)


@tampering
def it_is_a_text(data: Data) -> None:
    data.file = b"Once upon a time.\n" * 20_000


@tampering
def it_is_zeroes(data: Data) -> None:
    data.file = bytes(300_000)


@tampering
def it_is_a_database_of_sqlite(data: Data) -> None:
    path = data.hub.top / "plain.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE documents (id)")
        connection.execute("INSERT INTO documents VALUES (1)")
    connection.close()
    data.file = path.read_bytes()


@tampering
def it_is_another_knowledge_base(data: Data) -> None:
    with_other = data.hub.top / "other"
    other = DoltliteEngine.create(with_other, author="Eve <e@v.e>", date="2020-01-01T00:00:00Z")
    other.close()
    data.file = (with_other / "kb.doltlite").read_bytes()


def sound(pair: Pair, good: str) -> str:
    """The hub holds what it did, and one revision of Ada's more."""
    pair.hub.git("update-ref", DATA_REF, good)
    revision = pair.ada.record("next")
    pair.ada.push()
    return revision


EVERY_RUN = {
    "a segment is missing",
    "two segments are swapped",
    "a byte differs",
    "a checksum is wrong",
    "the manifest is missing",
    "the size contradicts the segments",
    "the size is absurd",
    "a segment is a link",
    "a byte differs and the manifest says so",
    "it is another knowledge base",
}
"""One for each check: the others of its kind are found by the same one."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EVERY_RUN else pytest.mark.long) for name in TAMPERING]
)
@pytest.mark.sample(4)
def test_tampered_data_is_rejected_and_next_sound_state_is_fetched(name: str, pair: Pair) -> None:
    good, before, heads = pair.tip, pair.bob.state(), pair.bob.heads()
    data = Data.of(pair.hub)
    TAMPERING[name](data)
    data.publish()
    for action in (pair.bob.fetch, pair.bob.push):
        with pytest.raises((RemoteDamaged, RemoteRejected, RemoteTooNew)) as caught:
            action()
        assert caught.value.hint
    assert pair.bob.state() == before
    assert pair.bob.heads() == heads
    revision = sound(pair, good)
    assert pair.bob.fetch()
    assert pair.bob.heads() == heads | {"main": revision}
    assert pair.bob.state() == before


@pytest.mark.parametrize(
    "change", [a_byte_differs, the_tree_is_empty, a_byte_differs_and_the_manifest_says_so, it_is_a_text, it_is_zeroes]
)
@pytest.mark.sample(1)
def test_fresh_clone_of_damaged_remote_waits_until_remote_is_sound(change, pair: Pair) -> None:
    good = pair.tip
    data = Data.of(pair.hub)
    change(data)
    data.publish()
    fresh = git_clone(pair.hub.top, pair.folder / "fresh")
    for _ in range(2):
        with pytest.raises(RemoteDamaged):
            fresh.clone_knowledge()
        assert not DoltliteEngine.exists(fresh.places.kb)
    revision = sound(pair, good)
    assert fresh.clone_knowledge()
    assert fresh.heads() == {"main": revision}
    fresh.close()


def test_deleted_data_ref_is_restored_by_the_next_push(pair: Pair) -> None:
    pair.hub.git("update-ref", "-d", DATA_REF)
    assert not pair.bob.fetch()
    assert not git_clone(pair.hub.top, pair.folder / "fresh").clone_knowledge()
    pair.ada.push()  # it has nothing new
    assert pair.bob.fetch()
    assert pair.bob.heads() == pair.ada.heads()


def test_deleted_ref_is_restored_completely_by_a_clone_with_news(pair: Pair) -> None:
    pair.hub.git("update-ref", "-d", DATA_REF)
    pair.bob.push("origin", "bob")
    assert pair.ada.fetch()
    assert pair.ada.heads().keys() == {"main", "bob"}


def test_fetch_follows_rewound_ref_and_next_push_restores_the_rest(pair: Pair) -> None:
    good = pair.tip
    first = pair.ada.heads()
    pair.ada.record("next")
    pair.ada.record("side", branch="side")
    pair.ada.push()
    pair.bob.fetch()
    whole = pair.bob.heads()
    pair.hub.git("update-ref", DATA_REF, good)
    assert pair.bob.fetch()
    assert pair.bob.heads() == first
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == whole


def test_file_that_lost_its_end_is_an_earlier_state(pair: Pair) -> None:
    pair.ada.record("next")
    pair.ada.push()
    pair.bob.fetch()
    whole = pair.bob.heads()
    data = Data.of(pair.hub)
    data.file = data.file[:-200]
    data.publish()
    assert pair.bob.fetch()
    assert pair.bob.engine.is_ancestor(pair.bob.heads()["main"], whole["main"])
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == whole


def test_rewritten_history_with_equal_knowledge_is_followed(pair: Pair) -> None:
    tree = pair.hub.git("rev-parse", f"{DATA_REF}^{{tree}}")
    pair.hub.git("update-ref", DATA_REF, pair.hub.git("commit-tree", tree, "-m", "written anew"))
    heads = pair.bob.heads()
    assert pair.bob.fetch()
    assert pair.bob.heads() == heads
    pair.bob.push()
    pair.ada.record("next")
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == pair.ada.heads()


@pytest.mark.parametrize("kind", ["blob", "tree", "tag of a commit", "tag of a blob"])
@pytest.mark.sample(1)
def test_ref_at_anything_but_a_commit_is_damaged_or_carries_on(kind: str, pair: Pair) -> None:
    good, heads = pair.tip, pair.bob.heads()
    objects = {"blob": f"{DATA_REF}:000000", "tree": f"{DATA_REF}^{{tree}}", "commit": DATA_REF}
    if kind.startswith("tag"):
        pair.hub.git("tag", "-a", "-m", "x", "odd", pair.hub.git("rev-parse", objects[kind.rsplit(maxsplit=1)[-1]]))
        pair.hub.git("update-ref", DATA_REF, "refs/tags/odd")
    else:
        pair.hub.git("update-ref", DATA_REF, pair.hub.git("rev-parse", objects[kind]))
    if kind == "tag of a commit":
        assert pair.bob.fetch()
        pair.bob.push()
        assert pair.ada.fetch()
        return
    for action in (pair.bob.fetch, pair.bob.push):
        with pytest.raises(RemoteDamaged):
            action()
    assert pair.bob.heads() == heads
    revision = sound(pair, good)
    assert pair.bob.fetch()
    assert pair.bob.heads() == {"main": revision}


@pytest.mark.parametrize("what", ["000001", "manifest.json"])
def test_object_that_the_host_has_lost_is_its_damage(what: str, pair: Pair) -> None:
    fresh = git_clone(pair.hub.top, pair.folder / "fresh", "--no-local")
    heads, name = pair.bob.heads(), pair.hub.git("rev-parse", f"{DATA_REF}:{what}")
    lost = pair.hub.top / "objects" / name[:2] / name[2:]
    content = lost.read_bytes()
    lost.unlink()
    with pytest.raises(RemoteDamaged, match="damaged"):
        fresh.clone_knowledge()
    assert pair.bob.fetch()  # it has the object
    assert pair.bob.heads() == heads
    lost.write_bytes(content)
    assert fresh.clone_knowledge()
    assert fresh.heads() == heads


def test_replacement_of_damaged_data_keeps_concurrent_pushes(pair: Pair) -> None:
    good, heads = pair.tip, pair.bob.heads()
    data = Data.of(pair.hub)
    the_tree_is_empty(data)
    data.publish()

    def write(key: str, url: str) -> None:
        root = pair.bob.engine.find_branch("vmrag_root")
        assert root is not None
        pair.bob.engine.push(key, url, {"vmrag_root": root.head})
        pair.bob.engine.push(key, url, pair.bob.engine.remote_heads(pair.bob.at().key))

    with connection.open_git_transport(pair.bob.places, pair.bob.engine, pair.bob.at(), timeout=0) as peer:
        with pytest.raises(RemoteDamaged):
            peer.fetch()
        damaged = pair.tip
        newer = sound(pair, good)  # a faster push
        with pytest.raises(RemoteMoved):
            peer.replace_contents(write)
        assert pair.ada.heads() == {"main": newer}
        pair.hub.git("update-ref", DATA_REF, damaged)
        peer.replace_contents(write)
    assert pair.ada.fetch()
    assert pair.ada.heads() == heads
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == {"main": newer}


def in_other_fields(data: Data) -> None:
    data.manifest = {"format": 2, "chunks": [{"offset": 0}]}


def in_folders(data: Data) -> None:
    data.manifest = {"format": 3}
    data.entries["segments"] = ("040000", "tree", data.hub.git("rev-parse", f"{DATA_REF}^{{tree}}"))


def in_a_long_manifest(data: Data) -> None:
    data.manifest = {"format": 2, "chunks": ["0" * 64] * 1000}


@pytest.mark.parametrize("change", [in_other_fields, in_folders, in_a_long_manifest])
def test_newer_format_is_reported_as_too_new_not_damaged(change: Callable[[Data], None], pair: Pair) -> None:
    heads, data = pair.bob.heads(), Data.of(pair.hub)
    change(data)
    data.publish()
    for action in (pair.bob.fetch, pair.bob.push, git_clone(pair.hub.top, pair.folder / "fresh").clone_knowledge):
        with pytest.raises(RemoteTooNew, match="supports 1") as caught:
            action()
        assert "pip install --upgrade" in caught.value.hint
    assert pair.bob.heads() == heads


# -- another knowledge base ------------------------------------------------------------------------


@contextlib.contextmanager
def another(pair: Pair, kind: str) -> Iterator[tuple[str, str]]:
    """Return the path of an unrelated knowledge base, and a revision of it."""
    folder = pair.folder / "strange"
    other = DoltliteEngine.create(folder, author="Eve <e@v.e>", date="2020-01-01T00:00:00Z")
    other.create_branch("main", root(other))
    other.write("main", Write(put_collections=(guide(),)), expected=root(other))
    revision = store(other, "main", document("strange", "text"))
    other.close()
    file = folder / "kb.doltlite"
    if kind == "git":
        data = Data.of(pair.hub)
        data.file = file.read_bytes()
        data.publish()
        yield "origin", revision
    elif kind == "file":
        yield f"file://{file}", revision
    else:
        served = pair.folder / "served"
        served.mkdir(mode=0o700)
        shutil.copy(file, served / "strange")
        with doltlite_server(served) as url:
            yield f"{url}/strange", revision


@pytest.mark.parametrize("kind", ["git", "file", "http"])
@pytest.mark.sample(1)
def test_rejected_knowledge_base_leaves_nothing(kind: str, pair: Pair) -> None:
    before, heads = pair.bob.state(), pair.bob.heads()
    with another(pair, kind) as (where, revision):
        for action in (pair.bob.fetch, pair.bob.push):
            with pytest.raises(RemoteRejected) as caught:
                action(where)
            assert "&& vmrag clone" in caught.value.hint
            assert not pair.bob.engine.has_revision(revision)
    pair.bob.close()
    assert not pair.bob.engine.has_revision(revision)
    assert pair.bob.engine.find_damage() == ""
    assert pair.bob.state() == before
    assert pair.bob.heads() == heads


# -- whose damage it is ----------------------------------------------------------------------------


def test_object_missing_in_this_repository_is_fetched_again(pair: Pair) -> None:
    name = pair.bob.store.git("rev-parse", f"{pair.bob.tracking}:000001")
    lost(pair.bob.store, name)
    revision = pair.ada.record("next")
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == {"main": revision}


def lost(store: Repo, name: str) -> None:
    """The object is gone, wherever it was."""
    packs = store.top / "objects" / "pack"
    for pack in list(packs.glob("*.pack")):
        content = pack.read_bytes()
        for path in packs.glob(f"{pack.stem}.*"):
            path.unlink()
        subprocess.run(["git", "unpack-objects", "-q"], cwd=store.top, input=content, check=True)
    (store.top / "objects" / name[:2] / name[2:]).unlink()


def test_objects_lost_by_the_host_are_restored_by_another_clone(pair: Pair) -> None:
    heads = pair.bob.heads() | {"bob": head(pair.bob.engine, "bob")}
    shutil.rmtree(pair.bob.places.remotes)
    shutil.rmtree(pair.bob.places.remote_objects)
    lost(pair.hub, pair.hub.git("rev-parse", f"{DATA_REF}:000001"))

    def write(key: str, url: str) -> None:
        pair.bob.engine.push(key, url, {"vmrag_root": root(pair.bob.engine)} | heads)

    with connection.open_git_transport(pair.bob.places, pair.bob.engine, pair.bob.at(), timeout=0) as peer:
        with pytest.raises(RemoteDamaged):
            peer.fetch()
        peer.replace_contents(write)
    fresh = git_clone(pair.hub.top, pair.folder / "fresh", "--no-local")
    assert fresh.clone_knowledge()
    assert fresh.heads() == heads
    fresh.close()

"""Changes of a file between two pushes: the restored file equals the stored one, and only changed
parts are stored again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.repos import isolate, make_repo
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import FileFailed, KnowledgeRefused, RemoteDamaged
from vmrag_link.git import objects, plumbing
from vmrag_link.paths import Places
from vmrag_link.transport import segments

SIZE = 8
CONTENTS = st.binary(min_size=1, max_size=5 * SIZE)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), CONTENTS),
        st.tuples(st.just("overwrite"), st.integers(0, 5 * SIZE), CONTENTS),
        st.tuples(st.just("truncate"), st.integers(1, 5 * SIZE)),
        st.tuples(st.just("insert"), CONTENTS),
    ),
    max_size=3,
)
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("segments")
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder / "home")
        yield plumbing.locate_work_tree(make_repo(folder / "repo").top)


def edited(content: bytes, edit: tuple) -> bytes:
    match edit:
        case ("append", more):
            return content + more
        case ("overwrite", at, more):
            return content[:at] + more + content[at + len(more) :]
        case ("truncate", length):
            return content[:length]
        case ("insert", more):
            return more + content
    raise AssertionError(edit)


def cut(content: bytes) -> list[bytes]:
    return [content[at : at + SIZE] for at in range(0, len(content), SIZE)]


def blobs(places: Places, commit: str) -> dict[str, str]:
    return {name: entry.name for name, entry in objects.read_tree(places, commit).items() if name != segments.MANIFEST}


def stored_anew(places: Places, file: Path, parent: str | None) -> tuple[str, list[bytes]]:
    """The commit, and the blobs that were written for it."""
    written: list[bytes] = []
    real = objects.ObjectWriter.write_blob
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects.ObjectWriter, "write_blob", lambda self, data: written.append(data) or real(self, data))
        return segments.store_file(places, file, parent, segment_size=SIZE), written


@FEW
@given(content=CONTENTS, edits=EDITS, existing=st.none() | st.binary(max_size=6 * SIZE))
def test_restored_file_equals_the_stored_file(places: Places, content, edits, existing) -> None:
    file, copy = places.top / "file", places.top / "copy"
    copy.unlink(missing_ok=True)
    if existing is not None:
        copy.write_bytes(existing)
    parent, stored = None, set()
    for edit in [None, *edits]:
        before, content = content, edited(content, edit) if edit else content
        file.write_bytes(content)
        if parent and not content.startswith(before):  # the engine only appends
            with pytest.raises(RemoteDamaged):
                stored_anew(places, file, parent)
            content = before
            continue
        commit, written = stored_anew(places, file, parent)
        new = set(cut(content)) - stored
        assert sorted(written[:-1] if written else []) == sorted(new)
        stored = set(cut(content))
        segments.restore_file(places, commit, copy)
        assert copy.read_bytes() == content
        assert segments.read_size(places, commit) == len(content)
        assert [objects.read_blob(places, name) for _, name in sorted(blobs(places, commit).items())] == cut(content)
        parent = commit


def test_file_that_has_not_changed_is_not_stored_again(places: Places) -> None:
    file = places.top / "same"
    file.write_bytes(b"0123456789")
    commit = segments.store_file(places, file, None, segment_size=SIZE)
    assert segments.store_file(places, file, commit) == commit


@pytest.mark.parametrize("length", [1, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE])
def test_lengths_around_a_segment(places: Places, length: int) -> None:
    file, copy = places.top / "file", places.top / "copy"
    file.write_bytes(bytes(range(length)))
    segments.restore_file(places, segments.store_file(places, file, None, segment_size=SIZE), copy)
    assert copy.read_bytes() == file.read_bytes()


def test_only_segments_that_differ_are_read(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    file, copy = places.top / "file", places.top / "partly"
    file.write_bytes(bytes(range(5 * SIZE)))
    commit = segments.store_file(places, file, None, segment_size=SIZE)
    copy.write_bytes(file.read_bytes()[: 3 * SIZE] + b"x" * SIZE)
    requests: list[str] = []
    real = objects.read_blobs
    monkeypatch.setattr(
        objects, "read_blobs", lambda where, names: real(where, [requests.append(name) or name for name in names])
    )
    segments.restore_file(places, commit, copy)
    assert copy.read_bytes() == file.read_bytes()
    assert sorted(requests[1:]) == sorted(
        blobs(places, commit)[f"{number:06d}"] for number in (3, 4)
    )  # the manifest is first


@pytest.mark.parametrize(
    ("limits", "content", "said"),
    [
        (Limits(file_bytes=99), bytes(100), "limit of 0 MB"),
        (Limits(text_bytes=10 * SIZE), bytes(100 * SIZE), "one segment 100 times"),
        (Limits(), bytes(5000), "has 5,000 segments"),
    ],
)
def test_oversized_data_is_rejected_before_reading(places, limits, content, said) -> None:
    file, copy = places.top / "file", places.top / "limited"
    file.write_bytes(content)
    commit = segments.store_file(places, file, None, segment_size=1 if "5,000" in said else SIZE)
    with pytest.raises(KnowledgeRefused, match=said):
        segments.require_acceptable(places, commit, copy, limits=limits)
    assert not copy.exists()


def test_full_disk_is_reported_before_writing(places, monkeypatch) -> None:
    file, copy = places.top / "file", places.top / "far" / "away"
    file.write_bytes(bytes(3_000_000))
    commit = segments.store_file(places, file, None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=20_000_000))
    with pytest.raises(FileFailed, match=r"needs 35 MB, 20 MB are free") as caught:
        segments.require_acceptable(places, commit, copy, limits=Limits())
    assert caught.value.hint
    assert not copy.parent.exists()


def test_link_in_place_of_the_copy_is_not_followed(places: Places, tmp_path: Path) -> None:
    file, victim, copy = places.top / "file", tmp_path / "victim", tmp_path / "copy"
    file.write_bytes(bytes(100))
    victim.write_text("mine")
    copy.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        segments.restore_file(places, segments.store_file(places, file, None), copy)
    assert victim.read_text() == "mine"


def test_memory_does_not_grow_with_the_file(places: Places) -> None:
    file, copy = places.top / "large", places.top / "large-copy"
    with file.open("wb") as out:
        for number in range(200):
            out.write(number.to_bytes(4, "big") * (segments.SEGMENT_SIZE // 4))
    commit = segments.store_file(places, file, None)
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom vmrag_link.git import plumbing\n"
        "from vmrag_link.transport import segments\n"
        f"before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"segments.restore_file(plumbing.locate_work_tree(Path({str(places.top)!r})), {commit!r}, Path({str(copy)!r}))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert copy.stat().st_size == file.stat().st_size == 200 * segments.SEGMENT_SIZE
    assert int(result.stdout) < 40 * 1024  # KiB; a batch of blobs, twice

"""Parts of an untrusted message that a replayed revision keeps."""

from __future__ import annotations

import time

import pytest

from vmrag_link.merging.revisions import read_named_change, strip_trailers

OURS = "Vmrag-Base: aa\nVmrag-Theirs: bb\nVmrag-Merge: 1\n"


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        (f"Owls\n\nThey sleep.\n\n{OURS}", "Owls\n\nThey sleep."),
        (f"Owls\n\n{OURS}Vmrag-Decided-By: ada <a@x>\n\n \n", "Owls"),
        (OURS, ""),
        (f"Owls\n\n{OURS}\nand more", f"Owls\n\n{OURS}\nand more"),
        ("Owls\n\nVmrag-Lost: cc", "Owls\n\nVmrag-Lost: cc"),
        ("", ""),
    ],
)
def test_trailers_at_the_end_of_a_message_are_left_out(message: str, kept: str) -> None:
    assert strip_trailers(message) == kept


@pytest.mark.parametrize("filling", ["\n", " \n", OURS, "Vmrag-Base: aa\n", f"\n\n{OURS.strip()}", "Vmrag-Merge: x\n"])
def test_long_message_takes_a_moment(filling: str) -> None:
    message = f"Owls\n{filling * 40_000}\nend"
    since = time.process_time()
    assert strip_trailers(message) == message
    assert strip_trailers(f"Owls\n\n{OURS}{filling * 40_000}").startswith("Owls")
    read_named_change(message)
    assert time.process_time() - since < 2

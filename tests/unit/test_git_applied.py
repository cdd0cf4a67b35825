import pytest

from vmrag_link.sync.binding import decode_applied, encode_applied


@pytest.mark.parametrize("symbolic", [None, "refs/heads/main", "refs/heads/ü/x y", "refs/heads/\udcff"])
@pytest.mark.parametrize("pin", [None, b"", b"{}\n", b"{}", b"a\nb\n\n", b"\xff\x00\n"])
def test_applied_state_survives_encoding(symbolic, pin):
    assert decode_applied(encode_applied(symbolic, pin)) == (symbolic, pin)


def test_pin_is_verbatim_below_two_lines():
    assert encode_applied("refs/heads/main", b"{}\n") == b"refs/heads/main\npin\n{}\n"
    assert encode_applied(None, None) == b"detached\nnopin\n"


@pytest.mark.parametrize("data", [b"", b"refs/heads/x", b"refs/heads/x\npin", b"x\npin\n{}", b"detached\nnopin\nx"])
def test_bytes_that_no_encoder_wrote_mean_that_nothing_was_applied(data):
    assert decode_applied(data) is None

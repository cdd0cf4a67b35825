"""Which passages are data, and which questions ask for them."""

from __future__ import annotations

import base64
import random

import pytest

from vmrag_link.retrieval.prose import DATA_FACTOR, FULL_FACTOR, compute_factor, names_file

NUMBERS = " ".join(str(random.Random(1).randrange(10_000)) for _ in range(100))


@pytest.mark.parametrize(
    "text",
    [
        "<path d='M12.29 0.30C12.29 0.29 14.1 2.83 14.1 6.4L0.29 0.30Z 11.2 14 0.29 8 0.30 7.1z'/>",
        NUMBERS,
        "".join(f"0x{byte:02x}, " for byte in range(64)),
        f"icon: {base64.b64encode(random.Random(2).randbytes(300)).decode()}",
        f"!function(e,t){{{'var a=e.b(t);a=a.c&&d(a,e)?f:g;' * 9}}}(window)",
    ],
    ids=["svg", "numbers", "bytes", "base64", "minified"],
)
def test_data_has_lower_factor(text):
    assert compute_factor(text) == DATA_FACTOR


@pytest.mark.parametrize(
    "text",
    [
        "To migrate from 0.29 to 0.30, replace `load(path)` by `open(path)` and raise `timeout` to 30.",
        "| name | type | default | unit |\n|---|---|---|---|\n| rotor_4_limit | int | 22 | kPa |\n| rotor_5_limit | int | 27 | kPa |",
        "def refresh(self, token: str) -> Session:\n    if token in self._known:\n        return self._known[token]\n",
        "网关会在三十秒后丢弃慢请求" * 12,
        "https://example.org/a/page Read this page about the gateway and its limits before you change them.",
        "0.30",
        "Version 3.1.0\n-------------\n\nReleased 2024-11-13\n",
    ],
    ids=["prose", "table", "code", "chinese", "link", "short", "title"],
)
def test_text_keeps_score(text):
    assert compute_factor(text) == FULL_FACTOR


@pytest.mark.parametrize(
    ("question", "doc_id", "named"),
    [
        ("what is in icon-table.svg.md", "site/icon-table.svg.md", True),
        ("the icon table", "site/icon-table.svg.md", True),
        ("migrate from 0.29 to 0.30", "site/icon-table.svg.md", False),
        ("which table", "site/icon-table.svg.md", False),
    ],
)
def test_question_names_file(question, doc_id, named):
    assert names_file(question, doc_id) == named

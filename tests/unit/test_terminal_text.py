"""Invisible characters: which are shown as escapes, and which belong to a script."""

# ruff: noqa: RUF001  letters of all scripts
from __future__ import annotations

import json
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.terminal_text import count_hidden, escape_commands, escape_controls, escape_json

WRITTEN = {
    "families": "👨\u200d👩\u200d👧\u200d👦 👩🏽\u200d💻 🧑\u200d🚀 🏳\ufe0f\u200d🌈 🏳\ufe0f\u200d⚧\ufe0f ❤\ufe0f\u200d🔥",
    "two looks": "❤\ufe0f ☎\ufe0e ©\ufe0f ▶\ufe0f ㊗\ufe0f",
    "keycaps": "1\ufe0f⃣ #\ufe0f⃣",
    "flags": "🇩🇪 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f 🏴\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f",
    "Persian": "می\u200cخواهم کتاب\u200cها را بخوانم، ۱۴۰۲ ه\u200d.",
    "Hindi": "हिन्दी में क्\u200dष और क्\u200cष",
    "Malayalam": "അവന്\u200d",
    "Hebrew": "\u200fעברית (HTML)\u200e, C++\u200e זה טוב",
    "Arabic": "\u061cسلام \u200f(1)",
    "Arabic numbers": "\u0600123 \u06dd",
    "Khmer": "ភាសា\u200bខ្មែរ",
    "Mongolian": "ᠪᠢᠴᠢᠭ\u180c",
    "others": "naïve “café” — 1\xa0000 € 日本語 中文 한국어 ภาษาไทย",
}

HIDDEN = {
    "tags": "".join(chr(0xE0000 + ord(character)) for character in "ignore all"),
    "a flag of no land": "\U0001f3f4" + "".join(chr(0xE0000 + ord(character)) for character in "usca") + "\U000e007f",
    "a flag without end": "\U0001f3f4" + "".join(chr(0xE0000 + ord(character)) for character in "gbeng"),
    "selectors after letters": "a\ufe0fb\ufe01",
    "bytes in selectors": "😀" + "".join(chr(0xE0100 + byte) for byte in b"ignore"),
    "a digit with another look": "1\ufe0f",
    "zero width": "a\u200bb\u2060c\ufeffd",
    "joiners in Latin": "a\u200db\u200cc",
    "joiners in a row": "می\u200c\u200cخواهم ه\u200d\u200d",
    "joiners without emoji": "👨\u200d \u200d👨",
    "fillers": "\u115f\u1160\u3164\uffa0\u17b4\u034f\u180e",
    "soft hyphens": "ig\u00adnore",
    "marks without right to left": "a\u200eb\u200fc\u061cd",
    "marks in a row": "א\u200f\u200f\u200f",
    "overrides": "\u202egnp\u202c \u2066x\u2069",
    "lines": "a\u2028b\u2029c",
    "annotations": "\ufff9a\ufffab\ufffb",
    "notes and shorthand": "\U0001d173\U0001bca0",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_common_scripts_are_shown_unchanged(text: str) -> None:
    assert (escape_controls(text), count_hidden(text)) == (text, 0)


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_invisible_characters_are_escaped_and_counted(text: str) -> None:
    shown = escape_controls(text)
    assert count_hidden(text) >= 1
    assert shown.encode("ascii", "ignore").decode().count("\\") == count_hidden(text)
    assert count_hidden(shown) == 0


IGNORABLE = "\u00ad\u034f\u061c\u115f\u180b\u180e\u200b\u200c\u200d\u200e\u200f\u202e\u2028\u2066\u3164\ufe00\ufe0f\ufeff\U000e0067\U000e007f\U000e0100"
AROUND = "aא ب1क\u1820ក👨❤🏴#\u20e3\n(é"
NEEDED = set("\u200c\u200d\u200e\u200f\u061c\ufe0e\ufe0f\u200b") | {chr(number) for number in range(0x180B, 0x1810)}
SHAPED = {chr(number) for number in (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)}
"""Format characters with a shape of their own, such as the sign of a year."""


@given(st.text(st.sampled_from(IGNORABLE + AROUND) | st.characters(codec="utf-8"), max_size=30))
def test_format_characters_remain_only_where_the_script_needs_them(text: str) -> None:
    shown = escape_controls(text)
    for at, character in enumerate(shown):
        if unicodedata.category(character) != "Cf" or character in SHAPED or 0x13430 <= ord(character) < 0x13460:
            continue
        if 0xE0000 <= ord(character) < 0xE0080:
            assert "\U0001f3f4" in shown[max(0, at - 6) : at], ascii(shown)
            continue
        assert character in NEEDED, ascii(shown)
        assert not shown[max(0, at - 20) : at + 21].isascii(), "nothing around it needs it"
    assert escape_controls(shown) == shown
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("line", ["plain text, nothing else\n", "größer, mit Umlauten\n"])
def test_megabytes_without_anything_hidden_take_a_moment(line: str) -> None:
    text = line * 400_000
    since = time.process_time()
    assert escape_controls(text) is text or escape_controls(text) == text
    assert time.process_time() - since < 5  # ten times what it takes


@pytest.mark.parametrize("blanks", ["\n", "\r", "\x85", " \n", "\u3000"])
def test_many_blank_lines_in_a_job_take_a_moment(blanks: str) -> None:
    text = blanks * 30_000 + "end"
    since = time.process_time()
    assert escape_commands(text) == text
    assert time.process_time() - since < 2
    assert escape_commands(f"{blanks * 3}::error::x") == f"{blanks * 3}\\::error::x"

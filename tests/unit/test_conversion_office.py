"""PDF, Word, PowerPoint, Excel and EPUB as Markdown, and what happens to bombs in their clothes."""

from __future__ import annotations

import datetime as dt
import io
import socket
from collections.abc import Iterator

import openpyxl
import pptx
import pytest

from tests.support.office_files import archive, docx, epub, paragraph, pdf, picture
from vmrag_link.conversion import formats
from vmrag_link.conversion.converter import Converter
from vmrag_link.conversion.limits import MIB, ConversionLimits
from vmrag_link.errors import ConversionFailed, FormatUnsupported


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    with Converter(ConversionLimits(max_text=MIB, max_expanded=20 * MIB)) as opened:
        yield opened


def xlsx(*rows: list[object]) -> bytes:
    book = openpyxl.Workbook()
    book.active.title = "Limits"
    for row in rows:
        book.active.append(row)
    book.create_sheet("Empty")
    written = io.BytesIO()
    book.save(written)
    return written.getvalue()


def presentation() -> bytes:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Deploy"
    slide.placeholders[1].text = "Stop the worker first"
    slide.notes_slide.notes_text_frame.text = "Ask Ann"
    written = io.BytesIO()
    deck.save(written)
    return written.getvalue()


TABLE = "<w:tbl>{}</w:tbl>".format(
    "".join(f"<w:tr>{''.join(f'<w:tc>{paragraph(text)}</w:tc>' for text in row)}</w:tr>" for row in ("ab", "cd"))
)
CHART = picture("media/x.png", inside=True)
SHEET = """## Limits

All limits

Service: api
Since: 2024-05-01
Share: 0.3
On: TRUE

Service: auth
Since: 2024-05-01 08:30:00
Share: 3
column 5: left over

## Empty"""


@pytest.mark.parametrize(
    ("name", "data", "title", "text"),
    [
        (
            "x.docx",
            docx(
                paragraph("Policy", "Heading1") + paragraph("Time out after max_wait * 2.") + CHART[0] + TABLE, CHART[1]
            ),
            "Policy",
            "# Policy\n\nTime out after max_wait * 2.\n\nA chart\n\n| a | b |\n| --- | --- |\n| c | d |",
        ),
        (
            "x.pptx",
            presentation(),
            "Deploy",
            "<!-- Slide number: 1 -->\n# Deploy\nStop the worker first\n\n### Notes:\nAsk Ann",
        ),
        (
            "x.xlsx",
            xlsx(
                ["All limits", None, None],
                ["Service", "Since", "Share", "On"],
                ["api", dt.datetime.fromisoformat("2024-05-01"), 0.1 + 0.2, True],
                [],
                ["auth", dt.datetime.fromisoformat("2024-05-01 08:30"), 3, None, "left over"],
            ),
            "",
            SHEET,
        ),
        (
            "x.epub",
            epub("The Book", "<h1>One</h1><p>text</p>", "<h1>Two</h1>"),
            "The Book",
            "**Title:** The Book\n\n# One\n\ntext\n\n# Two",
        ),
        (
            "x.pdf",
            pdf("Retry  Policy", "Time out after 30 s.", title="Retry Policy", pages=2),
            "Retry Policy",
            "Retry Policy\nTime out after 30 s.\n\n\fRetry Policy\nTime out after 30 s.",
        ),
        ("y.pdf", pdf("Policy", title="Microsoft Word - x.doc"), "", "Policy"),
    ],
)
def test_documents_of_other_programs_become_markdown(
    converter: Converter, name: str, data: bytes, title: str, text: str
) -> None:
    converted = converter.convert(data, name=name)
    assert (converted.title, converted.text) == (title, text)
    assert converted.file_type == name.partition(".")[2]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("x.docx", pdf("a"), "is not a Word document (File is not a zip file)"),
        (
            "x.xlsx",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
            "is not a readable Excel workbook (it has a password",
        ),
        ("x.pdf", docx(""), "is not a readable PDF (Failed to load document"),
        ("x.epub", archive({"a": "b"}), "is not a EPUB book (it has no META-INF/container.xml)"),
        ("x.xlsx", docx(paragraph("a")), "cannot be converted ("),
        ("x.docx", docx(""), "has no text"),
        ("x.pdf", pdf(), "has no text"),
        ("x.docx", archive({"[Content_Types].xml": bytes(21 * MIB)}), "unpacks to 21 MiB, but the maximum is 20 MiB"),
        ("x.docx", archive({str(number): b"" for number in range(10_001)}), "is an archive of 10,001 files"),
        (
            "x.docx",
            docx("<w:tbl><w:tr><w:tc>" * 80 + paragraph("a") + "</w:tc></w:tr></w:tbl>" * 80),
            "nests too deeply",
        ),
        ("x.docx", docx(paragraph("a" * MIB + "b")), "would become a text of more than 1 MiB"),
        ("x.pdf", pdf(*["a" * 70] * 20, pages=1000), "would become a text of more than 1 MiB"),
        ("x.xlsx", xlsx(["a"], *[["b" * 30_000]] * 40), "would become a text of more than 1 MiB"),
    ],
)
def test_broken_document_or_bomb_fails_only_its_own_conversion(
    converter: Converter, name: str, data: bytes, reason: str
) -> None:
    with pytest.raises(ConversionFailed) as failed:
        converter.convert(data, name=name)
    assert failed.value.details["reason"].startswith(reason)
    assert converter.convert(pdf("next"), name="next.pdf").text == "next"


def test_entities_in_a_document_are_not_read(converter: Converter) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><x>&b;</x>'
    for name, data in {
        "x.epub": archive({"META-INF/container.xml": bomb}),
        "x.xlsx": archive({"[Content_Types].xml": bomb}),
        "x.docx": archive({"[Content_Types].xml": bomb, "word/document.xml": bomb}),
    }.items():
        with pytest.raises(ConversionFailed):
            converter.convert(data, name=name)


def test_linked_resources_of_a_document_are_not_fetched(converter: Converter) -> None:
    """A listener on this machine hears of none of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x.png"
        shown, link = picture(url, inside=False)
        for name, data in {
            "x.docx": docx(paragraph("text") + shown, link),
            "x.epub": epub("B", f'<p>text</p><img src="{url}"/><link rel="stylesheet" href="{url}"/>'),
            "x.xml": f'<!DOCTYPE x SYSTEM "{url}"><x>text</x>'.encode(),
            "x.html": f'<img src="{url}">text'.encode(),
        }.items():
            assert "text" in converter.convert(data, name=name).text
        with pytest.raises(TimeoutError):
            listener.accept()


def test_missing_extra_makes_a_document_unsupported_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats.importlib.util, "find_spec", lambda _: None)
    formats.find_missing_extra.cache_clear()
    try:
        with pytest.raises(FormatUnsupported) as refused:
            Converter().convert(pdf("a"), name="x.pdf")
    finally:
        formats.find_missing_extra.cache_clear()
    assert refused.value.message == "x.pdf needs the extra 'pdf' to be read (pip install \"vmrag-link[pdf]\")."
    assert refused.value.hint == "run 'pip install \"vmrag-link[pdf]\"' to install it"

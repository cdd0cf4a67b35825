"""Small documents of other programs' formats, written by hand."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_OPEN_XML = "http://schemas.openxmlformats.org"
_TYPES = "[Content_Types].xml"


def archive(members: Mapping[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return written.getvalue()


def docx(body: str, links: str = "") -> bytes:
    """A Word document; `links` are its relationships."""
    relation = f"{_OPEN_XML}/package/2006/relationships"
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    return archive(
        {
            _TYPES: f'<Types xmlns="{_OPEN_XML}/package/2006/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="png" ContentType="image/png"/>'
            f'<Override PartName="/word/document.xml" ContentType="{word}"/></Types>',
            "word/media/x.png": b"\x89PNG" + bytes(100),
            "_rels/.rels": f'<Relationships xmlns="{relation}"><Relationship Id="r1" Target="word/document.xml" '
            f'Type="{_OPEN_XML}/officeDocument/2006/relationships/officeDocument"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{relation}">{links}</Relationships>',
            "word/document.xml": f'<w:document xmlns:w="{_OPEN_XML}/wordprocessingml/2006/main" '
            f'xmlns:r="{_OPEN_XML}/officeDocument/2006/relationships" xmlns:a="{_OPEN_XML}/drawingml/2006/main" '
            f'xmlns:wp="{_OPEN_XML}/drawingml/2006/wordprocessingDrawing" '
            f'xmlns:pic="{_OPEN_XML}/drawingml/2006/picture"><w:body>{body}</w:body></w:document>',
        }
    )


def paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def picture(target: str, *, inside: bool) -> tuple[str, str]:
    """A picture, `inside` the archive or anywhere: what is in the text, and its relationship."""
    kind = f"{_OPEN_XML}/officeDocument/2006/relationships/image"
    inline = (
        '<wp:docPr id="1" name="x" descr="A chart"/><a:graphic><a:graphicData><pic:pic><pic:blipFill>'
        f'<a:blip r:{"embed" if inside else "link"}="p1"/></pic:blipFill></pic:pic></a:graphicData></a:graphic>'
    )
    shown = f"<w:p><w:r><w:drawing><wp:inline>{inline}</wp:inline></w:drawing></w:r></w:p>"
    mode = "" if inside else ' TargetMode="External"'
    return shown, f'<Relationship Id="p1" Type="{kind}" Target="{target}"{mode}/>'


def epub(title: str, *chapters: str) -> bytes:
    items = range(len(chapters))
    manifest = "".join(f'<item id="c{chapter}" href="{chapter}.xhtml"/>' for chapter in items)
    spine = "".join(f'<itemref idref="c{chapter}"/>' for chapter in items)
    return archive(
        {
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>',
            "book.opf": f'<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>{title}</dc:title></metadata>'
            f"<manifest>{manifest}</manifest><spine>{spine}</spine></package>",
            **{f"{chapter}.xhtml": f"<html><body>{chapters[chapter]}</body></html>" for chapter in items},
        }
    )


def pdf(*lines: str, title: str = "", pages: int = 1) -> bytes:
    """Pages that all show the same lines."""
    shown = b"".join(f"({line}) Tj 0 -20 Td ".encode() for line in lines)
    content = b"BT /F1 12 Tf 72 700 Td %sET" % shown
    numbers = b" ".join(b"%d 0 R" % (6 + number) for number in range(pages))
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents 4 0 R>>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (pages, numbers),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        b"<</Title(%s)>>" % title.encode(),
        *[page] * pages,
    ]
    written, places = bytearray(b"%PDF-1.4\n"), []
    for number, pdf_object in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, pdf_object)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer<</Size %d/Root 1 0 R/Info 5 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(written))
    return bytes(written) + b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table) + trailer

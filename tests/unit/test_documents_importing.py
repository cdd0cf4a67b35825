"""Files that become documents, and the reasons for the others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vmrag_link.conversion.converter import Converter
from vmrag_link.documents.import_base import ImportBase, locate_path, make_base
from vmrag_link.documents.importing import MAX_BYTES, ImportedDocument, SkippedFile, SourceFile, read_file, scan_sources
from vmrag_link.errors import FileFailed, UsageInvalid
from vmrag_link.models import content_hash

CONVERTER = Converter()
"""These formats need no process."""


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def root(path: Path) -> ImportBase:
    return make_base(locate_path(path), locate_path(path))


def ids(base: Path, *sources: Path) -> list[str]:
    return [file.doc_id for file in scan_sources(sources or [base], root(base)).files]


def reasons(base: Path) -> dict[str, str]:
    return {skipped_file.name: skipped_file.reason for skipped_file in scan_sources([base], root(base)).skipped}


def imported(path: Path) -> ImportedDocument:
    document = read_file(scan_sources([path], root(path)).files[0], CONVERTER)
    assert isinstance(document, ImportedDocument)
    return document


def test_files_of_folder_are_sorted_and_named_below_the_base(tmp_path: Path) -> None:
    tree(tmp_path, b_md="", a__z_md="", a__deep__x_md="", Z_md="")
    assert ids(tmp_path) == ["Z.md", "a/deep/x.md", "a/z.md", "b.md"]


def test_file_has_one_id_by_its_name_or_any_folder(tmp_path: Path) -> None:
    tree(tmp_path, a__deep__x_md="", a__deep__y_md="")
    for source in ("a", "a/deep", "a/deep/x.md", "a/../a/deep"):
        assert "a/deep/x.md" in ids(tmp_path, tmp_path / source)
    assert ids(tmp_path, tmp_path / "a", tmp_path / "a/deep/x.md") == ["a/deep/x.md", "a/deep/y.md"]


def test_relative_sources_are_searched_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, a__x_md="", b_md="")
    monkeypatch.chdir(tmp_path / "a")
    assert ids(tmp_path, Path()) == ["a/x.md"]
    assert ids(tmp_path, Path("..")) == ["a/x.md", "b.md"]


def test_missing_source_is_rejected(tmp_path: Path) -> None:
    tree(tmp_path, a__x_md="", b__y_md="")
    with pytest.raises(UsageInvalid):
        scan_sources([tmp_path / "absent.md"], root(tmp_path))


def test_hidden_files_and_folders_are_left_out_and_named_once(tmp_path: Path) -> None:
    tree(tmp_path, **{".git__a_md": "", ".git__b_md": "", ".hidden_md": "", "x_md": ""})
    assert ids(tmp_path) == ["x.md"]
    assert reasons(tmp_path) == {".git": "is hidden", ".hidden.md": "is hidden"}


def test_file_type_is_read_from_the_ending_in_any_case(tmp_path: Path) -> None:
    for name in ("a.MD", "b.markdown", "c.txt", "d.rst", "e.HTML", "f.htm", "g.png", "Makefile"):
        (tmp_path / name).touch()
    documents = [read_file(file, CONVERTER) for file in scan_sources([tmp_path], root(tmp_path)).files]
    assert {
        document.doc_id: document.file_type for document in documents if isinstance(document, ImportedDocument)
    } == {
        "a.MD": "markdown",
        "b.markdown": "markdown",
        "c.txt": "text",
        "d.rst": "rst",
        "e.HTML": "html",
        "f.htm": "html",
    }
    assert reasons(tmp_path) == {"g.png": "its type .png is not supported", "Makefile": "has no file type"}


def test_link_is_followed_only_to_importable_files(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", real_md="# Real", **{".git__config_md": "secret"})
    tree(tmp_path, outside_md="secret")
    for name, target in {
        "inner.md": "real.md",
        "outer.md": "../outside.md",
        "hidden.md": ".git/config.md",
        "broken.md": "absent.md",
        "cycle": ".",
        "loop.md": "loop.md",
    }.items():
        (root / name).symlink_to(target)
    assert ids(root) == ["inner.md", "real.md"]
    assert reasons(root) == {
        ".git": "is hidden",
        "outer.md": "is a symbolic link that leaves the imported folder",
        "hidden.md": "is a symbolic link to a hidden file",
        "broken.md": "is a broken symbolic link",
        "cycle": "is a symbolic link to a folder",
        "loop.md": "is a broken symbolic link",
    }


def test_names_that_no_knowledge_base_stores_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 200)
    folder.mkdir()
    (folder / ("x" * 60 + ".md")).touch()
    (tmp_path / "line\nbreak.md").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.md")).touch()
    (tmp_path / "cafe\u0301.md").touch()
    assert ids(tmp_path) == ["cafe\u0301.md"]
    assert reasons(tmp_path) == {
        f"{'d' * 200}/{'x' * 60}.md": "its path is longer than 255 characters",
        "line\\nbreak.md": "its path has control characters",
        "caf\\udce9.md": "its path is not UTF-8",
    }


def test_special_and_large_files_are_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    with (tmp_path / "large.md").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert reasons(tmp_path) == {"pipe.md": "is not a regular file", "large.md": "is larger than 64 MiB"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"caf\xe9", "is not UTF-8 (byte 3)"),
        ("\ufefftext".encode("utf-16-le"), "contains NUL bytes"),
        (b"a\0b", "contains NUL bytes"),
        (b"\xed\xa0\x80", "is not UTF-8 (byte 0)"),
    ],
)
def test_files_without_text_are_skipped_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "x.md").write_bytes(content)
    assert read_file(scan_sources([tmp_path], root(tmp_path)).files[0], CONVERTER) == SkippedFile("x.md", reason)


def test_file_that_vanishes_is_an_error_that_names_it(tmp_path: Path) -> None:
    tree(tmp_path, x_md="")
    (file,) = scan_sources([tmp_path], root(tmp_path)).files
    file.path.unlink()
    with pytest.raises(FileFailed, match=r"x\.md"):
        read_file(file, CONVERTER)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folder_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(FileFailed, match="closed"):
        scan_sources([tmp_path], root(tmp_path))


def test_document_has_its_exact_text_without_the_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_bytes(b"\xef\xbb\xbf# Title\r\n\r\ntext \r\n")
    os.utime(tmp_path / "x.md", (1_700_000_000.9, 1_700_000_000.9))
    assert imported(tmp_path) == ImportedDocument(
        doc_id="x.md",
        title="Title",
        content="# Title\r\n\r\ntext \r\n",
        content_hash=content_hash("# Title\r\n\r\ntext \r\n"),
        file_type="markdown",
        metadata="{}",
        source="x.md",
        last_modified="2023-11-14T22:13:20Z",
    )


def test_source_counts_from_the_root_of_the_work_tree(tmp_path: Path) -> None:
    tree(tmp_path, docs__x_md="")
    base = make_base(locate_path(tmp_path / "docs"), locate_path(tmp_path))
    (file,) = scan_sources([tmp_path / "docs/x.md"], base).files
    assert (file.doc_id, file.source) == ("x.md", "docs/x.md")


def test_front_matter_becomes_metadata_and_an_empty_file_a_document(tmp_path: Path) -> None:
    tree(tmp_path, a_md="---\ntags: [b, a]\nn: 1\n---\n# A\n", empty_md="")
    first, empty = (read_file(file, CONVERTER) for file in scan_sources([tmp_path], root(tmp_path)).files)
    assert isinstance(first, ImportedDocument)
    assert (first.title, first.content, json.loads(first.metadata)) == ("A", "# A\n", {"tags": ["b", "a"], "n": 1})
    assert isinstance(empty, ImportedDocument)
    assert (empty.title, empty.content) == ("empty", "")


def test_file_that_grew_since_the_scan_is_left_out(tmp_path: Path) -> None:
    tree(tmp_path, x_md="")
    file = SourceFile("x.md", "x.md", tmp_path / "x.md")
    with file.path.open("wb") as opened:
        opened.truncate(MAX_BYTES + 1)
    assert read_file(file, CONVERTER) == SkippedFile("x.md", "is larger than 64 MiB")

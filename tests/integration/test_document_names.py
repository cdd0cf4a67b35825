"""Which documents a name on the command line means."""

from __future__ import annotations

import pytest

from tests.support import terminal
from tests.support.terminal import Project, opened
from vmrag_link.engines.base import Write
from vmrag_link.errors import CollectionMissing, DocumentAmbiguous, DocumentMissing, UsageInvalid
from vmrag_link.models import Collection, Document
from vmrag_link.workspace.history import document_names

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

THERE = [
    ("handbook", "guide/setup.md"),
    ("handbook", "guide/tls.txt"),
    ("handbook", "notes"),
    ("notes", "setup.md"),
    ("notes", "guide/tls.txt"),
    ("notes", "a:b.md"),
    ("a", "b/c"),  # a collection's name has no slash here; in what others wrote it may
    ("a/b", "c"),
    ("a/b", "d"),
    ("a", "*.md"),
    ("a", "x.md"),
]
"""Beside what the template has in `handbook`: setup.md, rest.md, deep/tls.txt, faq.md."""


@pytest.fixture(scope="module")
def crowded(template, tmp_path_factory):
    return terminal.derive_template(tmp_path_factory, "document-names", template, _fill)


def _fill(project: Project) -> None:
    project.put("guide/setup.md", "text")
    with opened(project) as ws:
        branch = ws.find_kb_branch()
        names = dict.fromkeys(collection for collection, _ in THERE)
        rows = [Document(*key, key[1], "text", "0" * 64) for key in THERE]
        model = ws.engine.list_collections(ws.locate_documents())[0]
        collections = [
            Collection(name, embedding_model=model.embedding_model, embedding_function=model.embedding_function)
            for name in names
            if name != "handbook"
        ]
        ws.engine.write(branch.name, Write(put_collections=collections, put_documents=rows), expected=branch.head)


@pytest.fixture(scope="module")
def engine(crowded, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        project = terminal.copied(crowded, tmp_path_factory.mktemp("names"), patch)
        with opened(project) as ws:
            yield ws.engine, ws.locate_documents()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("handbook/setup.md", ("handbook", "setup.md")),
        ("handbook/guide/setup.md", ("handbook", "guide/setup.md")),
        ("guide/setup.md", ("handbook", "guide/setup.md")),  # the id alone: one collection has it
        ("rest.md", ("handbook", "rest.md")),
        ("notes/setup.md", ("notes", "setup.md")),
        ("a/b/d", ("a/b", "d")),
        ("a//b/c", ("a", "b/c")),
        ("a/b//c", ("a/b", "c")),
        ("a:b.md", ("notes", "a:b.md")),
    ],
)
def test_name_means_one_document(engine, name, key):
    assert document_names.find_document(engine[0], [engine[1]], name).key == key


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("setup.md", DocumentAmbiguous, ["handbook/setup.md", "notes/setup.md"]),
        ("a/b/c", DocumentAmbiguous, ["a//b/c", "a/b//c"]),
        ("handbook/seutp.md", DocumentMissing, "Did you mean 'setup.md'?"),
        ("faq", DocumentMissing, "Did you mean 'handbook/faq.md'?"),
        ("zzz", DocumentMissing, "no collection has"),
        ("zzz/yyyyyyyyyyyyyyyyy", CollectionMissing, "no such collection: 'zzz'"),
        ("guide/setup.mdx", CollectionMissing, "Did you mean 'handbook/guide/setup.md'?"),
        ("handbook", UsageInvalid, "is a collection"),
        ("", DocumentMissing, "''"),
    ],
)
def test_ambiguous_or_unknown_name_error_lists_candidates(engine, name, error, says):
    with pytest.raises(error) as raised:
        document_names.find_document(engine[0], [engine[1]], name)
    assert type(raised.value) is error
    if isinstance(says, list):
        assert raised.value.details["candidates"] == says
        assert all(say in raised.value.hint for say in says)
    else:
        assert says in raised.value.message


@pytest.mark.parametrize(
    ("names", "documents", "collections"),
    [
        (["guide/setup.md", "notes/setup.md"], ["handbook/guide/setup.md", "notes/setup.md"], []),
        (["handbook/guide"], ["handbook/guide/setup.md", "handbook/guide/tls.txt"], []),
        (["deep/"], ["handbook/deep/tls.txt"], []),
        (["notes/"], ["notes/a:b.md", "notes/guide/tls.txt", "notes/setup.md"], ["notes"]),
        (["a/b"], ["a/b/c", "a/b/d"], ["a/b"]),  # not the folder b of collection a
        (["a//b"], ["a/b/c"], []),
        (["*/tls.txt"], ["handbook/deep/tls.txt", "handbook/guide/tls.txt", "notes/guide/tls.txt"], []),
        (["handbook/*.txt"], ["handbook/deep/tls.txt", "handbook/guide/tls.txt"], []),
        (["[fr]*.md"], ["handbook/faq.md", "handbook/rest.md"], []),  # of ids: no full name is like that
        (["a/*.md"], ["a/*.md"], []),  # a document with this name is not a pattern
    ],
)
def test_several_documents_by_folder_collection_and_pattern(engine, names, documents, collections):
    named = document_names.select_named(engine[0], [engine[1]], names)
    assert [str(document) for document in named.documents] == documents
    assert list(named.collections) == collections


def test_dot_means_everything(engine):
    named = document_names.select_named(engine[0], [engine[1]], ["."])
    assert len(named.documents) == engine[0].count_documents(engine[1])
    assert named.collections == ("a", "a/b", "handbook", "notes")


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("guide", ["handbook/guide", "notes/guide"]),
        ("s*.md", ["handbook/s*.md", "notes/s*.md"]),
        ("notes", ["notes/", "handbook/notes"]),  # a collection, and a document of another one
    ],
)
def test_name_in_several_collections_is_ambiguous(engine, name, candidates):
    with pytest.raises(DocumentAmbiguous) as raised:
        document_names.select_named(engine[0], [engine[1]], [name])
    assert raised.value.details["candidates"] == candidates


def test_within_a_collection_names_are_ids(engine):
    named = document_names.select_named(engine[0], [engine[1]], ["guide", "s*.md"], within="notes")
    assert [str(document) for document in named.documents] == ["notes/guide/tls.txt", "notes/setup.md"]
    with pytest.raises(DocumentMissing):
        document_names.select_named(engine[0], [engine[1]], ["handbook/faq.md"], within="notes")


def test_ref_goes_before_any_name_and_documents_may_have_colons(project):
    project.put("main:faq.md", "a colon in it")
    assert project.vmrag("show", "feature:uv.md", "--raw").out == "Use uv."
    assert project.vmrag("show", "first:handbook/rest.md", "--raw").out == terminal.DOCUMENTS["rest.md"]
    assert project.vmrag("show", "main:faq.md", "--raw").out == "A frequent question."
    assert project.vmrag("show", "WORKING:main:faq.md", "--raw").out == "a colon in it"
    assert project.vmrag("show", "handbook/main:faq.md", "--raw").out == "a colon in it"
    assert project.vmrag("show", "mian:faq.md", "--json", code=3).error["code"] == "GIT_COMMIT_NOT_FOUND"

"""A user's program: mypy checks it in strict mode, and `assert_type` holds what it infers."""

from __future__ import annotations

import asyncio
from typing import assert_type

import vmrag_link as vmrag
from vmrag_link.api import (
    AnswerPosition,
    CommittedRevision,
    DiffResults,
    DocumentEntry,
    DocumentText,
    DocumentVersion,
    FoundPassage,
    KnowledgeBase,
    LineMatches,
    RemovedDocuments,
    SearchResults,
    WrittenDocument,
)
from vmrag_link.errors import DocumentMissing, VmragError


def read_documents() -> str:
    with vmrag.open(".", at="v2.0", follow=False) as kb:
        assert_type(kb, KnowledgeBase)
        match = kb.search("How do sessions expire?", k=5, mode="hybrid", path=["src/", "docs/"], max_tokens=2000)
        assert_type(match, SearchResults)
        for passage in match:
            assert_type(passage, FoundPassage)
            assert_type(passage.lines, tuple[int, int] | None)
        assert_type(kb.position, AnswerPosition)
        assert_type(kb.grep("timeout", context=2), LineMatches)
        assert_type(kb.list(collection="docs"), tuple[DocumentEntry, ...])
        assert_type(kb.diff("main", "HEAD"), DiffResults)
        assert_type(kb.history("docs/setup.md"), tuple[DocumentVersion, ...])
        assert_type(kb.fingerprint(), str)
        kb.refresh()
        try:
            document = kb.get("docs/setup.md", at="main")
        except DocumentMissing as error:
            return error.hint
        assert_type(document, DocumentText)
        return document.text


def write_documents() -> None:
    with vmrag.open(write=True) as kb:
        assert_type(kb.add("We chose Pagefind.", existing="replace", commit=True), WrittenDocument)
        assert_type(kb.remove("handbook/faq.md"), RemovedDocuments)
        assert_type(kb.commit("Remove the questions", git=True), CommittedRevision)


async def search_in_a_coroutine(kb: KnowledgeBase) -> SearchResults:
    try:
        return await asyncio.to_thread(kb.search, "sessions", k=3)
    except VmragError as error:
        raise SystemExit(error.hint) from error

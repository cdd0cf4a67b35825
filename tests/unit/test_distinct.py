"""Translations by path, the language of a question, and copies of passages."""

from __future__ import annotations

import time

import pytest

from vmrag_link.retrieval.copies import COPY_SHARE, MIN_EQUAL_WORDS, MIN_SIMILAR_WORDS, ComparedPassage, group_copies
from vmrag_link.retrieval.translations import choose_originals, detect_language, find_originals

PROSE = "the gateway drops a slow request after thirty seconds and writes one line with its path and its caller to the log".split()


@pytest.mark.parametrize(
    ("doc_id", "original", "language"),
    [
        ("docs/fr/x.md", "docs/x.md", "fr"),
        ("docs/zh-cn/guide/x.md", "docs/guide/x.md", "zh-cn"),
        ("docs/pt_BR/x.md", "docs/x.md", "pt_BR"),
        ("fr/x.md", "x.md", "fr"),
        ("docs/zh-Hans/x.md", "docs/en/x.md", "zh-Hans"),
        ("content/de/x.md", "content/en-US/x.md", "de"),
        ("docs/x.fr.md", "docs/x.md", "fr"),
        ("docs/x.fr.md", "docs/x.en.md", "fr"),
        ("README_zh-CN.md", "README.md", "zh-CN"),
        ("README.ja.md", "README.md", "ja"),
        ("docs/translations/ko/x.md", "docs/x.md", "ko"),
        ("i18n/fr/docusaurus-plugin-content-docs/current/guides/x.md", "docs/guides/x.md", "fr"),
        ("website/i18n/fr/docusaurus-plugin-content-docs/current/x.mdx", "website/docs/x.mdx", "fr"),
        ("website/i18n/fr/docusaurus-plugin-content-docs/current/x.mdx", "docs/x.mdx", "fr"),
        (
            "i18n/fr/docusaurus-plugin-content-docs/version-2.0/x.md",
            "versioned_docs/version-2.0/x.md",
            "fr",
        ),
        ("i18n/fr/docusaurus-plugin-content-blog/2026/x.md", "blog/2026/x.md", "fr"),
    ],
)
def test_path_of_translation_leads_to_existing_original(doc_id, original, language):
    existing = {original, "docs/other.md"}
    assert choose_originals([doc_id, original], existing.intersection)[doc_id] == (language, original)
    assert choose_originals([doc_id], {"docs/other.md", doc_id}.intersection) == {}, "no original"


@pytest.mark.parametrize(
    ("doc_id", "other"),
    [
        ("docs/js/x.md", "docs/x.md"),
        ("docs/how-to-deploy.md", "docs/how-deploy.md"),
        ("docs/x.py.md", "docs/x.md"),
        ("docs/en/x.md", "docs/en/x.md"),
        ("docs/french/x.md", "docs/x.md"),
    ],
)
def test_path_without_language_is_not_a_translation(doc_id, other):
    assert choose_originals([doc_id], {doc_id, other}.intersection) == {}


@pytest.mark.parametrize(
    ("question", "languages", "language"),
    [
        ("comment configurer la base de données", {"fr", "es"}, "fr"),
        ("configuration de la base", {"fr"}, "fr"),
        ("wie richte ich die Datenbank ein", {"de", "fr"}, "de"),
        ("cómo configuro la base de datos", {"es", "pt"}, "es"),
        ("how do I set up the database", {"de", "fr", "pl"}, "en"),
        ("如何配置数据库", {"fr"}, "zh"),
        ("データベースの設定", {"zh"}, "ja"),
        ("데이터베이스 설정", set(), "ko"),
        ("настройка базы", set(), "ru"),
        ("retry policy", {"fr"}, ""),
    ],
)
def test_language_of_question_follows_from_letters_and_small_words(question, languages, language):
    assert detect_language(question, languages) == language


def group(*texts: list[str], paths: tuple[str, ...] = ()) -> list[list[int]]:
    paths = paths or tuple(f"{number}.md" for number in range(len(texts)))
    return group_copies(
        [ComparedPassage("docs", path, " ".join(text)) for path, text in zip(paths, texts, strict=True)]
    )


def test_equal_words_are_copies_in_any_case():
    assert group(PROSE, ["#", *PROSE], [word.upper() for word in PROSE]) == [[0, 1, 2]]


def test_passage_with_few_other_words_is_copy():
    assert len(PROSE) >= MIN_SIMILAR_WORDS
    twice = [*PROSE, *(f"{word}s" for word in PROSE), *(f"{word}x" for word in PROSE)]
    assert group(twice, [*twice[:-1], "other"]) == [[0, 1]]
    assert group(twice, twice[: int(len(twice) * COPY_SHARE) - 2]) == [[0], [1]]
    assert group(twice, twice[::-1]) == [[0], [1]], "the same words in another order"


def test_short_passages_are_copies_only_if_equal():
    short = PROSE[:MIN_EQUAL_WORDS]
    assert group(short, short) == [[0, 1]]
    assert group(short, [*short[:-1], "other"]) == [[0], [1]]
    assert group(short[:-1], short[:-1]) == [[0], [1]], "too short to be a copy"


def test_copies_show_page_before_fixture_and_vendored_file():
    paths = ("__e2e__/site/x.md", "a/vendor/x.md", "docs/guide/x.md", "docs/x.md")
    assert group(PROSE, PROSE, PROSE, PROSE, paths=paths) == [[3, 2, 0, 1]]


def test_copies_show_passage_with_better_score():
    text = " ".join(PROSE)
    result = [ComparedPassage("manual", "man1/deep/x.md", text, -9), ComparedPassage("docs", "x.md", text, -8)]
    assert group_copies(result) == [[0, 1]]


def test_passages_of_one_document_are_not_grouped_as_copies():
    assert group(PROSE, PROSE, paths=("docs/x.md", "docs/x.md")) == [[0], [1]]


def test_paths_of_many_languages_take_linear_time():
    doc_ids = [f"{'fr/' * 1500}{number}.md" for number in range(200)]
    named = [path for doc_id in doc_ids for _, path in find_originals(doc_id)]
    assert len(named) < 50 * len(doc_ids)


def test_passages_with_the_same_long_words_take_linear_time():
    marks = " ".join(letter * 40 for letter in "abc")
    words = [" ".join(f"w{number}x{place}" for place in range(50)) for number in range(1_500)]
    passages = [ComparedPassage("docs", f"{number}.md", f"{marks} {some}") for number, some in enumerate(words)]
    start = time.process_time()
    assert len(group_copies(passages)) == len(passages)
    assert time.process_time() - start < 10

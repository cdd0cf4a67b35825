"""`python -m bench.languages FOLDER [LANGUAGE …]`: measure answers in four languages.

FOLDER has clones of `vuejs-translations/docs-ja`, `docs-zh-cn`, `docs-ko` (as `ja`, `zh-cn`, `ko`)
and of `contao/docs` (as `de`). Each line of `languages.tsv` has a language, the page and section
that answer, and a question in other words.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import quality
from bench.quality_sets import Question, QuestionSet
from vmrag_link.retrieval.query import Hit, Mode
from vmrag_link.retrieval.ranking import Ranking

QUESTIONS = Path(__file__).with_suffix(".tsv")
PAGES = {"de": ("docs/manual", ".de.md")}
USUAL = ("src/guide", ".md")
FIRST = 3


def main(folder: Path, languages: list[str]) -> None:
    print("| language | ranking | page among three | section among three | MRR of pages |\n|---|---|---|---|---|")
    for language in languages:
        made = read_pages(folder, language)
        with quality.open_index(folder / f"index-{language}", {"pages": made}) as searcher:
            for mode in Mode:
                answer = quality.direct(searcher, mode, Ranking())
                pages, sections, ranks = 0, 0, list[int]()
                for question in made.questions[language]:
                    hits = answer(question.text)
                    rank = quality.rank_of(hits, question)
                    ranks.append(rank)
                    pages += 0 < rank <= FIRST
                    sections += any(is_in_section(hit, made, question) for hit in hits[:FIRST])
                print(f"| {language} | {mode} | {pages} | {sections} | {quality.mrr(ranks):.3f} |")


def read_pages(folder: Path, language: str) -> QuestionSet:
    within, ending = PAGES.get(language, USUAL)
    root = folder / language / within
    pages = {
        str(path.relative_to(root)).removesuffix(ending): path.read_text() for path in sorted(root.rglob(f"*{ending}"))
    }
    rows = [line.split("\t") for line in QUESTIONS.read_text().splitlines()]
    questions = [Question(text, *place.split("#")) for name, place, text in rows if name == language]
    for question in questions:
        _section(pages[question.doc_id], question.passage)
    return QuestionSet(pages, {language: questions})


def is_in_section(hit: Hit, made: QuestionSet, question: Question) -> bool:
    if not quality.rank_of([hit], question):
        return False
    page = made.documents[question.doc_id]
    at, section = page.find(hit.text), _section(page, question.passage)
    return at in section or section.start in range(at, at + len(hit.text) // 2)


def _section(page: str, anchor: str) -> range:
    """Return the range of characters of a section, which the page must have."""
    headings = [*_headings(page), (0, len(page), "")]
    number = next(number for number, (_, _, name) in enumerate(headings) if name == anchor)
    level, start, _ = headings[number]
    return range(start, next(begin for depth, begin, _ in headings[number + 1 :] if depth <= level))


def _headings(page: str) -> Iterator[tuple[int, int, str]]:
    for match in re.finditer(r"^(#+) +(.*?) *(?:\{#([\w-]+)\} *)?$", page, re.MULTILINE):
        name = match[3] or re.sub(r"[^\w]+", "-", match[2].lower()).strip("-")
        yield len(match[1]), match.start(), name


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ["ja", "zh-cn", "ko", "de"])

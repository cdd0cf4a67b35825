"""Find documents that are translations of others by their paths, and the language of a question.

A document is a translation if a part of its path is a language, and if a document exists with the
same path without this part, or with English in place of this part.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container, Iterable, Iterator
from collections.abc import Set as AbstractSet

_LANGUAGES = frozenset(
    (
        "af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn ko "
        "ku ky lo lt lv mk ml mn mr ms my nb ne nl nn no pa pl ps pt ro ru si sk sl sq sr sv sw ta te th tk tl tr uk ur uz vi "
        "zh zu"
    ).split()
)
_MAX_FOLDERS = 4
"""Maximum number of folders of a path that may be its language. Each one produces several paths."""

_ENGLISH = ("en", "en-us", "en-US", "en_US")
_TAG = r"[A-Za-z]{2}(?:[-_](?:[A-Za-z]{4}|[A-Za-z]{2}|[0-9]{3})){0,2}"
_FOLDER = re.compile(_TAG)
_ENDING = re.compile(rf"(?P<stem>.+?)(?P<mark>[._-])(?P<tag>{_TAG})(?P<rest>(?:\.[A-Za-z0-9]+)+)")
_WRAPPERS = frozenset(
    ("i18n", "l10n", "lang", "langs", "languages", "locale", "locales", "translation", "translations")
)
"""Folders that contain a folder for each language."""

_DOCUSAURUS = re.compile(r"docusaurus-plugin-content-(docs|blog|pages)(?:-[\w-]+)?/(?:(current|version-[^/]+)/)?(.+)")
"""Paths of translations in Docusaurus: a plugin, a version, and the path of the original."""

_TREES = {"docs": "docs", "blog": "blog", "pages": "src/pages"}


def find_originals(doc_id: str) -> Iterator[tuple[str, str]]:
    """Yield each language that a path may contain, and the path that the original would have."""
    folders = doc_id.split("/")
    name = folders.pop()
    languages = ((number, folder) for number, folder in enumerate(folders) if is_language(folder))
    for number, folder in itertools.islice(languages, _MAX_FOLDERS):
        before, after = folders[:number], [*folders[number + 1 :], name]
        yield from ((folder, path) for path in _list_original_paths(before, after))
        yield from ((folder, "/".join([*before, english, *after])) for english in _ENGLISH)
    ending = _ENDING.fullmatch(name)
    if ending and is_language(ending["tag"]):
        for stem in (ending["stem"], *(f"{ending['stem']}{ending['mark']}{english}" for english in _ENGLISH)):
            yield ending["tag"], "/".join([*folders, f"{stem}{ending['rest']}"])


def _list_original_paths(before: list[str], after: list[str]) -> Iterator[str]:
    """Yield the possible paths of an original without the folder of its language.

    `before`, `after`: the parts of the path before and after this folder.
    """
    yield "/".join([*before, *after])
    if before and before[-1].lower() in _WRAPPERS:
        yield "/".join([*before[:-1], *after])
        match = _DOCUSAURUS.fullmatch("/".join(after))
        if match:
            tree, version, rest = match.groups()
            folder = f"versioned_docs/{version}" if version and version != "current" else _TREES[tree]
            for top in dict.fromkeys((tuple(before[:-1]), ())):
                yield "/".join([*top, folder, rest])


def is_language(part: str) -> bool:
    """Return whether a part of a path is a language, such as `fr`, `pt-BR` or `zh_Hans`."""
    return _FOLDER.fullmatch(part) is not None and part[:2].lower() in _LANGUAGES


def choose_originals(
    doc_ids: Iterable[str], existing: Callable[[AbstractSet[str]], Container[str]]
) -> dict[str, tuple[str, str]]:
    """Return the translations among documents, each with its language and its original.

    `existing` returns which of some ids are documents.
    """
    candidates = {doc_id: [*find_originals(doc_id)] for doc_id in doc_ids}
    existing_paths = existing({path for pairs in candidates.values() for _, path in pairs})
    originals: dict[str, tuple[str, str]] = {}
    for doc_id, pairs in candidates.items():
        for language, path in pairs:
            if path in existing_paths and path != doc_id:
                originals[doc_id] = language, path
                break
    return originals


_SCRIPTS = {
    "ja": "[\u3040-\u30ff]",
    "ko": "[\uac00-\ud7af\u1100-\u11ff]",
    "zh": "[\u4e00-\u9fff]",
    "th": "[\u0e00-\u0e7f]",
    "el": "[\u0370-\u03ff]",
    "he": "[\u0590-\u05ff]",
    "hi": "[\u0900-\u097f]",
    "fa": "[\u067e\u0686\u06af\u06cc]",
    "ar": "[\u0600-\u06ff]",
    "uk": "[\u0456\u0457\u0454\u0491]",
    "ru": "[\u0400-\u04ff]",
}
"""Letters by language. A question has the first language of which it contains a letter."""

_SMALL_WORDS = {
    "en": "a an and are can do does for how in is of the to we what when where which why with",
    "de": "auf das dem den der die ein eine einen fuer für ich ist man mit nicht und von warum was wie wird wo zu zum",
    "es": "como cómo con cual cuál de donde dónde el en es la las los para por puedo que qué se un una y",
    "fr": "avec comment dans de des du est et faire je la le les où par pour pourquoi quel quelle sur un une",
    "it": "che come con cosa da dei del della di dove e gli il la le mi per perché posso quale si sono un una",
    "nl": "de een en hoe het ik is kan met naar niet op te van voor waar waarom wat",
    "pl": "czy dla do i jak jest na nie o po się w z za",
    "pt": "as com como da das de do dos e em não o onde os para por posso qual que se um uma",
    "tr": "bir bu için ile mi nasıl ne neden nerede ve",  # noqa: RUF001
    "vi": "các cách cho của để không là làm một thế và",
}


def detect_language(question: str, languages: AbstractSet[str]) -> str:
    """Return the language of a question by its letters or small words; empty if it is unknown.

    It is one of `languages`, English, or a language with its own script.
    """
    for language, letters in _SCRIPTS.items():
        if re.search(letters, question):
            return language
    words = frozenset(re.findall(r"\w+", question.lower()))
    candidates = [language for language in _SMALL_WORDS if language in languages or language == "en"]
    counts = [len(words.intersection(_SMALL_WORDS[language].split())) for language in candidates]
    highest = max(counts)
    return candidates[counts.index(highest)] if highest and counts.count(highest) == 1 else ""

"""Find calls and imports in source code by patterns, without a parser.

Calls in comments and plain strings are left out. Every pattern takes linear time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

LONGEST_RECEIVER = 200
"""Number of characters before and after a name that are read."""

_FAMILIES = (
    "javascript typescript tsx vue svelte",
    "c cpp objective_c",
    "java kotlin scala groovy",
)
FAMILY_OF = {language: family.split()[0] for family in _FAMILIES for language in family.split()}
"""Family of each language. Languages of one family can call each other. Any other language is its
own family.
"""

_HASH = r"#[^\n]*"
_SLASHES = r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)"
_DOUBLE = r'"(?:[^"\\\n]|\\.)*+"?'
_SINGLE = r"'(?:[^'\\\n]|\\.)*+'?"
_TRIPLE = r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)' + r"|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|\Z)"
_CHARACTER = r"'(?:[^'\\\n]|\\[^\n]{1,10})'"
_RAW = r"`[^`]*+(?:`|\Z)"

_PYTHON_STRING = f"(?:{_TRIPLE}|{_DOUBLE}|{_SINGLE})"
_STRINGS = {
    "python": rf"(?P<kept>\b(?:[fF][rR]?|[rR][fF]){_PYTHON_STRING})|{_HASH}|{_PYTHON_STRING}",
    "ruby": rf"(?P<kept>{_DOUBLE})|{_HASH}|{_SINGLE}",
    "bash": rf"(?P<kept>{_DOUBLE}|[^\s#]#)|{_HASH}|{_SINGLE}",
    "javascript": rf"(?P<kept>`(?:[^`\\]|\\.)*+`?)|{_SLASHES}|{_DOUBLE}|{_SINGLE}",
    "go": rf"{_SLASHES}|{_DOUBLE}|{_CHARACTER}|{_RAW}",
    "php": rf"(?P<kept>{_DOUBLE})|{_SLASHES}|#(?!\[)[^\n]*|{_SINGLE}",
    "sql": rf"--[^\n]*|{_SLASHES}|{_SINGLE}",
    "#": rf"(?P<kept>{_DOUBLE}|{_SINGLE})|{_HASH}",
    "": rf"{_SLASHES}|{_DOUBLE}|{_CHARACTER}",
}
"""Pattern of comments and strings, by family. The group `kept` matches strings that contain
expressions.
"""

_WITH_HASHES = frozenset("elixir perl r julia nim crystal make cmake just starlark tcl awk gdscript".split())


def blank_comments(text: str, language: str) -> str:
    """Return a text of the same length, with blanks in place of comments and strings.

    Strings with expressions in them, such as f-strings, are kept.
    """
    return _compile_ignored(find_family(language)).sub(_blank_match, text)


def _blank_match(match: re.Match[str]) -> str:
    return match[0] if match.lastgroup == "kept" else re.sub(r"[^\n]", " ", match[0])


def find_family(language: str) -> str:
    return FAMILY_OF.get(language, language)


@functools.cache
def _compile_ignored(family: str) -> re.Pattern[str]:
    return re.compile(_STRINGS.get(family) or _STRINGS["#" if family in _WITH_HASHES else ""], re.DOTALL)


class CallSite(NamedTuple):
    """A call in a text."""

    name: str
    receivers: tuple[str, ...]
    """The names before it, such as `self`, `store` in `self.store.load()`. `""` is an expression. A
    plain call has no receivers.
    """

    start: int
    """The offset of the name."""


_DECLARES = re.compile(
    r"\b(?:def|fn|fun|func|function|class|struct|interface|trait|enum|macro_rules!|module|sub|proc)\s+(?:\w+[.:]{1,2})*\Z"
)
_DECORATOR = re.compile(r"@(?:\w+\.)*\Z")
_RECEIVER = re.compile(r"(?:([\w$]+)|[)\]}>\"'`])\s*(?:\?\.|!\.|\.|->|::|(?<=\w)\\)\s*\Z")
_CALLED = r"(?:!?[ \t]*+(?:::)?(?:<[^<>()\n]{0,80}>[ \t]*+)?(?:\?\.)?\(|![\[{])"
_OPENS_BLOCK = r"|[ \t]*\{"
_WITHOUT_PARENTHESES = r"|[!?]?(?![\w!?(:=])(?!\s*(?:=(?![=~])|[,|]))"


def find_calls(code: str, language: str, names: Mapping[str, str]) -> Iterator[CallSite]:
    """Yield the calls of these names, and decorators with them, in the order of the text.

    `code`: a text without comments. `names`: the meaning of each name that this text uses (perhaps
    an alias).
    """
    family = find_family(language)
    choice = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    for match in re.finditer(rf"(?<![\w$])(?:{choice})(?![\w$])", code):
        before = code[max(0, match.start() - LONGEST_RECEIVER) : match.start()]
        after = code[match.end() : match.end() + LONGEST_RECEIVER]
        if _is_call(before, after, family) and not _DECLARES.search(before):
            yield CallSite(names[match[0]], find_receivers(before), match.start())


def list_called_names(code: str, language: str) -> dict[str, str]:
    """Return the names that a text may call, as the argument `names` of `find_calls`."""
    after = _compile_after_name(find_family(language))
    names = re.finditer(r"(?<![\w$])[^\W\d][\w$]*", code)
    return {
        match[0]: match[0]
        for match in names
        if after.match(code, match.end()) or code.startswith(("@", "<"), max(0, match.start() - 1))
    }


def _is_call(before: str, after: str, family: str) -> bool:
    if _DECORATOR.search(before):
        return True
    if family == "javascript" and before.endswith("<"):
        # It is an element, not a type argument.
        return bool(re.match(r"[\s/>.]", after)) and not re.search(r"[\w$]<\Z", before)
    if family == "ruby" and before.endswith(":") and not before.endswith("::"):
        return False  # a symbol
    if family == "bash":
        return bool(re.search(r"(?:^|[;&|({`!]|\b(?:then|do|else|if|while|until))[ \t]*\Z", before, re.MULTILINE))
    return _compile_after_name(family).match(after) is not None


@functools.cache
def _compile_after_name(family: str) -> re.Pattern[str]:
    more = _OPENS_BLOCK if family in ("java", "swift") else _WITHOUT_PARENTHESES if family in ("ruby", "elixir") else ""
    return re.compile(f"{_CALLED}{more}")


def find_receivers(before: str) -> tuple[str, ...]:
    """Return the names before a call, from the first one. `before`: the text up to the call."""
    receivers: list[str] = []
    while match := _RECEIVER.search(before):
        receivers.append((match[1] or "").lstrip("$") or match[1] or "")
        if not match[1]:
            break
        before = before[: match.start()]
    return tuple(reversed(receivers))


class Imported(NamedTuple):
    """An imported name.

    `module`: the module as the text writes it. `name`: the name in it; empty for the module itself,
    `*` for all names.
    """

    module: str
    """The module as the text writes it."""

    name: str
    """The name in the module; empty for the module itself, `*` for all names."""


_PYTHON_FROM = re.compile(r"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]+(?:\(([^()]*)\)|([^\n(]*))", re.MULTILINE)
_PYTHON_IMPORT = re.compile(r"^[ \t]*import[ \t]+(\w[^\n(]*)", re.MULTILINE)
_SCRIPT_FROM = re.compile(
    r"^[ \t]*+(?:import|export)\s++(?:type\s++)?+([\w$*{},][\w$*{}\s,]{0,1000}?)\bfrom\s*+['\"]([^'\"\n]{1,300})['\"]",
    re.MULTILINE,
)
_SCRIPT_REQUIRE = re.compile(
    r"\b(?:const|let|var)\s++([\w$]++|\{[\w$\s,:]{1,1000}\})\s*+=\s*+(?:await\s++)?+(?:require|import)\s*+\(\s*+"
    r"['\"]([^'\"\n]{1,300})['\"]"
)
_GO_IMPORT = re.compile(r"^[ \t]*+(?:import[ \t]++)?+([\w.]++[ \t]++)?+\"([\w./~-]{1,300})\"[ \t]*+$", re.MULTILINE)
_RUST_USE = re.compile(r"\buse\s++(?:::)?((?:\w{1,100}::){1,20})(\{[^;]{1,5000}\}|\*|\w++(?:\s++as\s++\w++)?)\s*+;")
_DOTTED_IMPORT = re.compile(
    r"^[ \t]*+(?:import|using|use)[ \t]++(?:static[ \t]++)?+([\w.\\]{1,300})(?:[ \t]++as[ \t]++(\w++))?", re.MULTILINE
)
_AS = re.compile(r"([\w$*.]+)\s*(?:(?:\bas\b|:)\s*([\w$]+))?")


def find_imports(text: str, language: str) -> dict[str, Imported]:
    """Return what a text imports, by the name that it uses. Imports of `*` have keys such as
    `*0`.
    """
    imports: dict[str, Imported] = {}
    _IMPORTS.get(find_family(language), _add_dotted)(imports, text)
    return imports


def _add_python(imports: dict[str, Imported], text: str) -> None:
    for module, in_parentheses, names in _PYTHON_FROM.findall(text):
        _add_names(imports, module, re.sub(r"#[^\n]*", "", in_parentheses) or names.partition("#")[0])
    for names in _PYTHON_IMPORT.findall(text):
        for module, alias in _AS.findall(names.partition("#")[0]):
            first = module.partition(".")[0]
            imports[alias or first] = Imported(module if alias else first, "")


def _add_script(imports: dict[str, Imported], text: str) -> None:
    for names, module in [*_SCRIPT_FROM.findall(text), *_SCRIPT_REQUIRE.findall(text)]:
        outer, _, inner = names.partition("{")
        _add_names(imports, module, inner.partition("}")[0])
        for name, alias in _AS.findall(outer):
            imports[alias or name] = Imported(module, "")  # a default export, or all as one name


def _add_go(imports: dict[str, Imported], text: str) -> None:
    for alias, path in _GO_IMPORT.findall(text):
        parts = [part for part in path.split("/") if not re.fullmatch(r"v\d+", part)]
        last = re.sub(r"\.v\d+\Z|\Ago-", "", parts[-1]) if parts else path
        imports[alias.strip() or last] = Imported(path, "")


def _add_rust(imports: dict[str, Imported], text: str) -> None:
    for module, names in _RUST_USE.findall(text):
        flat = re.sub(r"\w+::", "", re.sub(r"[{}]", " ", names))
        _add_names(imports, module.removesuffix("::").replace("::", "."), flat)


def _add_dotted(imports: dict[str, Imported], text: str) -> None:
    for path, alias in _DOTTED_IMPORT.findall(text):
        module, _, name = path.replace("\\", ".").rpartition(".")
        imports[alias or name] = Imported(module, name)


_IMPORTS = {"python": _add_python, "javascript": _add_script, "go": _add_go, "rust": _add_rust}


def _add_names(imports: dict[str, Imported], module: str, names: str) -> None:
    for name, alias in _AS.findall(re.sub(r"\btype\s+", "", names)):
        key = f"*{len(imports)}" if name == "*" else alias or name
        imports[key] = Imported(module, name)

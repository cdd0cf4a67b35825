"""Which language a file is in, what decides how it is cut, what it is cut into, and what we and the
child process that cuts say to each other: a frame for each task and answer.

That process loads this module, so it imports little.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec
from typing import NamedTuple

RULES = 3
"""Of cutting with a grammar; higher whenever the same text may be cut otherwise, or more is told of
its pieces (`models.PIECES`).
"""

RULES_OF_LINES = 3
"""Of cutting by lines."""

EXTRA_HINT = "pip install 'vmrag-link[code]'"

_RUNTIME = "tree-sitter"


class GrammarPackage(NamedTuple):
    """A grammar's distribution; `function` of its module returns the grammar."""

    distribution: str
    function: str = "language"

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")


GRAMMARS = {
    "bash": GrammarPackage("tree-sitter-bash"),
    "c": GrammarPackage("tree-sitter-c"),
    "c_sharp": GrammarPackage("tree-sitter-c-sharp"),
    "cpp": GrammarPackage("tree-sitter-cpp"),
    "go": GrammarPackage("tree-sitter-go"),
    "java": GrammarPackage("tree-sitter-java"),
    "javascript": GrammarPackage("tree-sitter-javascript"),
    "kotlin": GrammarPackage("tree-sitter-kotlin"),
    "php": GrammarPackage("tree-sitter-php", "language_php"),
    "python": GrammarPackage("tree-sitter-python"),
    "ruby": GrammarPackage("tree-sitter-ruby"),
    "rust": GrammarPackage("tree-sitter-rust"),
    "sql": GrammarPackage("tree-sitter-sql"),
    "swift": GrammarPackage("tree-sitter-swift"),
    "tsx": GrammarPackage("tree-sitter-typescript", "language_tsx"),
    "typescript": GrammarPackage("tree-sitter-typescript", "language_typescript"),
}

# A header may be of C or of C++: the grammar of C++ reads both.
_ENDINGS = {
    "bash": "sh bash ksh zsh bats ebuild",
    "c": "c",
    "c_sharp": "cs csx",
    "cpp": "h cc cpp cxx c++ hh hpp hxx h++ inl ipp tpp cu cuh ino",
    "go": "go",
    "java": "java",
    "javascript": "js mjs cjs jsx es6",
    "kotlin": "kt kts",
    "php": "php phtml php3 php4 php5 phps",
    "python": "py pyi pyw pyx pxd",
    "ruby": "rb rake gemspec ru",
    "rust": "rs",
    "sql": "sql ddl pgsql",
    "swift": "swift",
    "tsx": "tsx",
    "typescript": "ts mts cts",
    # Without a grammar; cut by lines.
    "ada": "adb ads",
    "assembly": "asm s",
    "astro": "astro",
    "awk": "awk",
    "batch": "bat cmd",
    "bicep": "bicep",
    "clojure": "clj cljs cljc",
    "cmake": "cmake",
    "cobol": "cob cbl",
    "coffeescript": "coffee",
    "crystal": "cr",
    "css": "css scss sass less",
    "d": "d",
    "dart": "dart",
    "elixir": "ex exs",
    "elm": "elm",
    "erlang": "erl hrl",
    "fish": "fish",
    "flatbuffers": "fbs",
    "fortran": "f f90 f95 f03 f08 for",
    "fsharp": "fs fsi fsx",
    "gdscript": "gd",
    "gleam": "gleam",
    "glsl": "glsl vert frag comp",
    "graphql": "graphql gql",
    "groovy": "groovy gradle",
    "haskell": "hs lhs",
    "jq": "jq",
    "jsonnet": "jsonnet libsonnet",
    "julia": "jl",
    "lex": "l ll",
    "lisp": "lisp lsp el scm rkt",
    "lua": "lua",
    "m4": "m4 ac",
    "make": "mk mak",
    "nim": "nim nims",
    "nix": "nix",
    "nushell": "nu",
    "objective_c": "m mm",
    "ocaml": "ml mli",
    "pascal": "pas pp dpr",
    "perl": "pl pm t",
    "powershell": "ps1 psm1 psd1",
    "prisma": "prisma",
    "prolog": "prolog",
    "protobuf": "proto",
    "purescript": "purs",
    "r": "r",
    "rego": "rego",
    "rescript": "res resi",
    "scala": "scala sc sbt",
    "solidity": "sol",
    "starlark": "bzl star",
    "svelte": "svelte",
    "tcl": "tcl",
    "template": "cshtml eex ejs erb ftl gotmpl haml hbs heex j2 jinja jinja2 leex liquid mustache njk pug razor slim tmpl tpl twig",
    "terraform": "tf tfvars hcl",
    "thrift": "thrift",
    "vala": "vala vapi",
    "verilog": "v sv svh",
    "vhdl": "vhd vhdl",
    "vim": "vim",
    "visual_basic": "vb vbs bas",
    "vue": "vue",
    "wgsl": "wgsl",
    "yacc": "y yy",
    "zig": "zig",
}

_NAMES = {
    "bash": ".bashrc .bash_profile .profile .zshrc .zshenv PKGBUILD APKBUILD",
    "cmake": "CMakeLists.txt",
    "dockerfile": "Dockerfile Containerfile",
    "groovy": "Jenkinsfile",
    "just": "justfile Justfile",
    "make": "Makefile makefile GNUmakefile",
    "meson": "meson.build meson_options.txt meson.options",
    "python": "SConstruct SConscript wscript",
    "ruby": "Gemfile Rakefile Guardfile Podfile Vagrantfile Brewfile Fastfile",
    "starlark": "BUILD BUILD.bazel WORKSPACE WORKSPACE.bazel",
}

_BY_ENDING = {each: language for language, endings in _ENDINGS.items() for each in endings.split()}
NAMES = {each: language for language, names in _NAMES.items() for each in names.split()}
"""Languages by the full name of a file."""

LANGUAGES = tuple(sorted({*_ENDINGS, *_NAMES}))
"""All that `language_of` knows."""


def detect_language(path: str) -> str:
    """The language of a file by its name, such as `python`; empty for prose, markup and what is not
    known.
    """
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return NAMES.get(name) or (_BY_ENDING.get(ending.lower(), "") if dot and stem else "")


def needs_grammar(pathspec: str) -> bool:
    """Return whether a path of a source may match files that only a grammar can cut.

    A path without a wildcard may be a folder.
    """
    language = detect_language(pathspec) if "*" in pathspec else ""
    return not language or language in GRAMMARS


def describe_cutter(language: str) -> str:
    """What decides how a text in this language is cut: `python 0.25.0 / tree-sitter 0.26.1 / 1`, or
    `lines 1`. Equal ones cut equal texts equally. Raises `IndexExtraMissing` where its grammar is
    not installed.
    """
    package = GRAMMARS.get(language)
    if package is None:
        return f"lines {RULES_OF_LINES}"
    grammar, runtime = _version(package.distribution), _version(_RUNTIME)
    if not (grammar and runtime):
        from vmrag_link.errors import IndexExtraMissing

        raise IndexExtraMissing(f"{find_language_problem()}.", hint=EXTRA_HINT, extra="code")
    return f"{language} {grammar} / {_RUNTIME} {runtime} / {RULES}.{RULES_OF_LINES}"


def find_language_problem() -> str:
    """Why code cannot be cut here, in a sentence that says what to type; empty if it can.

    Each query asks, so that nothing is read but which modules there are.
    """
    missing = sorted(each for each, stamp in read_stamps().items() if stamp is None)
    if not missing:
        return ""
    from vmrag_link.errors import plural

    others = len(missing) - 1
    which = f"{missing[0]} and {plural(others, 'more package')} are" if others else f"{missing[0]} is"
    return f"Source code is cut with tree-sitter, and {which} not installed: {EXTRA_HINT}"


def find_source_problem(paths: Iterable[str]) -> str:
    """Return the problem with a source of these paths. Files cut by lines need no grammar."""
    return find_language_problem() if any(map(needs_grammar, paths)) else ""


@functools.cache
def read_stamps() -> Mapping[str, tuple[int, int] | None]:
    """Size and time of what is installed, by distribution: another one after an upgrade, and known
    without reading versions. None: it is not installed.
    """
    import importlib.util  # the process that cuts does not need it

    packages = sorted({_RUNTIME, *(grammar.distribution for grammar in GRAMMARS.values())})
    return {package: _stamp(importlib.util.find_spec(package.replace("-", "_"))) for package in packages}


def _stamp(spec: ModuleSpec | None) -> tuple[int, int] | None:
    if spec is None or spec.origin is None:
        return None
    folder = os.stat(os.path.dirname(spec.origin))  # noqa: PTH116, PTH120  each query asks
    return folder.st_size, folder.st_mtime_ns


@functools.cache
def _version(distribution: str) -> str:
    import importlib.metadata  # only where something is cut

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


DEFAULT_SIZE = 1500
"""Characters of a piece, about."""


LONGEST_SIGNATURE = 200
"""Characters."""

MOST_DECLARED = 200
"""Symbols that a piece tells of."""


VALUE_KINDS = frozenset(("constant", "variable"))
"""Kinds of declared names that get no piece of their own."""

BY_LINES = "lines"
"""The kind of the first piece of a text that was too hard or too large to parse."""


class SymbolDeclaration(NamedTuple):
    """`symbol` and `kind` as in `CodePiece`. `line` is that of the declaration itself, below its
    comments and decorators, `last_line` the last one of the whole symbol; both count from 1.
    """

    symbol: str
    kind: str
    line: int
    last_line: int


class CodePiece(NamedTuple):
    """`start` and `end` are character offsets; the pieces of a text are the text, in order.

    `symbol` is dotted with its parents (`Session.refresh`), with a `kind` (`method`) and the
    `signature` with which it is declared: one line of at most 200 characters. All three are empty
    for what belongs to no symbol. The parts of a long symbol have those of the whole.

    `declared`: the symbols whose declarations begin in this piece, the first `MOST_DECLARED` of
    them in the order of the text: its own, if it begins here, those within it that have no piece of
    their own, and small ones that follow it. Variables of functions are left out.
    """

    start: int
    end: int
    symbol: str = ""
    kind: str = ""
    signature: str = ""
    declared: tuple[SymbolDeclaration, ...] = ()


LONGEST_MESSAGE = 1 << 26
"""Bytes. A text of the largest size that is parsed makes fewer, even in pieces of one line."""


class CodeUnparsed(Exception):
    """`reason` completes a sentence about a text: `it takes more than 60 seconds to be cut`.

    The text has no pieces then: what a machine of another speed would have cut it into must not
    depend on this one's.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


ANSWER_SECONDS = 20.0
"""The limit of computing that one answer may spend on cutting texts: enough for a hundred megabytes
of code that people write. The parser's own count of operations limits each text, but some of its
operations cost sixty times as much as others.
"""


class CutBudget:
    """The seconds of computing that are left for the texts of one answer."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds


class CodeTask(NamedTuple):
    """A text to cut into pieces of about `size` characters. `blob` names a text that may come
    again: it is cut once.
    """

    text: str
    language: str
    size: int = DEFAULT_SIZE
    blob: str = ""

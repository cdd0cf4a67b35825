"""Languages of files, versions of the rules for splitting them, and the messages between vmrag and
the child process that splits texts: a frame for each task and answer.

The child process loads this module, so it imports little.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec
from typing import NamedTuple

RULES = 3
"""Version of splitting with a grammar. Increase it if the same text may be split differently, or if
pieces have more information (`models.PIECES`).
"""

RULES_OF_LINES = 3
"""Version of splitting by lines."""

INSTALL_COMMAND = 'pip install "vmrag-link[code]"'
EXTRA_HINT = f"run '{INSTALL_COMMAND}' to install it"

_RUNTIME = "tree-sitter"


class GrammarPackage(NamedTuple):
    """The distribution of a grammar."""

    distribution: str
    function: str = "language"
    """The function of its module that returns the grammar."""

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

# A header may be C or C++. The grammar of C++ can read both.
_SUFFIXES = {
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
    # Languages without a grammar, which are split by lines.
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

_BY_SUFFIX = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
NAMES = {name: language for language, names in _NAMES.items() for name in names.split()}
"""Languages by the full name of a file."""

LANGUAGES = tuple(sorted({*_SUFFIXES, *_NAMES}))
"""All results of `detect_language`."""


def detect_language(path: str) -> str:
    """Return the language of a file by its name, such as `python`; empty for prose, markup and
    unknown files.
    """
    name = path.rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    return NAMES.get(name) or (_BY_SUFFIX.get(suffix.lower(), "") if dot and stem else "")


def needs_grammar(pathspec: str) -> bool:
    """Return whether a path of a source may match files that only a grammar can split.

    A path without a wildcard may be a folder.
    """
    language = detect_language(pathspec) if "*" in pathspec else ""
    return not language or language in GRAMMARS


def describe_cutter(language: str) -> str:
    """Return a text that determines how texts in this language are split.

    It is like `python 0.25.0 / tree-sitter 0.26.1 / 1` or `lines 1`. If it is equal, equal texts
    have equal pieces. Raises `IndexExtraMissing` if the grammar is not installed.
    """
    package = GRAMMARS.get(language)
    if package is None:
        return f"lines {RULES_OF_LINES}"
    grammar, runtime = _read_version(package.distribution), _read_version(_RUNTIME)
    if not (grammar and runtime):
        from vmrag_link.errors import IndexExtraMissing

        raise IndexExtraMissing(f"{find_language_problem()}.", hint=EXTRA_HINT, extra="code")
    return f"{language} {grammar} / {_RUNTIME} {runtime} / {RULES}.{RULES_OF_LINES}"


def find_language_problem() -> str:
    """Return why code cannot be split here, with the command that fixes it; empty if it can.

    Each query calls this, so it only checks which modules exist.
    """
    missing = sorted(package for package, stamp in read_stamps().items() if stamp is None)
    if not missing:
        return ""
    from vmrag_link.errors import plural

    others = len(missing) - 1
    which = f"{missing[0]} and {plural(others, 'more package')} are" if others else f"{missing[0]} is"
    return f"source code needs tree-sitter, but {which} not installed; {EXTRA_HINT}"


def find_source_problem(paths: Iterable[str]) -> str:
    """Return the problem with a source of these paths. Files that are split by lines need no
    grammar.
    """
    return find_language_problem() if any(map(needs_grammar, paths)) else ""


@functools.cache
def read_stamps() -> Mapping[str, tuple[int, int] | None]:
    """Return size and time of each installed package; None if it is not installed.

    A stamp changes with an upgrade, and reading it is faster than reading the version.
    """
    import importlib.util  # the child process does not need it

    packages = sorted({_RUNTIME, *(grammar.distribution for grammar in GRAMMARS.values())})
    return {package: _read_stamp(importlib.util.find_spec(package.replace("-", "_"))) for package in packages}


def _read_stamp(spec: ModuleSpec | None) -> tuple[int, int] | None:
    if spec is None or spec.origin is None:
        return None
    folder = os.stat(os.path.dirname(spec.origin))  # noqa: PTH116, PTH120  each query asks
    return folder.st_size, folder.st_mtime_ns


@functools.cache  # each file asks
def _read_version(distribution: str) -> str:
    from vmrag_link import extras  # the child process does not need it

    if version := extras.read_version(distribution):
        return version
    from importlib import metadata

    try:
        return metadata.version(distribution)  # its metadata can be in another folder than its module
    except metadata.PackageNotFoundError:
        return ""


DEFAULT_SIZE = 1500
"""Approximate number of characters of a piece."""


LONGEST_SIGNATURE = 200
"""Maximum number of characters of a signature."""

MOST_DECLARED = 200
"""Maximum number of declared symbols of a piece."""


VALUE_KINDS = frozenset(("constant", "variable"))
"""Kinds of declared names that have no piece of their own."""

BY_LINES = "lines"
"""The kind of the first piece of a text that was too difficult or too large to parse."""


class SymbolDeclaration(NamedTuple):
    """The declaration of a symbol."""

    symbol: str
    """See `CodePiece.symbol`."""

    kind: str
    line: int
    """The line of the declaration itself, below its comments and decorators, from 1."""

    last_line: int
    """The last line of the symbol, from 1."""


class CodePiece(NamedTuple):
    """A piece of a text. The pieces of a text together are the text, in order."""

    start: int
    end: int
    """`start` and `end` are character offsets."""

    symbol: str = ""
    """The dotted name of the symbol with its parents (`Session.refresh`). This, `kind` and
    `signature` are empty for text that belongs to no symbol. The parts of a long symbol have those
    of the whole symbol.
    """

    kind: str = ""
    """The kind of the symbol, such as `method`."""

    signature: str = ""
    """The declaration as one line of at most 200 characters."""

    declared: tuple[SymbolDeclaration, ...] = ()
    """The symbols whose declarations begin in this piece, in the order of the text, at most
    `MOST_DECLARED`. These are the symbol itself if it begins here, symbols inside it that have no
    piece of their own, and small symbols that follow it. Variables of functions are left out.
    """


LONGEST_MESSAGE = 1 << 26
"""Maximum number of bytes of a message. The largest text that is parsed has a smaller answer, even
in pieces of one line.
"""


class CodeUnparsed(Exception):
    """A text could not be split. `reason` completes a sentence about it: `it takes more than 60
    seconds to be cut`.

    The text has no pieces then. Splitting it by lines would give another result than a faster
    machine.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


ANSWER_SECONDS = 20.0
"""Maximum CPU time that one answer may spend on splitting texts. It is enough for a hundred
megabytes of code that people write. The parser's count of operations limits each text, but some
operations cost sixty times as much as others.
"""


class CutBudget:
    """The CPU time that is left to split the texts of one answer."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds


class CodeTask(NamedTuple):
    """A text to split into pieces of about `size` characters."""

    text: str
    language: str
    size: int = DEFAULT_SIZE
    blob: str = ""
    """A name for the text if the same text may follow. Then it is split only once."""

"""The packages of the grammars, by language."""

from __future__ import annotations

from typing import NamedTuple


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

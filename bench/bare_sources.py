"""The yardstick of a first index of code: parse and embed, nothing else.

The blobs of a commit are read by one `git cat-file`, parsed by tree-sitter, cut where its nodes
end, and embedded with the program's own model, whose cost is everybody's. Prints seconds of CPU.

`python bare_sources.py REPOSITORY COMMIT [BEFORE]`: with another commit, only the blobs that it
lacks are parsed, and only the pieces that it lacks embedded.
"""

from __future__ import annotations

import subprocess
import sys
import time

import tree_sitter
import tree_sitter_python

from vmrag_link.embedding.static import StaticModel

SIZE = 1_500


def blobs(repo: str, commit: str) -> dict[str, str]:
    said = subprocess.run(["git", "-C", repo, "ls-tree", "-r", "-z", commit], capture_output=True, check=True).stdout
    lines = (line.partition(b"\t") for line in said.split(b"\0") if line.endswith(b".py"))
    return {path.decode(): kept.split()[2].decode() for kept, _, path in lines}


def contents(repo: str, names: list[str]) -> list[bytes]:
    said = subprocess.run(
        ["git", "-C", repo, "cat-file", "--batch"], input="\n".join(names).encode(), capture_output=True, check=True
    ).stdout
    found, at = [], 0
    while at < len(said):
        end = said.index(b"\n", at)
        size = int(said[at:end].split()[2])
        found.append(said[end + 1 : end + 1 + size])
        at = end + size + 2
    return found


def pieces(node: tree_sitter.Node, text: bytes) -> list[bytes]:
    """Of at most `SIZE` bytes, grouped greedily where they are small."""
    found: list[tuple[int, int]] = []
    left = [node]
    while left:
        each = left.pop()
        if each.end_byte - each.start_byte > SIZE and each.children:
            left.extend(reversed(each.children))
        elif found and each.end_byte - found[-1][0] <= SIZE:
            found[-1] = (found[-1][0], each.end_byte)
        else:
            found.append((each.start_byte, each.end_byte))
    return [text[start:end] for start, end in found]


def main(repo: str, commit: str, before: str | None) -> None:
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))
    model = StaticModel()
    model.embed(["warm"])
    known = set(blobs(repo, before).values()) if before else set()
    there = set(_pieces(repo, sorted(known), parser))
    start = time.process_time()
    names = [name for name in dict.fromkeys(blobs(repo, commit).values()) if name not in known]
    texts = [piece for piece in _pieces(repo, names, parser) if piece not in there]
    model.embed(texts)
    print(time.process_time() - start, len(texts))


def _pieces(repo: str, names: list[str], parser: tree_sitter.Parser) -> list[str]:
    found = (part for each in contents(repo, names) for part in pieces(parser.parse(each).root_node, each))
    return [text for part in found if (text := part.decode(errors="replace")).strip()]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)

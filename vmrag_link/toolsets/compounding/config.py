"""The configuration file of a project of documents. It comes with the code: it is a stranger's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from vmrag_link import terminal_text
from vmrag_link.errors import FileFailed, UsageInvalid, quoted
from vmrag_link.models import Record, json_from_user
from vmrag_link.paths import read_regular

MAX_BYTES = 1 << 18
USUAL_RESULTS, USUAL_LIMIT = 3, 10

Score = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[int, Meta(ge=0, le=100)]
Count = Annotated[int, Meta(ge=1, le=100)]
Texts = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=300)], ...], Meta(max_length=100)]
Name = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9-]{0,99}\Z")]


class RetrievalConfig(Record, frozen=True):
    """For answers. Without `min_relevance_score` the embedding model's own counts."""

    min_relevance_score: Score | None = None
    max_results: Count = USUAL_RESULTS
    max_linked_docs: Number = 5
    max_critical_docs: Number = 5


class SearchConfig(Record, frozen=True):
    min_relevance_score: Score | None = None
    default_limit: Count = USUAL_LIMIT


class LinkConfig(Record, frozen=True):
    max_depth: Annotated[int, Meta(ge=0, le=10)] = 2


class ExternalConfig(Record, frozen=True):
    """Other documentation in the same work tree; patterns are relative to `path`."""

    path: str
    include_patterns: Texts = ("**/*.md",)
    exclude_patterns: Texts = ("**/node_modules/**",)


class DocTypeConfig(Record, frozen=True):
    """`schema_file`: JSON Schema, in YAML or JSON; relative to the configuration file."""

    name: Name
    folder: str
    description: str = ""
    schema_file: str = ""


class ProjectConfig(Record, frozen=True):
    """`docs_path`: where the documents lie, if not where the folder's own name says."""

    project_name: Name
    retrieval: RetrievalConfig = RetrievalConfig()
    semantic_search: SearchConfig = SearchConfig()
    link_resolution: LinkConfig = LinkConfig()
    external_docs: ExternalConfig | None = None
    custom_doc_types: Annotated[tuple[DocTypeConfig, ...], Meta(max_length=100)] = ()
    docs_path: str = ""
    strict_front_matter: bool = False


class ReadConfig(Record, frozen=True):
    """`unknown`: keys that mean nothing here."""

    config: ProjectConfig
    unknown: tuple[str, ...]


def read(path: Path) -> ReadConfig:
    """Raises `FileFailed`, and `UsageInvalid` for what is no configuration."""
    text = file_text(path, MAX_BYTES)
    try:
        found = json_from_user(text)
        config = msgspec.convert(found, type=ProjectConfig)
    except msgspec.ValidationError as error:
        raise invalid(path, str(error)) from None
    except ValueError as error:
        raise invalid(path, f"it {error}") from None
    return ReadConfig(config, tuple(_unknown(found, ProjectConfig, "")))


def file_text(path: Path, most: int) -> str:
    """The text of a small regular file. Raises `FileFailed`."""
    try:
        data = read_regular(path, most + 1)
        if len(data) > most:
            raise _unreadable(path, f"it has more than {most:,} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"it is not UTF-8 (byte {error.start})") from None


def invalid(path: Path, why: str) -> UsageInvalid:
    name = terminal_text.one_line(str(path))
    return UsageInvalid(
        f"{name} is no configuration of a project: {terminal_text.one_line(why)}.",
        hint='It needs at least: {"project_name": "my-project"}',
        parameter="config_path",
        path=name,
    )


def _unreadable(path: Path, why: str) -> FileFailed:
    name = terminal_text.one_line(str(path))
    return FileFailed(f"{name} cannot be read: {why}.", hint=f"ls -la {quoted(path)}", path=name)


def _unknown(found: Mapping[str, Any], record: type[Record], where: str) -> Iterator[str]:
    """The keys of a valid configuration that its records have no field for."""
    fields = {each.name: each.type for each in msgspec.structs.fields(record)}
    for key, value in found.items():
        if key not in fields and not re.match(r"[$_]", key):  # `$schema`, and what people comment out
            yield f"{where}{key}"
        inner = next((each for each in (fields.get(key), *get_args(fields.get(key))) if _is_record(each)), None)
        if inner and isinstance(value, dict):
            yield from _unknown(value, inner, f"{where}{key}.")


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)

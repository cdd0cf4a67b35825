"""The settings by their dotted names, with their declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from vmrag_link import env
from vmrag_link.models import Record
from vmrag_link.settings import Config, Narrower


class SettingKey(Record, frozen=True):
    """The declaration of a setting."""

    name: str
    variable: str
    """The environment variable. The `extra` of the annotation can set another name."""
    kind: type
    """str, int, float, bool, or tuple for a list of sections, which is JSON outside the file."""
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
    lowest: int = 0
    highest: int = 0
    needs_trust: bool = False
    """The setting applies in a `.vmrag.yaml` only after the user of this machine has trusted it."""
    free: tuple[str, ...] = ()
    """Values that need no trust."""
    narrower: Narrower | None = None
    """Returns which value applies before the user trusts it, from the value of the file and the one
    that applies without it. Without this function, the latter applies.
    """
    adds_up: bool = False
    """The setting restricts something, and the values of all sources of settings are added."""
    in_git: bool = True
    flaw: Callable[[Any], str | None] | None = None
    """Returns why a text, or a list of sections, is not a valid value; None for a valid one."""
    list_of: str = ""
    """Example of the names that a comma-separated value contains. The file can also have them as a
    list.
    """

    def requires_trust(self, value: object) -> bool:
        """Return whether this value needs trust."""
        return self.needs_trust and value not in self.free

    def narrow_value(self, untrusted: Any, trusted: Any) -> Any:
        """Return the value that applies if the file has `untrusted`, and `trusted` applies without
        it.
        """
        return self.narrower(untrusted, trusted) if self.narrower else trusted

    @property
    def git_name(self) -> str:
        """The key in git config: `vmrag.embedding.model-path` for `embedding.model_path`."""
        return "vmrag." + self.name.replace("_", "-")

    @property
    def expected(self) -> str:
        if self.choices:
            return self.choices[0] if len(self.choices) == 1 else f"one of {', '.join(self.choices)}"
        if self.kind is int:
            return f"a whole number from {self.lowest} to {self.highest}"
        if self.kind is float:
            return f"a number from {self.lowest} to {self.highest} with at most three decimals"
        if self.kind is tuple:
            return "a list of sections"
        return "true or false" if self.kind is bool else "text"

    @property
    def default_text(self) -> str:
        """The default in YAML, in which an empty text and one that ends in a colon need quotes."""
        if self.kind is bool:
            return str(self.default).lower()
        if self.kind is tuple:
            return "[]"
        text = str(self.default)
        return f'"{text}"' if not text or text.endswith(":") else text


class Schema(Record, frozen=True):
    """Settings that are read together.

    `struct` contains their values, and `keys` has each setting by its dotted name.
    """

    struct: type[Record]
    keys: Mapping[str, SettingKey]

    @property
    def sections(self) -> dict[str, tuple[str, ...]]:
        """The keys of each section."""
        return {
            field: tuple(name for name in self.keys if name.startswith(f"{field}."))
            for field in self.struct.__struct_encode_fields__
            if field not in self.keys
        }


def build_schema(sections: Mapping[str, type[Record]]) -> Schema:
    """Return the schema of the sections that toolsets bring, by their names."""
    fields = [(name, kind, kind()) for name, kind in sections.items()]
    struct: Any = msgspec.defstruct("ToolsetSettings", fields, bases=(Record,), frozen=True)
    return Schema(struct, _list_keys(struct))


def _list_keys(struct: type[Record], prefix: str = "") -> dict[str, SettingKey]:
    keys: dict[str, SettingKey] = {}
    for field in msgspec.structs.fields(struct):
        if get_origin(field.type) is not Annotated:
            keys |= _list_keys(field.type, f"{field.encode_name}.")
            continue
        base, meta = get_args(field.type)
        name = prefix + field.encode_name
        extra = {"variable": env.setting_variable(name)} | (meta.extra or {})
        keys[name] = SettingKey(
            name=name,
            kind=str if get_origin(base) is Literal else get_origin(base) or base,
            default=field.default,
            doc=meta.description,
            choices=get_args(base) if get_origin(base) is Literal else (),
            lowest=meta.ge or 0,
            highest=meta.le or 0,
            **extra,
        )
    return keys


DOCUMENTATION = "https://github.com/vmrag/vmrag-link/blob/main/docs/configuration.md"
"""The page with all settings."""

REMOVED = {"import.on_stale": "run 'vmrag sources dedupe' to remove stored copies of tracked files"}
"""Settings of earlier versions, each with its replacement."""


def is_new_setting(name: str, text: str) -> bool:
    """Return whether version 0.1 does not know a setting of the file, or its value.

    `text` is the value in the file, with `sources` as JSON.
    """
    return (
        name in ("chroma.sources", "sources_submodules")
        or (name == "sources_untracked" and text == "ask")
        or (name == "sources" and '"write":' in text)
    )


CORE = Schema(Config, _list_keys(Config))
KEYS = CORE.keys
"""Every setting of the core by its dotted name."""

SECTIONS = CORE.sections

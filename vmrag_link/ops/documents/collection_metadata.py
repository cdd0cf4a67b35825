"""A collection's metadata as clients give and get it: with settings of its index among the keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from vmrag_link.errors import ContentRefused, shortened
from vmrag_link.index.metadata import HNSW, HNSW_PREFIX
from vmrag_link.models import Collection, Distance, canonical_json, json_from_user, metadata_of

SPACE = "hnsw:space"
"""Where clients put the distance of a collection; it has a column of its own."""


def shown_metadata(collection: Collection) -> dict[str, Any]:
    """A collection's metadata as clients know it: with the distance, which they look for there."""
    return {**metadata_of(collection), SPACE: collection.distance}


def flat(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without `settings`, whose keys stand beside the others. Raises `ContentRefused`."""
    try:
        given = json_from_user(json.dumps(metadata))
    except ValueError as error:
        raise ContentRefused(f"The metadata {error}.", hint="Use texts, numbers, true, false or null.") from None
    settings = given.pop("settings", {})
    if not isinstance(settings, dict):
        raise _refusal("settings", "an object", settings)
    for key, value in settings.items():
        if key in given and given[key] != value:
            raise ContentRefused(
                f"{key!r} is {given[key]!r} in the metadata and {value!r} in its 'settings'.",
                hint="Give it once.",
                key=key,
            )
        given[key] = value
    for key, value in given.items():
        _check(key, value)
    return {key: value for key, value in given.items() if value is not None or not key.startswith(HNSW_PREFIX)}


def _check(key: str, value: Any) -> None:
    if isinstance(value, dict | list):
        raise _refusal(key, "a text, a number, true, false or null", value)
    if value is None:
        return
    if key == "description" and not isinstance(value, str):
        raise _refusal(key, "a text", value)
    if key == SPACE and value not in get_args(Distance):
        raise _refusal(key, f"one of {', '.join(get_args(Distance))}", value)
    setting = HNSW.get(key)
    if setting and not setting.possible(value):
        raise _refusal(key, f"a whole number from {setting.low} to {setting.high}", value)


def _refusal(key: str, expected: str, value: Any) -> ContentRefused:
    given = shortened(canonical_json(value))
    return ContentRefused(f"{key!r} in the metadata must be {expected}, not {given}.", key=key)


def replace_metadata(before: Collection, given: Mapping[str, Any]) -> str:
    """New metadata.

    Settings of the index that are not given stay: they are not the user's metadata.
    """
    recorded = metadata_of(before)
    kept = {key: value for key, value in recorded.items() if key.startswith(HNSW_PREFIX)}
    return canonical_json(kept | {key: value for key, value in given.items() if key != SPACE})


def unapplied_settings(before: Collection, after: Collection, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The given settings that the index does not take over.

    A renamed collection's index is made anew, with every setting but another distance.
    """
    now = {key: each.usual for key, each in HNSW.items()} | shown_metadata(before)
    fixed = [key for key in given if key.startswith(HNSW_PREFIX) and (key not in HNSW or after.name == before.name)]
    return tuple(key for key in fixed if given[key] != now.get(key))

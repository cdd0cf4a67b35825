"""What a request may cost, and whom it may ask."""

from __future__ import annotations

from collections.abc import Callable

from vmrag_link import hosts
from vmrag_link.models import Record
from vmrag_link.settings import IngestSettings
from vmrag_link.toolsets.libraries.web.addresses import Resolver
from vmrag_link.toolsets.libraries.web.urls import PageUrl


def _admit_any(_: PageUrl) -> None:
    """For those that have asked already."""


class FetchLimits(Record, frozen=True):
    """`max_bytes` counts as it comes and unpacked; `timeout_s` is for everything together. `admit`
    raises for a page that may not be asked for, before even its host's name is looked up.
    """

    max_bytes: int = 50_000_000
    timeout_s: float = 10
    resolver: Resolver = Resolver()
    admit: Callable[[PageUrl], None] = _admit_any


def limits_of(settings: IngestSettings, admit: Callable[[PageUrl], None]) -> FetchLimits:
    resolver = Resolver(private_hosts=private_hosts(settings.allow_private_urls))
    return FetchLimits(settings.max_bytes, settings.timeout_s, resolver, admit)


def private_hosts(text: str) -> frozenset[str]:
    """The hosts of `ingest.allow_private_urls`, as they are compared."""
    return frozenset(hosts.canonical(each.strip()) for each in text.split(",") if each.strip())

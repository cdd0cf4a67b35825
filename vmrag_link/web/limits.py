"""What a request may cost, and whom it may ask."""

from __future__ import annotations

from vmrag_link.models import Record
from vmrag_link.settings import IngestSettings
from vmrag_link.web.addresses import Resolver, is_anything


class FetchLimits(Record, frozen=True):
    """`max_bytes` counts as it comes and unpacked; `timeout_s` is for everything together."""

    max_bytes: int = 50_000_000
    timeout_s: float = 10
    resolver: Resolver = Resolver()


def limits_of(settings: IngestSettings) -> FetchLimits:
    resolver = Resolver(permits=is_anything) if settings.allow_private_urls else Resolver()
    return FetchLimits(settings.max_bytes, settings.timeout_s, resolver)

"""Settings of thoughts."""

from typing import Annotated

from msgspec import Meta

from vmrag_link.models import Record


class ThinkingSettings(Record, frozen=True):
    threshold: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="How similar a thought or a session must be to be found, where a call says nothing; 0: what suits the "
            "embedding model.",
        ),
    ] = 0.0

"""Settings of chats and what is learnt."""

from typing import Annotated

from msgspec import Meta

from vmrag_link.models import Record
from vmrag_link.settings import agreed_setting, first_of


class LearningSettings(Record, frozen=True):
    store_raw: Annotated[
        bool,
        Meta(
            description="Whether the raw prompts and answers that `chroma_log_chat` is given are stored, and so pushed with the "
            "knowledge base; they may hold secrets.",
            extra=agreed_setting(first_of(False, True)),
        ),
    ] = True

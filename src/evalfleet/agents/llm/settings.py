"""`[llm]` of the configuration file: the endpoint, the model and its price. See docs/howto/use-an-llm-agent.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from evalfleet.config.tables import Check, Seconds, SettingsTable


class TokenPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the tokens of a model cost. `model` is a name or a pattern such as "gpt-4o*"."""

    model: str
    input_usd_per_million: float
    output_usd_per_million: float

    def __post_init__(self) -> None:
        if not (0 <= self.input_usd_per_million < math.inf and 0 <= self.output_usd_per_million < math.inf):
            raise ValueError("prices must be 0 or more")


_RATE: Check = (lambda value: 0 < value < math.inf, "must be more than 0")


class LlmSettings(SettingsTable, frozen=True, kw_only=True):
    CHECKS: ClassVar[Mapping[str, Check]] = {
        "temperature": (lambda value: 0 <= value <= 2, "must be from 0 to 2"),
        "max_tokens": (lambda value: 1 <= value < 2**31, "must be 1 or more"),
        "timeout_s": (lambda value: value >= 1, "must be at least 1s"),
        "requests_per_minute": _RATE,
        "tokens_per_minute": _RATE,
        "history": (lambda value: 0 <= value <= 1000, "must be from 0 to 1000"),
    }

    base_url: str = "https://api.openai.com/v1"
    model: str | None = None  # where --model is not given
    secret: str = "OPENAI_API_KEY"  # name of the variable with the key; "": the endpoint needs none
    temperature: float | None = None  # None: the endpoint's own
    max_tokens: int | None = None
    timeout_s: Seconds = field(default=90.0, name="timeout")  # of one call
    patience_s: Seconds = field(default=300.0, name="patience")  # waiting for the endpoint, in one attempt
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    history: int = 5  # earlier steps that the model is told of
    elements: bool = True  # whether the model is told what is on the page, besides the screenshot
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])  # more members of every request
    prices: tuple[TokenPrice, ...] = field(default=(), name="price")  # first match wins

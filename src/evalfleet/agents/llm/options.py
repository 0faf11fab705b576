"""The options of the agent `llm`, from the command line and the configuration, as its attempts receive them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import asdict

from evalfleet import config
from evalfleet.agents.base import AgentOptions, AgentSetup
from evalfleet.agents.llm.settings import LlmSettings
from evalfleet.config import Settings
from evalfleet.errors import InputError

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PASSED = (*_PROXIES, "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


class LlmOptions(Struct, frozen=True, kw_only=True):
    """The options in a task's payload. They contain the name of the key's variable, never the key."""

    base_url: str
    model: str
    secret: str | None
    temperature: float | None = None
    max_tokens: int | None = None
    timeout_s: float = 90.0
    patience_s: float = 300.0
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    history: int = 5
    elements: bool = True
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    input_usd_per_million: float | None = None
    output_usd_per_million: float | None = None

    def cost_usd(self, tokens_in: int, tokens_out: int) -> float:
        """Return what the tokens cost; 0 where no price is known."""
        if self.input_usd_per_million is None or self.output_usd_per_million is None:
            return 0.0
        return (tokens_in * self.input_usd_per_million + tokens_out * self.output_usd_per_million) / 1e6


def agent_setup(chosen: AgentOptions, settings: Settings) -> AgentSetup:
    """Prepare what the agent's attempts get.

    Raises:
        InputError: no model is named, or the address cannot be used.
    """
    ours = settings.table("llm", LlmSettings)
    model = chosen.model or ours.model
    if not model:
        raise InputError("the agent llm needs a model; name it with --model, or as llm.model in the configuration.")
    base_url = _address(chosen.base_url or ours.base_url)
    price = next((each for each in ours.prices if fnmatchcase(model, each.model)), None)
    options = LlmOptions(
        base_url=base_url,
        model=model,
        secret=ours.secret or None,
        temperature=ours.temperature,
        max_tokens=ours.max_tokens,
        timeout_s=ours.timeout_s,
        patience_s=ours.patience_s,
        requests_per_minute=ours.requests_per_minute,
        tokens_per_minute=ours.tokens_per_minute,
        history=ours.history,
        elements=ours.elements,
        body=ours.body,
        input_usd_per_million=price.input_usd_per_million if price else None,
        output_usd_per_million=price.output_usd_per_million if price else None,
    )
    env, hidden = _passed(config.environment())
    return AgentSetup(
        options={name: value for name, value in asdict(options).items() if value not in (None, {})},
        secrets=(*([options.secret] if options.secret else []), *hidden),
        env=env,
        patience_s=ours.patience_s,
        notes=_notes(options),
    )


def options_of(given: Mapping[str, Any]) -> LlmOptions:
    """Return the options that `agent_setup` wrote."""
    options: dict[str, Any] = {"secret": None, **given}
    return LlmOptions(**options)


def _address(text: str) -> str:
    """Return a base URL that paths can be added to."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable, parts = False, urlsplit("")
    if not usable or parts.query or parts.fragment:
        raise InputError(f"--base-url: {text[:80]!r} is not an address such as https://api.openai.com/v1.")
    if parts.username or parts.password:
        raise InputError(
            "--base-url: remove user and password; the key is taken from the variable that llm.secret names."
        )
    return text.rstrip("/")


def _passed(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables for proxies and certificates; a proxy with a password in its address is a secret."""
    given = {name: environ[name] for name in _PASSED if environ.get(name)}
    hidden = [name for name, value in given.items() if name in _PROXIES and "@" in value]
    return {name: value for name, value in given.items() if name not in hidden}, hidden


def _notes(options: LlmOptions) -> tuple[str, ...]:
    notes: list[str] = []
    if options.input_usd_per_million is None:
        notes.append(
            f"no price is configured for {options.model}: its tokens are counted, but their "
            "cost is unknown and does not count towards a budget; add [[llm.price]] to the configuration"
        )
    parts = urlsplit(options.base_url)
    if options.secret and parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        notes.append(f"the key {options.secret} is sent to {parts.hostname} without encryption; use https")
    return tuple(notes)

"""What an endpoint's answer means: by status, by the provider's code, and by its words."""

from __future__ import annotations

import re
from http import HTTPStatus

from evalfleet.core.failures.signatures.match import OWN, Own
from evalfleet.model import Kind

_CREDIT = re.compile(
    r"(?i)insufficient[_ ](?:quota|balance|credits?|funds)|exceeded your current quota|credit balance is too low"
    r"|billing[_ ](?:hard[_ ]limit|not[_ ]active)|account (?:is not active|has been deactivated|is suspended)|out of credits"
    r"|payment[_ ]required|(?:monthly|daily|spending|usage) (?:spend |usage )?limit (?:has been |was )?(?:reached|exceeded)"
    r"|ServiceQuotaExceeded"
)
# The same provider says so of a limit per minute.
_SOON = re.compile(r"(?i)retry ?Delay|please (?:retry|try again) in|PerMinute|per min\b")
_KEY = re.compile(
    r"(?i)api[_ ]key[_ ](?:not valid|invalid)|(?:invalid|incorrect|expired)[_ -]?(?:x-)?api[_ -]key|authentication_error"
)
_MODEL = re.compile(
    r"(?i)model_not_found|DeploymentNotFound|not_found_error\W.{0,60}\bmodel\b"
    r"|\bmodels?[ /:`'\"].{0,80}?(?:does not exist|not found|not exist|is not available)"
)
_WRONG = re.compile(
    r"(?i)context.length|maximum (?:context|size)|invalid|content.(?:filter|policy)|unsupported|too (?:long|large)|bad request"
)
_CODES = (
    (Kind.SERVICE_REFUSED, re.compile(
        r"(?i)unauthor|authentication|access_?denied|permission_?(?:denied|error)|forbidden|invalid_?api_?key"
        r"|insufficient_?(?:quota|balance|credit)|payment_?required|billing|unrecognized_?client|expired_?token"
        r"|invalid_?(?:signature|client_?token|access_?key)|signature_?does_?not|missing_?authentication|auth_?failure"
        r"|opt_?in_?required|service_?quota|not_?authorized|invalid_?identity|unsupported_?country|account_?deactivated"
    )),
    (Kind.SERVICE_FAILED, re.compile(
        r"(?i)throttl|too_?many_?requests|rate_?limit|slow_?down|no_?capacity|overloaded|over_?capacity|internal|server_?error"
        r"|api_error|unavailable|time_?(?:d_?)?out|bad_?gateway|not_?ready|request_?limit|throughput|resource_?exhausted"
        r"|deadline_?exceeded|model_?stream_?error|try_?again"
    )),
)  # fmt: skip
_PHRASES = {status.phrase.lower(): status.value for status in HTTPStatus if status.value >= 400}


def by_status(status: int, text: str) -> Kind | Own:
    """A refusal is a person's to mend (a key, a contract, a model's name); a failure passes."""
    if status in (401, 402) or (status in (400, 403, 404, 429) and _is_refused(status, text)):
        return Kind.SERVICE_REFUSED
    if status == 403:
        return Kind.SERVICE_FAILED if re.search(r"(?i)rate limit", text) else Kind.SERVICE_REFUSED
    return Kind.SERVICE_FAILED if status in (408, 425, 429) or 500 <= status <= 599 else OWN


def _is_refused(status: int, text: str) -> bool:
    if status == 404:
        return _MODEL.search(text) is not None
    return is_unpaid(text) or (status == 400 and _KEY.search(text) is not None)


def is_unpaid(text: str) -> bool:
    """Whether money or a quota is used up that does not come back within minutes."""
    return _CREDIT.search(text) is not None and _SOON.search(text) is None


def is_wrong(text: str) -> bool:
    """Whether the endpoint finds fault with the request itself."""
    return _WRONG.search(text) is not None


def by_code(code: str, text: str) -> Kind | Own | None:
    """A provider's word for the error: `ThrottlingException`, `rate_limit_exceeded`, or its status as text."""
    if code.isdigit():
        return by_status(int(code), text) if len(code) == 3 else None
    if is_unpaid(f"{code} {text}"):
        return Kind.SERVICE_REFUSED
    if _MODEL.search(code):
        return Kind.SERVICE_REFUSED
    return next((kind for kind, words in _CODES if words.search(code)), None)


def by_phrase(phrase: str, text: str) -> Kind | Own | None:
    """The words that go with a status: `Too Many Requests`."""
    status = _PHRASES.get(phrase.lower())
    return None if status is None else by_status(status, text)

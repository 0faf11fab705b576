"""Words that only a known library prints, wherever they stand: after a class, after a level of a log, in quotes of others."""

from __future__ import annotations

import re

from evalfleet.core.failures.signatures import http_status
from evalfleet.core.failures.signatures.match import OWN, Own
from evalfleet.model import Kind

_START = r"(?:^|[:\])>-] |^\W*|\()"
_STATUS = tuple(
    re.compile(_START + words)
    for words in (
        r"Error code: (?P<status>\d{3})\b",  # openai, anthropic and their kin
        r"HTTP Error (?P<status>\d{3})(?:: | [A-Z])",  # urllib
        r"(?P<status>\d{3}) (?:Client|Server) Error: .{0,200}? for url: ",  # requests
        r"(?:Client|Server) error '(?P<status>\d{3}) [^']*' for url ",  # httpx
        r"(?P<status>\d{3}) [A-Z][A-Z_]{3,40}\. \{",  # google-genai
        r"(?P<status>\d{3}) [A-Z][\w ]{2,40}\. \{'(?:error|message)'",  # google-genai, with the words of the status
        r"(?P<status>\d{3}), message=['\"]",  # aiohttp
        r"API Error: (?P<status>\d{3}) \{",
        r"The requested URL returned error: (?P<status>\d{3})\b",  # curl
        r"too many (?P<status>\d{3}) error responses",  # urllib3
    )
)
# An answer that was cut is told with a status that nobody sent.
_CUT = re.compile(r"Response payload is not completed")
_LIBRARY_CODE = re.compile(r"An error occurred \((?P<code>\w+)\) when calling the \w+ operation")
_AZURE_CODE = re.compile(r"(?:^|: )\((?P<code>\w+)\) .*\bCode: (?P=code)\b")
_ANTHROPIC_CODE = re.compile(r"\{'type': 'error', 'error': \{(?:'details': \w+, )?'type': '(?P<code>\w+)'")
_AZURE_STATUS = re.compile(r"Operation returned an invalid status(?: code)? '(?P<phrase>[^']+)'")
_LITELLM = re.compile(r"litellm\.(?P<name>\w+): ")
_LITELLM_KINDS = {
    "RateLimitError": Kind.SERVICE_FAILED, "InternalServerError": Kind.SERVICE_FAILED, "Timeout": Kind.SERVICE_FAILED,
    "APIConnectionError": Kind.SERVICE_FAILED, "ServiceUnavailableError": Kind.SERVICE_FAILED,
    "BadGatewayError": Kind.SERVICE_FAILED, "AuthenticationError": Kind.SERVICE_REFUSED,
    "PermissionDeniedError": Kind.SERVICE_REFUSED,
}  # fmt: skip

_CONNECTION = re.compile(
    r"HTTPS?ConnectionPool\(host=.{0,400}?(?:Max retries exceeded|Read timed out|Failed to|SSLError|\(Caused by)"
    r"|<urlopen error (?:\[Errno (?:-[235]|101|104|110|111|113)\]|\[SSL|timed out|_ssl\.c|EOF occurred|The handshake operation)"
    r"|<?\w+(?: object at 0x[0-9a-f]+)?>?: Failed to (?:establish a new connection|resolve )"
    r"|Cannot connect to host \S+ ssl:|Connection timeout to host |Timeout on reading data from socket"
    r"|\('Connection aborted\.', |(?:^|: |[\"'(])Connection broken: |Response ended prematurely|IncompleteRead\(\d+ bytes read"
    r"|Remote end closed connection without response|(?:^|: )Server disconnected(?: without sending a response\.?)?$"
    r"|peer closed connection without sending complete message body|Response payload is not completed"
    r"|Could not connect to the endpoint URL: |(?:Read|Connect) timeout on endpoint URL: |Connection was closed before we received"
    r"|SSL validation failed for |(?:^|: )Connection error\.$|(?:^|: )Request timed out\.$"
    r"|\[Errno -[235]\] (?:Name or service not known|Temporary failure in name resolution|No address associated)"
    r"|\[Errno (?:101|104|110|111|113)\] \w|\[SSL: [A-Z_]+\]|certificate verify failed"
    r"|(?:^|: )The (?:read|write|handshake) operation timed out"
    r"|(?:^|: )The server had an error (?:while )?processing your request"
)


def kind_of(text: str) -> Kind | Own | None:
    """What the words of a known library in `text` mean; None where there are none."""
    if _CUT.search(text):
        return Kind.SERVICE_FAILED
    for pattern in _STATUS:
        found = pattern.search(text)
        if found:
            return http_status.by_status(int(found["status"]), text)
    for pattern in (_LIBRARY_CODE, _AZURE_CODE, _ANTHROPIC_CODE):
        found = pattern.search(text)
        kind = http_status.by_code(found["code"], text) if found else None
        if kind is not None:
            return kind
    phrase = _AZURE_STATUS.search(text)
    if phrase:
        return http_status.by_phrase(phrase["phrase"], text)
    called = _LITELLM.search(text)
    if called:
        return _of_litellm(called["name"], text)
    return Kind.SERVICE_FAILED if _CONNECTION.search(text) else None


def _of_litellm(name: str, text: str) -> Kind | Own | None:
    if http_status.is_unpaid(text):
        return Kind.SERVICE_REFUSED
    if name == "APIError":
        return OWN if http_status.is_wrong(text) else Kind.SERVICE_FAILED
    return http_status.by_status(404, text) if name == "NotFoundError" else _LITELLM_KINDS.get(name)

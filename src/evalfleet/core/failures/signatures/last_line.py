"""The last line of a program, and stacks of other languages than Python."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evalfleet.core.failures.signatures import environment, gpu, phrases
from evalfleet.core.failures.signatures.match import Found, Own
from evalfleet.model import Kind

# Tests and checks talk of errors that they saw or wanted.
_TALKS = re.compile(
    r"(?i:\b(?:assert\w*|expect\w*|should|mismatch\w*|instead of|wanted|want:|but got|, got|got:|actual)\b)|^(?:FAILED|PASSED|E  ) "
)

_BRACKETS = re.compile(r"\([^()]*\)")

_FULL = (
    r"(?:^|: |\] )(?:No space left on device|Disk quota exceeded)(?:\s*$|[:.'\"\])(])",
    r"\bENOSPC: no space left",
    r": no space left on device\.?$",
)
_HOST = (
    r"(?:^|: )(?:fork: (?:retry: )?|[Cc]annot fork: ?|vfork: |clone: )(?:Resource temporarily unavailable|Cannot allocate memory)",
    r": Too many open files(?: in system)?\.?$",
    r"\bE[MN]FILE: ",
    r"pthread_create failed.*Resource temporarily unavailable",
    r"\bspawn \S+ EAGAIN\b",
    r"can't start new thread$",
    r"unable to create native thread",
)
_REGISTRY = (
    r"(?:docker|podman|Error response from daemon|initializing source).*(?:toomanyrequests|pull rate limit)",
    r"(?:docker|podman|Error response from daemon|initializing source).*(?:TLS handshake timeout|i/o timeout|no such host)",
    r"(?:docker|podman|Error response from daemon|initializing source).*(?:connection re(?:fused|set)|Service Unavailable)",
    r"(?:docker|podman|Error response from daemon|initializing source).*(?:HTTP status: 5\d\d|Client\.Timeout|deadline exceeded)",
)
_SHELL = (
    r"^curl: \((?:5|6|7|16|18|28|35|52|55|56|60|92)\) ",
    r"^wget: (?:unable to resolve|can't connect|download timed out)",
    r"^Connecting to \S+ failed: ",
    r"^fatal: unable to access '.*': (?:Could not resolve|Failed to connect|gnutls|SSL|OpenSSL|Recv failure|Empty reply)",
    r"^fatal: unable to access '.*': The requested URL returned error: 5",
    r"^ssh: (?:connect to host \S+ port \d+: |Could not resolve hostname )",
)
_GO = (
    r"\bdial (?:tcp|udp) \S+(?: .{0,100})?: (?:connect: |i/o timeout|lookup )",
    r"\bdial tcp: lookup \S+.*: no such host",
    r"net/http: (?:TLS handshake timeout|request canceled)",
    r"Client\.Timeout exceeded while awaiting headers",
    r"x509: certificate (?:signed by unknown authority|has expired|is not valid)",
    r"read tcp \S+->\S+: (?:read: connection reset|i/o timeout)",
)
_NODE = (
    r"\b(?:connect|getaddrinfo|read|write) (?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ECONNRESET|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)\b",
    r"\bUND_ERR_(?:CONNECT_TIMEOUT|HEADERS_TIMEOUT|BODY_TIMEOUT|SOCKET)\b",
    r"(?:^|: )Error: socket hang up",
    r"\bError: self[- ]signed certificate\b",
)
_JAVA = (
    r"java\.net\.(?:Connect|UnknownHost|SocketTimeout|Socket|NoRouteToHost)Exception",
    r"java\.net\.http\.Http(?:Connect)?TimeoutException",
    r"javax\.net\.ssl\.SSL\w*Exception",
)
# Classes of Python that a program names in a line of its own.
_PYTHON = (
    r"\b(?:ReadTimeout|ConnectTimeout|ReadTimeoutError|TimeoutError|APITimeoutError|URLError): .*timed out",
    r"(?i:(?:error|failed|exception)): timed out$",
    r": (?:(?:Read|Write|Connect)(?:Error|Timeout)|RemoteProtocolError|ClientPayloadError|ServerDisconnectedError):?$",
)
_LINES = tuple(
    (kind, re.compile("|".join(words)))
    for kind, words in (
        (Kind.DISK_FULL, _FULL),
        (Kind.HOST_FAILED, _HOST),
        (Kind.SERVICE_FAILED, (*_REGISTRY, *_SHELL, *_GO, *_NODE, *_JAVA, *_PYTHON)),
    )
)
_NODE_HEAD = re.compile(r"(?:Uncaught )?(?P<name>\w+Error)(?: \[\w+\])?: (?P<status>\d{3})? ?")
_NODE_LIBRARY = re.compile(
    r"node_modules/(?:openai|@anthropic-ai|@google|@aws-sdk|@azure|axios|got|undici|node-fetch|ollama|groq-sdk|cohere-ai)\b"
)


def of_line(line: str) -> Found | None:
    if _talks(line):
        return None
    kind = _kind(line)
    return Found(kind, line) if kind is not None else None


def of_stack(stack: Sequence[str]) -> Found | None:
    """The head of the stack, or what it names as its cause, which comes later."""
    library = any(_NODE_LIBRARY.search(line) for line in stack)
    for place, line in enumerate(stack):
        head = _NODE_HEAD.match(line)
        if library and head and head["status"]:
            kind = phrases.kind_of(f"Error code: {head['status']} - {line}")
            return Found(kind, line) if isinstance(kind, Kind) else None
        if place and line.lstrip().startswith("at "):
            continue
        kind = None if _talks(line) else _kind(line)
        if kind is not None:
            return Found(kind, line.strip())
    return None


def _talks(line: str) -> bool:
    # In brackets libraries say what they expected: "(received 20 bytes, expected 4000)".
    return _TALKS.search(_BRACKETS.sub("", line)) is not None


def _kind(line: str) -> Kind | None:
    for kind, words in _LINES:
        if words.search(line):
            return kind
    said = environment.of_words(line) or phrases.kind_of(line)
    if isinstance(said, Own):
        return None
    return said or gpu.of_words(line)

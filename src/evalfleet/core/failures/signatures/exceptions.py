"""Exceptions of known libraries, from the last one of a traceback down its chain of causes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evalfleet.core.failures.signatures import environment, gpu, http_status, phrases
from evalfleet.core.failures.signatures.match import OWN, Found, Own
from evalfleet.core.failures.signatures.program_end import Raised
from evalfleet.model import Kind

# The program's own mistakes. What such an exception says, and what was being handled when it came, excuses nothing.
_MISTAKES = re.compile(
    r"(?:Arithmetic|Assertion|Attribute|EOF|FileExists|FileNotFound|Import|Indentation|Index|IsADirectory|Key|Lookup|ModuleNotFound"
    r"|Name|NotADirectory|NotImplemented|Overflow|Recursion|Syntax|Tab|Type|UnboundLocal|UnicodeDecode|UnicodeEncode|Value"
    r"|ZeroDivision|json\.decoder\.JSONDecode)Error|KeyboardInterrupt|Stop(?:Async)?Iteration"
)
_CLIENTS = re.compile(
    r"(?:openai|anthropic|groq|together|cerebras|mistralai|cohere|litellm|ollama|replicate|fireworks|xai_sdk"
    r"|google\.(?:genai|api_core|auth)|httpx\d*|httpcore\d*|h2|requests|urllib3|urllib\.error|http\.client|aiohttp|botocore"
    r"|boto3|azure|msrest|grpc|huggingface_hub|websockets?|pip\._vendor)\."
)
_FAILED = re.compile(
    # model providers
    r"RateLimitError|InternalServerError|APIConnectionError|APITimeoutError|OverloadedError|ServiceUnavailableError|ServerError"
    r"|DeadlineExceededError|Timeout|BadGatewayError|TooManyRequests|ResourceExhausted|ServiceUnavailable|GatewayTimeout"
    r"|DeadlineExceeded|BadGateway|RetryError|InternalError"
    # HTTP clients
    r"|ConnectError|ConnectTimeout|ReadTimeout|WriteTimeout|PoolTimeout|ReadError|WriteError|CloseError|NetworkError|ProxyError"
    r"|RemoteProtocolError|ConnectionError|SSLError|ChunkedEncodingError|TimeoutException|NewConnectionError|MaxRetryError"
    r"|ConnectTimeoutError|ReadTimeoutError|ProtocolError|NameResolutionError|IncompleteRead|RemoteDisconnected|BadStatusLine"
    r"|ClientConnector\w*Error|ClientConnection\w*Error|ClientOSError|ServerDisconnectedError|ServerTimeoutError|SocketTimeoutError"
    r"|ConnectionTimeoutError|ClientPayloadError|ClientSSLError|ClientHttpProxyError|ServerConnectionError|TransferEncodingError"
    r"|ContentLengthError|ResponseError|ResponseParserError"
    # clouds
    r"|EndpointConnectionError|ConnectionClosed(?:Error)?|HTTPClientError|ResponseStreamingError|IncompleteReadError"
    r"|Service(?:Request|Response)(?:Timeout)?Error|TransportError"
)
_REFUSED = re.compile(
    r"AuthenticationError|PermissionDenied(?:Error)?|Unauthorized|Unauthenticated|Forbidden|NoCredentialsError|NoAuthTokenError"
    r"|PartialCredentialsError|CredentialRetrievalError|ClientAuthenticationError|RefreshError|DefaultCredentialsError"
    r"|TokenRetrievalError|UnauthorizedSSOTokenError|CredentialUnavailableError|ProxyAuthenticationRequired"
)
# Of these the name says little: their words decide.
_BY_WORDS = re.compile(r"URLError|APIStatusError|ClientError|HttpResponseError|OpenAIError|AnthropicError")
_STATUS_CODE = re.compile(r"\(status code: (\d{3})\)")  # ollama
_NO_KEY = re.compile(
    r"(?i)api_key .{0,40}must be set|could not resolve authentication|missing (?:credentials|key inputs)|no api.?key"
)

_GAVE_UP = re.compile(r"RetryError\[<Future at \S+ state=finished raised (\w+)>\]")
_SOCKETS = re.compile(
    r"(?:OS|ConnectionRefused|ConnectionReset|ConnectionAborted|(?:asyncio\.exceptions\.)?Timeout)Error"
)
_SOCKET_WORDS = re.compile(
    r"\[Errno (?:101|103|104|110|111|112|113)\]|^timed out$|^(?:_ssl\.c:\d+: )?The (?:read|write|handshake) operation timed out$"
    r"|SSL connection is closed|^Connection lost$|^SSL shutdown timed out$"
)
_OF_CLIENT = re.compile(
    r"[/\\](?:aiohttp|httpx\d*|httpcore\d*|urllib3|requests|openai|anthropic|botocore|anyio|http[/\\]client\.py)\b"
)
_PIPES = re.compile(r"[/\\]multiprocessing[/\\]")
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_OF_FORK = re.compile(
    r"(?:_fork_exec|_execute_child|\bfork|_launch|_spawnvef|start_new_thread|_start_joinable_thread)\b"
)
_FULL = re.compile(r"database or disk is full|No space left on device|Disk quota exceeded")


def of_exceptions(raised: Sequence[Raised]) -> Found | None:
    """The first exception of a known kind, from the last one raised to what caused it."""
    for one in raised:
        kind = _of_retries(one) if len(raised) == 1 and one.name == "tenacity.RetryError" else _kind(one)
        if isinstance(kind, Own):
            return None
        if kind is not None:
            return Found(kind, one.line)
        if _MISTAKES.fullmatch(one.name) and not one.explicit:
            return None
    return None


def _kind(one: Raised) -> Kind | Own | None:
    if _CLIENTS.match(one.name):
        return _of_client(one)
    found = environment.of_exception(one.name, one.text) or _of_system(one) or _of_socket(one)
    if found is not None or _MISTAKES.fullmatch(one.name):
        return found
    return gpu.kind_of(one.name, one.text) or _quoted(one)


def _quoted(one: Raised) -> Kind | Own | None:
    """The words of a library in an exception of the program."""
    return phrases.kind_of(one.text)


def _of_retries(one: Raised) -> Kind | None:
    """tenacity names the class of what it gave up on; that itself may be cut off."""
    gave_up = _GAVE_UP.search(one.words)
    if not gave_up:
        return None
    if _REFUSED.fullmatch(gave_up[1]):
        return Kind.SERVICE_REFUSED
    return Kind.SERVICE_FAILED if _FAILED.fullmatch(gave_up[1]) else None


def _of_client(one: Raised) -> Kind | Own:
    text = one.text
    said = phrases.kind_of(text)
    if said is not None:
        return said
    status = _STATUS_CODE.search(text)
    if status:
        return http_status.by_status(int(status[1]), text)
    if http_status.is_unpaid(text) or _NO_KEY.search(text):
        return Kind.SERVICE_REFUSED
    if _REFUSED.fullmatch(one.short):
        return Kind.SERVICE_REFUSED
    if _FAILED.fullmatch(one.short):
        return Kind.SERVICE_FAILED
    if one.short == "APIError":
        return OWN if http_status.is_wrong(text) else Kind.SERVICE_FAILED
    if one.short == "NotFoundError":
        return http_status.by_status(404, text)
    if not _BY_WORDS.fullmatch(one.short):
        return http_status.by_code(one.short, text) or OWN
    return OWN


def _of_socket(one: Raised) -> Kind | None:
    if one.name == "socket.gaierror" or one.name.startswith("ssl.SSL") or one.name == "socket.timeout":
        return Kind.SERVICE_FAILED
    if not _SOCKETS.fullmatch(one.name) or _PIPES.search(one.place):
        return None
    if _SOCKET_WORDS.search(one.words):
        return Kind.SERVICE_FAILED
    # A deadline of the program itself looks the same, but is not raised in a client.
    silent = not one.words and one.short == "TimeoutError"
    return Kind.SERVICE_FAILED if silent and _OF_CLIENT.search(one.place) else None


def _of_system(one: Raised) -> Kind | None:
    """Disks, open files, processes and threads."""
    if one.name in ("sqlite3.OperationalError", "OSError") and _FULL.search(one.words):
        return Kind.DISK_FULL
    if one.name == "RuntimeError" and one.words == "can't start new thread":
        return Kind.HOST_FAILED
    number = _ERRNO.match(one.words)
    match number and one.name in ("OSError", "BlockingIOError", "IOError") and int(number[1]):
        case 28 | 122:
            return Kind.DISK_FULL
        case 23 | 24:
            return Kind.HOST_FAILED
        case 11 | 12 if _OF_FORK.search(one.place):
            return Kind.HOST_FAILED
        case _:
            return None

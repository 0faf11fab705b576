"""Addresses of object storage, and what its library says when something is wrong, in words.

Credentials come from the environment, from a managed identity, or from `az login`, as the library `obstore` finds them. They are never
part of an address, and are cut out of what it says.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from evalfleet import config
from evalfleet.errors import ConfigError, FilesUnreachable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_FOLDER = "file://"
_RETRY: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}  # a longer outage is ours to wait for
_CLIENT: Any = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)}
_OF_CLIENT = ("allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "proxy_excludes")
_PREFIXES = (("s3", "AWS_"), ("gs", "GOOGLE_"), ("", "AZURE_"))
_CODE = re.compile(r"<Code>(.*?)</Code>")
_MESSAGE = re.compile(r"<Message>(.*?)(?:\n|</Message>)", re.DOTALL)
_SIGNED = re.compile(r"\?[^\s\"')]*")
_LONGEST = 300
_MISSING = ("NoSuchBucket", "ContainerNotFound")
_REFUSED = (
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthenticationFailed", "AuthorizationFailure", "AccessDenied"),
    *(
        "AuthorizationPermissionMismatch",
        "InvalidAuthenticationInfo",
        "Unauthenticated",
        "PermissionDenied",
        "Forbidden",
    ),
)
_SILENT = ("error sending request", "timed out", "retries")
_REMEDIES = (
    (_MISSING, "there is no such bucket or container; make it, or correct [files] url"),
    (_REFUSED, "the credentials are wrong, or do not allow this; `evalfleet doctor` tries them"),
    (_SILENT, "it does not answer"),
)


def opened(url: str) -> ObjectStore:
    """The storage at an address. Asks nothing of it yet. Raises ConfigError."""
    try:
        from obstore.store import LocalStore, from_url
    except ImportError:
        raise ConfigError("[files] url needs the extra `files`: pip install 'evalfleet[files]'.") from None
    folder = folder_of(url)
    try:
        if folder is not None:
            return LocalStore(folder, mkdir=True)
        return from_url(url, client_options=_client(url), retry_config=_RETRY)
    except Exception as error:  # noqa: BLE001 - the library has no class for what an address lacks
        raise ConfigError(f"[files] url: {url} cannot be used: {words(error)}.") from None


def _client(url: str) -> Any:
    """Our limits of time, and what the environment says: the library leaves that out where it gets options."""
    prefix = next(prefix for scheme, prefix in _PREFIXES if url.startswith(scheme))
    environ = config.environment()
    told = {key: environ[f"{prefix}{key.upper()}"] for key in _OF_CLIENT if environ.get(f"{prefix}{key.upper()}")}
    return {**_CLIENT, **{key: {"true": True, "false": False}.get(text, text) for key, text in told.items()}}


def folder_of(url: str) -> Path | None:
    """The folder that an address names; None where it is one of object storage."""
    if url.startswith(_FOLDER):
        from urllib.parse import unquote

        return Path(unquote(url.removeprefix(_FOLDER)))
    return None if "://" in url else Path(url).absolute()


def address_of(folder: Path) -> str:
    return f"{_FOLDER}{quote(str(folder.absolute()))}"


@contextmanager
def told(where: str) -> Generator[None]:
    """Turn what the library raises into FilesUnreachable. FileNotFoundError passes where only the object is missing."""
    try:
        yield
    except FilesUnreachable:
        raise
    except FileNotFoundError as error:
        if any(word in str(error) for word in _MISSING):
            raise _unreachable(where, error) from None
        raise
    except Exception as error:
        from obstore.exceptions import AlreadyExistsError, BaseError

        if isinstance(error, AlreadyExistsError) or not isinstance(error, BaseError | OSError | ValueError):
            raise
        raise _unreachable(where, error) from None


def _unreachable(where: str, error: Exception) -> FilesUnreachable:
    text = f"{type(error).__name__} {error}"
    remedy = next((remedy for marks, remedy in _REMEDIES if any(mark in text for mark in marks)), None)
    return FilesUnreachable(f"{where}: {remedy} ({words(error)})" if remedy else f"{where}: {words(error)}")


def words(error: Exception) -> str:
    """What the library says in one line, without what could be a signature."""
    text = str(error)
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        text = f"{code[1]}: {message[1].strip()}" if message is not None else code[1]
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _SIGNED.sub("?…", first.strip())[:_LONGEST].rstrip(".")

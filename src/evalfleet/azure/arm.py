"""A thin client for the parts of Azure Resource Manager whose own libraries are large and of which we need little:
networks, resource groups, lists by tag, auto-shutdown schedules.

It is built of the same parts as Microsoft's libraries, and so retries, honours `Retry-After` and polls as they do.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio
from azure.core import AsyncPipelineClient
from azure.core.exceptions import AzureError, HttpResponseError, ServiceResponseError
from azure.core.pipeline.policies import (
    AsyncHTTPPolicy,
    AsyncRetryPolicy,
    ContentDecodePolicy,
    HeadersPolicy,
    RequestIdPolicy,
    SansIOHTTPPolicy,
    UserAgentPolicy,
)
from azure.core.polling import AsyncLROPoller
from azure.core.polling.base_polling import BadStatus
from azure.core.rest import HttpRequest
from azure.mgmt.core.exceptions import ARMErrorFormat
from azure.mgmt.core.polling.async_arm_polling import AsyncARMPolling

from evalfleet.azure.error_causes import classify, facts_of, retry_after
from evalfleet.azure.settings import AzureSettings
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import MachineSpec, Offering, Progress
from evalfleet.pools.cloud.waits import waiting, waiting_for

Body = dict[str, Any]
T = TypeVar("T")
PAGES_AT_MOST = 1000
NO_CONTENT = 204
NOT_FOUND = 404
SKEW_S = 30.0  # that two clocks may differ
GROUPS_API = "2024-03-01"
LAGS = 8  # times that a group which is there is asked again, where it says that it is not: a new one takes a moment
PROVIDER_API = "2021-04-01"
REGISTER_LOOKS = 60
NOT_REGISTERED = "missingsubscriptionregistration"
_NAMESPACE = re.compile(r"namespace '([\w.]+)'")
NO_GROUP = "resourcegroupnotfound"
NO_SUBSCRIPTION = "subscriptionnotfound"


class Retries(AsyncRetryPolicy[Any, Any]):
    """The library's own, which waits as Azure asks; this one says so."""

    async def sleep(self, settings: dict[str, Any], transport: Any, response: Any = None) -> None:
        asked_s = self.get_retry_after(response) if response else None
        status = response.http_response.status_code if response else None
        why = "Azure asks for fewer requests" if status == 429 else "Azure fails to answer"
        waiting(why, asked_s or self.get_backoff_time(settings))
        await super().sleep(settings, transport, response)


class Arm:
    """GET, PUT, DELETE and lists by path. Errors are those of azure-core, with ARM's code in `.error.code`."""

    def __init__(self, settings: AzureSettings, auth: Any, *, retries: int, **transport: Any) -> None:
        policies: list[AsyncHTTPPolicy[Any, Any] | SansIOHTTPPolicy[Any, Any]] = [
            RequestIdPolicy(),
            HeadersPolicy({"Accept": "application/json"}),
            UserAgentPolicy("evalfleet"),
            ContentDecodePolicy(),
            Retries(retry_total=retries),
            auth,
        ]
        self._client: Any = AsyncPipelineClient(settings.arm_url, policies=policies, **transport)
        self._settings = settings
        self._poll_s = settings.poll_s
        self.skew_s = 0.0  # how far this machine's clock is behind Azure's

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def get(self, path: str, api: str) -> Body | None:
        """Return the resource, or None where there is none."""
        response = await self._send("GET", path, api)
        return None if response is None else cast("Body", response.http_response.json())

    async def put(self, path: str, api: str, body: Body) -> Body:
        """Make or change a resource, and wait until that is done. Saying it twice changes nothing."""
        response = await self.patient(partial(self._send, "PUT", path, api, body=body))
        return cast("Body", await self._finished(response))

    async def post(self, path: str, api: str) -> Body:
        """Ask for something that is done at once, or whose end can be seen elsewhere."""
        answer = (await self._send("POST", path, api)).http_response
        return cast("Body", answer.json()) if answer.content else {}

    async def patient(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again while the group is not found that we have made or seen: for a moment after it was made, it is not.
        And once more where the subscription had to be registered for a provider first."""
        for lag in range(LAGS):
            try:
                return await ask()
            except HttpResponseError as error:
                if code_of(error) == NOT_REGISTERED:
                    await self._register_for(error)
                elif code_of(error) != NO_GROUP or not await self.has_group():
                    raise
                else:
                    await anyio.sleep(self._poll_s * min(2**lag, 4))
        return await ask()

    async def register(self, space: str) -> bool:
        """Let the subscription use a provider; False: that is not done in time."""
        path = f"/subscriptions/{self._settings.subscription}/providers/{space}"
        await self.post(f"{path}/register", PROVIDER_API)
        waiting_for(f"the subscription is registered for {space}; that takes a minute or two")
        for _ in range(REGISTER_LOOKS):
            provider = await self.get(path, PROVIDER_API)
            if provider is not None and provider.get("registrationState") == "Registered":
                return True
            await anyio.sleep(self._poll_s)
        return False

    async def _register_for(self, error: HttpResponseError) -> None:
        """Register for the provider that a refusal names. Raises that refusal where it cannot be done."""
        named = _NAMESPACE.search(str(error.message))
        try:
            is_done = named is not None and await self.register(named[1])
        except HttpResponseError:  # we may not; what a person must do is said with the refusal itself
            is_done = False
        if not is_done:
            raise error

    async def has_group(self) -> bool:
        """Whether the resource group is there, by a list that was answered: a 404 alone does not prove that it is not."""
        listed = await self.list(
            f"/subscriptions/{self._settings.subscription}/resourcegroups", GROUPS_API, exists=True
        )
        return any(str(one["name"]).lower() == self._settings.resource_group.lower() for one in listed)

    async def is_absent(self, error: HttpResponseError) -> bool:
        """Whether a 404 says that a resource is not there. It may as well be that its group or subscription is not seen."""
        code = code_of(error)
        return code != NO_SUBSCRIPTION and (code != NO_GROUP or not await self.has_group())

    async def delete(self, path: str, api: str, query: Mapping[str, str] | None = None) -> None:
        """Delete a resource, and wait until it is gone; one that is gone already is no error."""
        response = await self._send("DELETE", path, api, query=query)
        if response is not None:
            await self._finished(response)

    async def begin_delete(self, path: str, api: str, query: Mapping[str, str] | None = None) -> bool:
        """Ask for a deletion that takes long. False: the resource is gone already."""
        response = await self._send("DELETE", path, api, query=query)
        return response is not None and response.http_response.status_code != NO_CONTENT

    async def begin_put(self, path: str, api: str, body: Body) -> Body:
        """Make or change a resource without waiting until that is done; returns it as it is now."""
        response = await self.patient(partial(self._send, "PUT", path, api, body=body))
        return cast("Body", response.http_response.json())

    async def list(
        self, path: str, api: str, query: Mapping[str, str] | None = None, *, exists: bool = False
    ) -> list[Body]:
        """Return all items of a list, over all its pages; never a part of them.

        Args:
            exists: a list that is not there is an error, and not an empty one.
        """
        found: list[Body] = []
        params: dict[str, str] = {"api-version": api, **(query or {})}
        url: str | None = path
        for _ in range(PAGES_AT_MOST):
            response = await self._request(HttpRequest("GET", url, params=params))
            if response is None:
                if exists or found:
                    raise ServiceResponseError("a list, or the next page of it, is not there")
                return found
            page = cast("Body", response.http_response.json())
            found += page["value"]
            url, params = page.get("nextLink"), {}
            if not url:
                return found
        raise ServiceResponseError(f"a list has more than {PAGES_AT_MOST} pages")

    async def _send(
        self, method: str, path: str, api: str, *, body: Body | None = None, query: Mapping[str, str] | None = None
    ) -> Any:
        version = {"api-version": api} if api else {}  # the services behind Resource Manager have it in the path
        return await self._request(HttpRequest(method, path, params={**version, **(query or {})}, json=body))

    async def _request(self, request: HttpRequest) -> Any:
        """Return the pipeline's response; None where what is asked for is not there, unless it was to be made."""
        request.url = self._client.format_url(request.url)
        response = await self._client.send_request(request, _return_pipeline_response=True)
        self._compare_clocks(response.http_response.headers.get("Date"))
        status: int = response.http_response.status_code
        if status < 400:
            return response
        error = HttpResponseError(response=response.http_response, error_format=ARMErrorFormat)
        if status == NOT_FOUND and request.method in ("GET", "DELETE") and await self.is_absent(error):
            return None
        raise error

    def _compare_clocks(self, date: str | None) -> None:
        """Every answer says what time it is there, to a second."""
        try:
            skew_s = parsedate_to_datetime(date).timestamp() - time.time() if date else 0.0
        except ValueError:
            return
        self.skew_s = skew_s if abs(skew_s) > SKEW_S else 0.0

    async def _finished(self, response: Any) -> Any:
        polling: Any = AsyncARMPolling(self._poll_s)
        poller: Any = AsyncLROPoller(self._client, response, _content, polling)
        return await poller.result()


async def progress_of(
    ask: Callable[[], Awaitable[Any]], pause_s: float, offering: MachineSpec | Offering | None = None
) -> Progress:
    """Look once how far an operation is.

    Args:
        ask: returns the poller of the operation.
        pause_s: until the next look, where Azure names no time.
        offering: what was asked for, for the message of a failure.
    """
    region, size, spot = (offering.region, offering.size, offering.spot) if offering else ("", "", False)
    async with judged(region, size, spot=spot):
        poller = await ask()
        method = poller.polling_method()
        if not method.finished() and not await _looked(method):
            return Progress(done=True, forgotten=True)
        if not method.finished():
            asked_s = retry_after(method._pipeline_response.http_response.headers)
            return Progress(done=False, look_again_s=asked_s or pause_s)
    try:
        await poller.result()
    except HttpResponseError as error:
        # Not there: deleted meanwhile, by an eviction or by another hand; or too new to be seen. A view will say which.
        if error.status_code != NOT_FOUND:
            return Progress(done=True, problem=classify(facts_of(error), region=region, size=size, spot=spot))
    return Progress(done=True)


async def _looked(method: Any) -> bool:
    """Ask once how an operation is; False where Azure does not know it any more."""
    try:
        await method.update_status()
    except BadStatus as error:
        response = method._pipeline_response.http_response  # the library keeps it to itself, and tells nothing else
        if response.status_code == NOT_FOUND:
            return False
        raise HttpResponseError(response=response, error_format=ARMErrorFormat) from error
    return True


@asynccontextmanager
async def judged(region: str = "", size: str = "", *, spot: bool = False) -> AsyncGenerator[None]:
    """Turn an error of Azure's libraries into a refusal that says what to do."""
    try:
        yield
    except AzureError as error:
        raise Refusal(classify(facts_of(error), region=region, size=size, spot=spot)) from error


def code_of(error: BaseException) -> str:
    """Azure's word for an error, in lower case."""
    return str(getattr(getattr(error, "error", None), "code", None) or "").lower()


def _content(response: Any) -> Any:
    """The resource at the end of an operation; some end without one."""
    answer = response.http_response
    return answer.json() if answer.content else {}

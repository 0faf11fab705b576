"""The clients of Azure, made from settings. This module imports Azure's libraries; import it only where they are used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio

from evalfleet.azure.settings import AUTHORITIES, AzureSettings
from evalfleet.errors import InputError

try:
    from azure.core.pipeline import PipelineRequest
    from azure.core.pipeline.policies import AsyncBearerTokenCredentialPolicy, AsyncHTTPPolicy, SansIOHTTPPolicy

    from evalfleet.azure.arm import Arm, Retries

    if find_spec("azure.mgmt.compute") is None:
        raise ImportError("azure.mgmt.compute")
except ImportError:
    raise InputError("Azure needs more packages; install them with: pip install 'evalfleet[azure]'") from None

if TYPE_CHECKING:
    from azure.batch.aio import BatchClient
    from azure.mgmt.compute.aio import ComputeManagementClient
    from azure.monitor.querymetrics.aio import MetricsClient

RETRIES = 3  # of one request, by the library itself; our own plans go on from there


class Clients:
    """What the azure layer talks through."""

    def __init__(
        self,
        settings: AzureSettings,
        arm: Arm,
        credential: Any,
        make_compute: Callable[[], ComputeManagementClient],
        make_batch: Callable[[str], BatchClient],
        make_metrics: Callable[[str], MetricsClient],
    ) -> None:
        """
        Args:
            make_batch: makes the client of the Batch account at an address.
            make_metrics: makes Azure's client for the metrics of a region. Raises InputError where its library is missing.
        """
        self.settings = settings
        self.arm = arm
        self.credential = credential  # what signs us in
        self._make_compute = make_compute
        self.make_batch = make_batch
        self.metrics = make_metrics

    @cached_property
    def compute(self) -> ComputeManagementClient:
        """Azure's client for machines, made at its first use: its library takes half a second to import."""
        return self._make_compute()


@asynccontextmanager
async def opened(settings: AzureSettings) -> AsyncGenerator[Clients]:
    """Open the clients, and close them at the end. Signing in happens at the first request."""
    stack = AsyncExitStack()
    try:
        credential = await _credential(settings, stack)
        auth = _signed(credential, settings.scope) if settings.signed else _Unsigned()

        def make_compute() -> ComputeManagementClient:
            from azure.mgmt.compute.aio import ComputeManagementClient

            client = ComputeManagementClient(
                credential,
                settings.subscription,
                base_url=settings.arm_url,
                polling_interval=settings.poll_s,
                retry_policy=Retries(retry_total=RETRIES),
                authentication_policy=auth,
                **_trust(settings),
            )
            stack.push_async_callback(client.close)
            return client

        def make_batch(endpoint: str) -> BatchClient:
            from azure.batch.aio import BatchClient

            policy = _signed(credential, settings.batch_scope) if settings.signed else _Unsigned()
            client = BatchClient(
                endpoint,
                credential,
                authentication_policy=policy,
                retry_policy=Retries(retry_total=RETRIES),
                **_trust(settings),
            )
            stack.push_async_callback(client.close)
            return client

        def make_metrics(region: str) -> MetricsClient:
            try:
                from azure.monitor.querymetrics.aio import MetricsClient
            except ImportError:
                raise InputError(
                    "metrics of machines need one more package; install it with: pip install 'evalfleet[azure]'"
                ) from None
            url, scope = settings.monitor(region)
            client = MetricsClient(
                url,
                credential,
                retry_policy=Retries(retry_total=RETRIES),
                authentication_policy=_signed(credential, scope) if settings.signed else _Unsigned(),
                **_trust(settings),
            )
            stack.push_async_callback(client.close)
            return client

        arm = Arm(settings, auth, retries=RETRIES, **_trust(settings))
        await stack.enter_async_context(arm)
        yield Clients(settings, arm, credential, make_compute, make_batch, make_metrics)
    finally:
        with anyio.CancelScope(shield=True):  # who is cancelled closes its connections all the same
            await stack.aclose()


def _signed(credential: Any, scope: str) -> SansIOHTTPPolicy[Any, Any] | AsyncHTTPPolicy[Any, Any]:
    policy: AsyncBearerTokenCredentialPolicy[Any, Any] = AsyncBearerTokenCredentialPolicy(credential, scope)
    return policy


async def _credential(settings: AzureSettings, stack: AsyncExitStack) -> Any:
    if not settings.signed:
        return object()  # the library wants one, and leaves it alone: our own policy signs
    from azure.identity.aio import DefaultAzureCredential

    # Another authority than Microsoft's is in no list of those that can be trusted: who names it vouches for it.
    own: dict[str, Any] = {"authority": settings.authority} if settings.authority else {}
    if settings.authority and settings.authority not in AUTHORITIES:
        own["disable_instance_discovery"] = True
    return await stack.enter_async_context(DefaultAzureCredential(**own, **_trust(settings)))


def _trust(settings: AzureSettings) -> dict[str, Any]:
    return {"connection_verify": settings.certificate} if settings.certificate else {}


class _Unsigned(SansIOHTTPPolicy[Any, Any]):
    """Stands for signing in where the other side does not ask for it, and lets plain HTTP pass."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        request.http_request.headers["Authorization"] = "Bearer none"

"""Resource providers: services that a subscription must be registered for before it may make anything of them."""

from __future__ import annotations

from typing import Any

from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer
from evalfleet.emulator.context import EmulatorContext

SPACES = (
    *("Microsoft.Batch", "Microsoft.Compute", "Microsoft.DevTestLab", "Microsoft.MachineLearningServices"),
    *("Microsoft.Network", "Microsoft.Resources"),
)


def require_registered(world: EmulatorContext, call: Call) -> None:
    """Refuse to make something of a provider that is not registered."""
    space = call.target.kind.partition("/")[0]
    if call.method == "PUT" and space in world.unregistered:
        said = (
            f"The subscription is not registered to use namespace '{space}'. See https://aka.ms/rps-not-found for how to "
            "register subscriptions."
        )
        raise ArmError(409, "MissingSubscriptionRegistration", said)


class Providers:
    """Microsoft.Resources: providers. All are registered, but for those that the scenario says are not."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world

    def routes(self) -> Routes:
        return {("GET", "providers", ""): self._get, ("POST", "providers", "register"): self._register}

    async def _get(self, call: Call) -> Any:
        return answer(self._shown(call))

    async def _register(self, call: Call) -> Any:
        await self._world.meet("provider.register", call.attributes())
        space = call.target.name.lower()
        if self._world.unregistered.get(space) == "NotRegistered":
            self._world.unregistered[space] = "Registering"
            self._world.tasks.start_soon(self._registered, space)
        return answer(self._shown(call))

    async def _registered(self, space: str) -> None:
        await self._world.clock.sleep(self._world.times.register)
        self._world.unregistered.pop(space, None)
        self._world.journal.tell("provider.registered", space)

    def _shown(self, call: Call) -> Body:
        name = next((space for space in SPACES if space.lower() == call.target.name.lower()), None)
        if name is None:
            said = f"The resource namespace '{call.target.name}' is invalid."
            raise ArmError(404, "InvalidResourceNamespace", said)
        return {
            "id": f"/subscriptions/{call.target.subscription}/providers/{name}",
            "namespace": name,
            "registrationPolicy": "RegistrationRequired",
            "registrationState": self._world.unregistered.get(name.lower(), "Registered"),
            "resourceTypes": [],
        }

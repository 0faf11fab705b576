"""How many nodes a pool has: resizes, their errors, and autoscale formulas."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from evalfleet.azure.batch.duration import seconds
from evalfleet.emulator.arm.protocol import Never
from evalfleet.emulator.batch.errors import BatchError
from evalfleet.emulator.batch.formula import FormulaError, evaluate
from evalfleet.emulator.batch.nodes import Nodes
from evalfleet.emulator.batch.records import DEDICATED, LOW_PRIORITY, Account, Node, Pool
from evalfleet.emulator.clock import iso
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.faults import error_of

FORMULA_EVERY_S = 30.0  # a formula cannot be set more often
LEAST_S = 0.02  # between two evaluations, of this machine's time
_QUOTAS = {
    True: ("AccountCoreQuotaReached", "The specified account has reached core quota."),
    False: ("AccountLowPriorityCoreQuotaReached", "The specified account has reached low priority core quota."),
}


class Scaling:
    def __init__(self, world: EmulatorContext, nodes: Nodes) -> None:
        self._world = world
        self._nodes = nodes

    def resize(self, account: Account, pool: Pool, targets: Mapping[str, int], on_removal: str) -> None:
        """Set out for another number of nodes."""
        for name in (DEDICATED, LOW_PRIORITY):
            pool.body[name] = int(targets.get(name, pool.body.get(name) or 0))
        pool.on_removal = on_removal
        self.begin(account, pool)

    def begin(self, account: Account, pool: Pool) -> None:
        pool.resize += 1
        pool.errors = []
        self._enter(pool, "resizing")
        self._world.tasks.start_soon(self._follow, account, pool, pool.resize)

    def _enter(self, pool: Pool, state: str) -> None:
        pool.allocation, pool.allocated_at = state, self._world.clock.now()
        now = {"dedicated": pool.body.get(DEDICATED) or 0, "low_priority": pool.body.get(LOW_PRIORITY) or 0}
        self._world.journal.tell(f"pool.{state}", pool.id, **now)

    async def _follow(self, account: Account, pool: Pool, number: int) -> None:
        world = self._world
        attributes = {"name": pool.id, "size": pool.body["vmSize"], "location": account.region}
        grows = any((pool.body.get(name) or 0) > len(_staying(pool, dedicated)) for name, dedicated in _KINDS)
        fault = world.fault_of("batch.resize", attributes) if grows else None
        await world.clock.sleep(world.times.network)
        error = None if fault is None else error_of(fault, attributes)
        if isinstance(error, Never):
            return  # it is resizing for ever
        if pool.resize != number:
            return
        for name, dedicated in _KINDS:
            if error is not None:
                pool.errors.append(_resize_error(error.code, error.message))
                break
            self._grow(account, pool, pool.body.get(name) or 0, dedicated=dedicated)
        for name, dedicated in _KINDS:
            await self._shrink(pool, number, pool.body.get(name) or 0, dedicated=dedicated)
        if pool.resize == number and pool.state == "active":
            self._enter(pool, "steady")

    def _grow(self, account: Account, pool: Pool, target: int, *, dedicated: bool) -> None:
        cores = self._world.skus.find(pool.body["vmSize"]).vcpus
        limit = account.dedicated_cores if dedicated else account.low_priority_cores
        while len(_staying(pool, dedicated)) < target:
            used = sum(
                len(each.of_kind(dedicated=dedicated)) * self._world.skus.find(each.body["vmSize"]).vcpus
                for each in account.pools.values()
            )
            if used + cores > limit:
                pool.errors.append(_resize_error(*_QUOTAS[dedicated]))
                return
            self._nodes.add(pool, dedicated=dedicated)

    async def _shrink(self, pool: Pool, number: int, target: int, *, dedicated: bool) -> None:
        """Idle nodes go first."""
        staying = _staying(pool, dedicated)
        extra = sorted(staying, key=lambda node: (len(node.tasks), node.state in ("idle", "running"), -node.made_at))
        for node in extra[: max(0, len(staying) - target)]:
            node.leaving = True
            if node.tasks and pool.on_removal == "taskcompletion":
                self._world.tasks.start_soon(self._remove_later, pool, node)
            else:
                await self._nodes.remove(node)

    async def _remove_later(self, pool: Pool, node: Node) -> None:
        while node.tasks and node.id in pool.nodes:
            await pool.freed.wait()
        if node.id in pool.nodes:
            await self._nodes.remove(node)

    async def remove(self, pool: Pool, names: list[str]) -> None:
        """Take nodes out of the pool, and lower its target by as many."""
        for name in names:
            node = pool.nodes.get(name)
            if node is not None and not node.leaving:
                node.leaving = True
                target = DEDICATED if node.dedicated else LOW_PRIORITY
                pool.body[target] = max(0, (pool.body.get(target) or 0) - 1)
                await self._nodes.remove(node)
        if pool.state == "active":
            self._enter(pool, "steady")

    # Formulas

    def enable(self, account: Account, pool: Pool, formula: str | None, interval: str | None) -> None:
        """Follow a formula from now on. Raises BatchError."""
        now = self._world.clock.elapsed()
        if pool.formula_at is not None and self._world.clock.speed and now - pool.formula_at < FORMULA_EVERY_S:
            said = "Autoscale was enabled for this pool less than 30 seconds ago."
            raise BatchError(409, "AutoScaleTooManyRequestsToEnable", said)
        formula = formula or str(pool.body.get("autoScaleFormula") or "")
        self.evaluated(formula)
        pool.formula_at = now
        pool.formula += 1
        pool.body |= {"enableAutoScale": True, "autoScaleFormula": formula}
        pool.body["autoScaleEvaluationInterval"] = interval or pool.body.get("autoScaleEvaluationInterval") or "PT15M"
        self._apply(account, pool)
        self._world.tasks.start_soon(self._again, account, pool, pool.formula)

    def disable(self, pool: Pool) -> None:
        pool.formula += 1
        pool.body["enableAutoScale"] = False
        for name in ("autoScaleFormula", "autoScaleEvaluationInterval"):
            pool.body.pop(name, None)

    def evaluated(self, formula: str) -> dict[str, Any]:
        try:
            return evaluate(formula, self._world.clock.now())
        except FormulaError as error:
            raise BatchError(400, "AutoScalingFormulaSyntaxError", f"The formula is invalid: {error}.") from None

    async def _again(self, account: Account, pool: Pool, number: int) -> None:
        interval_s = seconds(pool.body["autoScaleEvaluationInterval"])
        while True:
            await asyncio.sleep(max(LEAST_S, self._world.clock.real(interval_s)))
            if pool.formula != number or pool.state != "active":
                return
            self._apply(account, pool)

    def _apply(self, account: Account, pool: Pool) -> None:
        found = self.evaluated(pool.body["autoScaleFormula"])
        targets = {
            DEDICATED: int(found.get("$TargetDedicatedNodes", found.get("$TargetDedicated", 0))),
            LOW_PRIORITY: int(found.get("$TargetLowPriorityNodes", 0)),
        }
        told = "; ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in found.items()
        )
        pool.run = {"timestamp": iso(self._world.clock.now()), "results": told}
        is_same = all((pool.body.get(name) or 0) == wanted for name, wanted in targets.items())
        has_all = all(len(_staying(pool, dedicated)) == (pool.body.get(name) or 0) for name, dedicated in _KINDS)
        if not is_same or (pool.allocation == "steady" and not has_all):
            self.resize(account, pool, targets, str(found.get("$NodeDeallocationOption", "requeue")))


_KINDS = ((DEDICATED, True), (LOW_PRIORITY, False))


def _staying(pool: Pool, dedicated: bool) -> list[Node]:
    return [node for node in pool.of_kind(dedicated=dedicated) if not node.leaving]


def _resize_error(code: str, message: str) -> dict[str, Any]:
    return {"code": code, "message": message, "values": [{"name": "RequestId", "value": str(uuid.uuid4())}]}

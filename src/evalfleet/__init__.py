"""evalfleet runs hundreds of long, flaky, expensive tasks on a fleet of machines, and keeps every result.

The names below are the public Python interface. They are loaded when first used, so that ``import evalfleet``
and the command line's start cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalfleet.api import (
        Part,
        RunHandle,
        StudyHandle,
        Task,
        TaskResult,
        import_results,
        list_controllers,
        list_runs,
        list_studies,
        open_run,
        open_study,
        submit,
        submit_benchmark,
        submit_study,
    )
    from evalfleet.api.gpus import GpuPool
    from evalfleet.api.housekeeping import backup, prune, restore
    from evalfleet.api.plans import list_plans, plan, plan_async, show_plan
    from evalfleet.api.pools import PoolHandle, create_pool, list_pools, open_pool
    from evalfleet.api.shares import list_shares, remove_share, set_share
    from evalfleet.api.users import add_user, audit_log, list_users, remove_user, set_user

    __version__: str

__all__ = [
    "GpuPool",
    "Part",
    "PoolHandle",
    "RunHandle",
    "StudyHandle",
    "Task",
    "TaskResult",
    "__version__",
    "add_user",
    "audit_log",
    "backup",
    "create_pool",
    "import_results",
    "list_controllers",
    "list_plans",
    "list_pools",
    "list_runs",
    "list_shares",
    "list_studies",
    "list_users",
    "open_pool",
    "open_run",
    "open_study",
    "plan",
    "plan_async",
    "prune",
    "remove_share",
    "remove_user",
    "restore",
    "set_share",
    "set_user",
    "show_plan",
    "submit",
    "submit_benchmark",
    "submit_study",
]

_POOLS = dict.fromkeys(("PoolHandle", "create_pool", "list_pools", "open_pool"), "evalfleet.api.pools")
_PLANS = dict.fromkeys(("list_plans", "plan", "plan_async", "show_plan"), "evalfleet.api.plans")
_HOUSEKEEPING = dict.fromkeys(("backup", "prune", "restore"), "evalfleet.api.housekeeping")
_USERS = dict.fromkeys(("add_user", "audit_log", "list_users", "remove_user", "set_user"), "evalfleet.api.users")
_SHARES = dict.fromkeys(("list_shares", "remove_share", "set_share"), "evalfleet.api.shares")
_HOMES = (
    dict.fromkeys(__all__, "evalfleet.api")
    | _POOLS
    | _PLANS
    | _USERS
    | _HOUSEKEEPING
    | _SHARES
    | {"GpuPool": "evalfleet.api.gpus"}
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from evalfleet.version import version

        value: Any = version()
    elif name == "errors":
        from importlib import import_module

        value = import_module("evalfleet.errors")
    elif name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

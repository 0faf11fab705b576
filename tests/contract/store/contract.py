"""What every store must do. Subclass `StoreContract` in a test module and give it two fixtures::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def clock(self) -> FakeClock: ...

        @pytest.fixture
        def store(self, clock: FakeClock) -> Iterator[Store]:  # empty, measured by `clock`
            ...

A store that several processes can open also gives `another`: a second instance of the same store. Without it the tests
of two controllers are skipped.
"""

from __future__ import annotations

from tests.contract.store.access import AccessContract
from tests.contract.store.attempts import AttemptContract
from tests.contract.store.daemon import DaemonContract
from tests.contract.store.devices import DeviceContract
from tests.contract.store.gpus import GpuContract
from tests.contract.store.hosts import HostContract
from tests.contract.store.loads import LoadContract
from tests.contract.store.plans import PlanContract
from tests.contract.store.pools import PoolContract
from tests.contract.store.queries import ReadingContract
from tests.contract.store.requests import SteeringContract
from tests.contract.store.retention import RetentionContract
from tests.contract.store.runs import RunContract
from tests.contract.store.shares import ShareContract
from tests.contract.store.tiers import TierContract

from evalfleet.testing.database_contract import DatabaseContract


class StoreContract(
    DatabaseContract,
    RunContract,
    AttemptContract,
    DeviceContract,
    GpuContract,
    SteeringContract,
    ReadingContract,
    PoolContract,
    HostContract,
    AccessContract,
    DaemonContract,
    LoadContract,
    PlanContract,
    TierContract,
    RetentionContract,
    ShareContract,
):
    """All promises of `evalfleet.store.store.Store` that one store can show."""

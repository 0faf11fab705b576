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

from evalfleet.testing.store.access import AccessContract
from evalfleet.testing.store.attempts import AttemptContract
from evalfleet.testing.store.daemon import DaemonContract
from evalfleet.testing.store.database import DatabaseContract
from evalfleet.testing.store.devices import DeviceContract
from evalfleet.testing.store.gpus import GpuContract
from evalfleet.testing.store.hosts import HostContract
from evalfleet.testing.store.loads import LoadContract
from evalfleet.testing.store.pools import PoolContract
from evalfleet.testing.store.queries import ReadingContract
from evalfleet.testing.store.requests import SteeringContract
from evalfleet.testing.store.runs import RunContract


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
):
    """All promises of `evalfleet.store.store.Store` that one store can show."""

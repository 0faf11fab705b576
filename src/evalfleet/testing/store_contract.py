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

from evalfleet.testing.store_contract_access import AccessContract
from evalfleet.testing.store_contract_attempts import AttemptContract
from evalfleet.testing.store_contract_devices import DeviceContract
from evalfleet.testing.store_contract_gpus import GpuContract
from evalfleet.testing.store_contract_hosts import HostContract
from evalfleet.testing.store_contract_loads import LoadContract
from evalfleet.testing.store_contract_pools import PoolContract
from evalfleet.testing.store_contract_reading import ReadingContract
from evalfleet.testing.store_contract_runs import RunContract
from evalfleet.testing.store_contract_steering import SteeringContract


class StoreContract(
    RunContract,
    AttemptContract,
    DeviceContract,
    GpuContract,
    SteeringContract,
    ReadingContract,
    PoolContract,
    HostContract,
    AccessContract,
    LoadContract,
):
    """All promises of `evalfleet.store.base.Store` that one store can show."""

"""Lists of Azure: all of them or an error, never a part."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import ServiceResponseError

from evalfleet.azure.arm import Arm


class Answer:
    def __init__(self, body: dict[str, Any]) -> None:
        self.http_response = self
        self._body = body

    def json(self) -> dict[str, Any]:
        return self._body


def listing(*answers: dict[str, Any] | None) -> Arm:
    """A client whose questions are answered in this order; None: not there."""
    arm = object.__new__(Arm)
    left = list(answers)

    async def request(_request: Any) -> Answer | None:
        found = left.pop(0)
        return None if found is None else Answer(found)

    arm._request = request  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    return arm


FIRST: dict[str, Any] = {"value": [1, 2], "nextLink": "https://cloud/next"}


async def test_all_pages_are_one_list():
    assert await listing(FIRST, {"value": [3]}).list("/vms", "2024-01-01") == [1, 2, 3]


async def test_what_is_not_there_is_empty_unless_it_must_be():
    assert await listing(None).list("/vms", "2024-01-01") == []
    with pytest.raises(ServiceResponseError):
        await listing(None).list("/vms", "2024-01-01", exists=True)


async def test_a_list_that_breaks_off_is_no_list():
    with pytest.raises(ServiceResponseError):
        await listing(FIRST, None).list("/vms", "2024-01-01")


async def test_a_list_without_end_is_no_list():
    with pytest.raises(ServiceResponseError):
        await listing(*[FIRST] * 10_000).list("/vms", "2024-01-01")

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet import duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90", 90.0),
        (90, 90.0),
        (1.5, 1.5),
        ("90s", 90.0),
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("2d", 172800.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        (" 10s ", 10.0),
    ],
)
def test_durations(value: str | float, seconds: float):
    assert duration.parse(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "x", "1x", "m", "15 parsecs", "1m1h", "1s1s", "0", "0s", "-1s", "1e3", "٣s", "inf", "366d", "1,5s"),
        *(0, -1, 1e12, float("nan"), float("inf")),
    ],
)
def test_bad_durations(value: str | float):
    with pytest.raises(ValueError, match=r"duration|longer"):
        duration.parse(value)


@given(st.integers(min_value=1, max_value=365 * 86_400_000))
def test_durations_round_trip(milliseconds: int):
    assert duration.parse(duration.show(milliseconds / 1000)) == milliseconds / 1000


@given(st.text())
def test_any_text_is_a_duration_or_refused_with_advice(text: str):
    try:
        assert duration.parse(text) > 0
    except ValueError as error:
        assert "duration" in str(error) or "longer" in str(error)


def test_show():
    assert [duration.show(s) for s in (0, 0.25, 59, 5400, 86_401)] == ["0s", "250ms", "59s", "1h30m", "1d1s"]

"""The text of ``messageDelayLevel``."""

from __future__ import annotations

import pytest

from ledgermq.model.config.settings import StoreSection
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import ConfigError


def test_the_default_has_rocketmqs_eighteen_levels() -> None:
    levels = delay_levels_ms(StoreSection().message_delay_level)

    assert len(levels) == 19
    assert (levels[0], levels[1], levels[4], levels[18]) == (0, 1_000, 30_000, 7_200_000)


def test_a_day_is_a_unit() -> None:
    assert delay_levels_ms("2d") == (0, 172_800_000)


@pytest.mark.parametrize("text", ["1x", "s", "1.5s", "٣s", "-1s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="message_delay_level"):
        delay_levels_ms(f"1s {text}")

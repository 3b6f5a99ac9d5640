"""A start that takes longer than systemd waits for one, and asks for the time while it goes on."""

from __future__ import annotations

import pytest

from tests.boot.conftest import LONG, UNIT
from tests.boot.machine import Machine
from tests.boot.messages import status

pytestmark = [pytest.mark.slow, pytest.mark.boot, LONG]

STORE = "/var/lib/ledgermq"
LOG_BYTES = 400_000_000
FORGOTTEN = f"""
rm -rf {STORE}/consumequeue {STORE}/index {STORE}/checkpoint
rm -f {STORE}/ledgermq/log-checkpoint {STORE}/ledgermq/dispatch-checkpoint
"""
"""What is made from the log: a start without it looks at every message."""


def fill(machine: Machine) -> None:
    """Small messages, hundreds of megabytes of them."""

    def is_full() -> bool:
        machine.run("ledgermq bench produce --topic many --size 10 --batch 500 --seconds 3")
        written = status(machine)["cursors"]["written"]["position"]
        return bool(written >= LOG_BYTES)

    def is_dispatched() -> bool:
        cursors = status(machine)["cursors"]
        return bool(cursors["dispatched"] == cursors["written"]["position"])

    machine.wait_until(is_full, f"{LOG_BYTES} bytes of messages", timeout_s=300)
    # What a topic has is told from its queues.
    machine.wait_until(is_dispatched, "all messages to be in their queues", timeout_s=300)


def start_after_a_death(machine: Machine) -> float:
    """Seconds from the start to READY, by systemd's clock."""
    machine.run(f"systemctl kill --kill-whom=all --signal=KILL {UNIT} && systemctl stop {UNIT}")
    machine.run(f"systemctl reset-failed {UNIT}; {FORGOTTEN}")
    machine.run(f"systemctl start {UNIT}", timeout_s=300)
    assert machine.unit(UNIT, "ActiveState") == "active"
    since, ready = (
        int(machine.unit(UNIT, f"{name}TimestampMonotonic"))
        for name in ("InactiveExit", "ActiveEnter")
    )
    return (ready - since) / 1_000_000


def test_a_recovery_may_take_longer_than_systemd_waits_for_a_start(machine: Machine) -> None:
    fill(machine)
    messages = machine.output("ledgermq topic show many --json")
    took_s = start_after_a_death(machine)
    # Shorter than that by far, for the second time more is in the page cache.
    timeout_s = took_s / 3
    machine.run(
        f"mkdir -p /run/systemd/system/{UNIT}.d && "
        f"printf '[Service]\\nTimeoutStartSec={timeout_s:.3f}\\n' "
        f">/run/systemd/system/{UNIT}.d/timeout.conf && systemctl daemon-reload"
    )
    again_s = start_after_a_death(machine)

    assert again_s > timeout_s, (took_s, again_s)
    assert machine.unit(UNIT, "NRestarts") == "0"
    assert machine.output("ledgermq topic show many --json") == messages

"""README's figures: each is the newest result of the benchmark that measures it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
KIB = "1024 byte bodies"
SPEED = f"{KIB}, messages per second"


def median(name: str, *path: str) -> float:
    """That of a measured quantity, in the unit of its benchmark."""
    found: Any = json.loads((RESULTS / f"{name}.json").read_text())
    for key in path:
        found = found[key]
    return float(found["median"])


def thousands(number: float, digits: int = 3) -> str:
    """As README writes a rate, rounded to so many digits."""
    places = len(str(round(number))) - digits
    return f"{round(number / 10**places) * 10**places:,}"


def rate(name: str, *path: str, digits: int = 3) -> str:
    """A rate of messages as README writes it."""
    return thousands(median(name, *path), digits)


def wait(name: str, *path: str) -> str:
    """A time, or a share, with two places as README writes it."""
    return f"{median(name, *path):.2f}"


def single(system: str) -> str:
    """How long one message takes at one node, in milliseconds."""
    return wait("produce_latency", KIB, system, "p50_ms")


LINES_MAX = 90
MEMORY, DISK = "ledgermq majority-memory", "ledgermq majority-fsync"
NATS, NATS_DISK = "nats R1 sync, default", "nats R1 sync, sync_interval always"
ONE = "1 in flight, p50 ms"

SENTENCES = {
    "batches in memory": lambda: (
        f"| {rate('produce_throughput', SPEED, MEMORY)} messages/s "
        f"| {rate('produce_throughput', SPEED, 'nats R1 async, default')} (default) |"
    ),
    "batches on disk": lambda: (
        f"| {rate('produce_throughput', SPEED, DISK)} messages/s | "
        f"{rate('produce_throughput', SPEED, 'nats R1 async, sync_interval always', digits=2)} (`s"
    ),
    "one message": lambda: (
        f"| p50 {single(MEMORY)} / {single(DISK)} ms | {single(NATS)} / {single(NATS_DISK)} ms |"
    ),
    "idle": lambda: (
        f"| {median('idle', 'pss_mib_all_processes'):.0f} MiB, "
        f"{wait('idle', 'cpu_percent_of_one_core')} % of a core |"
    ),
    "a killed writer": lambda: (
        f"| {wait('recovery_after_kill', 'majority-fsync', 'writer', 'next_acknowledgement_s')} s |"
    ),
    "a group": lambda: (
        f"takes {wait('group_produce', MEMORY, ONE)} ms for one message in memory and "
        f"{rate('group_produce', MEMORY, 'batches, messages/s')} messages/s in batches (NATS R3: "
        f"{wait('group_produce', 'nats R3, default', ONE)} ms, "
        f"{rate('group_produce', 'nats R3, default', 'batches, messages/s')} messages/s; RocketMQ "
        f"with DLedger: {wait('group_produce', 'rocketmq 4.9.4, dledger', ONE)} ms, "
        + rate("group_produce", "rocketmq 4.9.4, dledger", "batches of 256, messages/s", digits=2)
        + " messages/s)"
    ),
}


@pytest.mark.parametrize("of", SENTENCES)
def test_readme_says_the_newest_result(of: str) -> None:
    text = " ".join((ROOT / "README.md").read_text().split())

    assert SENTENCES[of]() in text


def test_readme_is_read_in_some_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LINES_MAX

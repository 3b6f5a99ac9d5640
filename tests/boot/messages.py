"""Messages of a node on a machine, sent and received with the command that the package installs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.boot.machine import Machine

TOPIC = "orders"


def send(machine: Machine, first: int, count: int, *, address: str = "ipc:///run/ledgermq") -> None:
    """Send the numbers from ``first`` on; all are acknowledged."""
    numbers = f"seq {first} {first + count - 1}"
    machine.run(f"{numbers} | ledgermq send {TOPIC} - --timeout 60 --address '{address}'")


def received(machine: Machine) -> Counter[str]:
    """How often each message is in the topic."""
    return Counter(machine.output(f"ledgermq receive {TOPIC} --timeout 60").split())


def expected(count: int) -> Counter[str]:
    """Each of the numbers from 1 on once."""
    return Counter(map(str, range(1, count + 1)))


def status(machine: Machine, config: str = "/etc/ledgermq/ledgermq.toml") -> dict[str, Any]:
    """What ``ledgermq status`` tells to programs, once the node is ready."""
    command = f"ledgermq status --config {config} --json --wait-ready 60"
    answer: dict[str, Any] = json.loads(machine.output(command))
    return answer


def processes(machine: Machine) -> dict[str, int]:
    """Ids of the node's processes in the machine, by role."""
    return {one["role"]: one["pid"] for one in status(machine)["processes"]}

"""A network of hosts whose packets this program carries, or does not; a script.

    carrier.py HOSTS NETWORK

Each host is a network namespace with one TUN device; host k has the address NETWORK.(k + 1). The
namespaces have no names: they are there as long as somebody is in them or has them open, and
this program has. Its first line tells the descriptors by which others enter them. Then each line
of its input, a JSON list of `[source, target, way]`, says how it carries from now on; pairs that
are not named are whole. It answers each with how many packets it has carried, and how many not.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
TUN_WITHOUT_HEADER = 0x1001
DEVICE = "t0"
MTU = 9_000
PACKET_SIZE_MAX = 65_536
AT_ONCE = 64
"""Packets that are read of one device before the others get their turn."""

HEADERS_SIZE = 40
"""Of IPv4 and TCP at least: what is corrupted lies behind, or routes and addresses would change."""

IP_VERSION_4, IP_HEADER_SIZE = 4, 20


@dataclass(frozen=True, slots=True)
class Way:
    """What happens to packets from one host to another.

    Attributes:
        loss, duplicates, corrupt: shares of the packets, 0 to 1.
        delay_s: each packet is late by that,
        jitter_s: and by a drawn part of this, so that packets overtake one another.
    """

    is_cut: bool = False
    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    duplicates: float = 0.0
    corrupt: float = 0.0

    def with_other(self, other: Way) -> Way:
        """Both at once: the worse of each."""
        return Way(
            self.is_cut or other.is_cut,
            *(
                max(getattr(self, name), getattr(other, name))
                for name in ("loss", "delay_s", "jitter_s", "duplicates", "corrupt")
            ),
        )


class Carrier:
    """All hosts and ways."""

    def __init__(self, hosts: int, network: str, seed: int) -> None:
        self._chance = random.Random(seed)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._hosts = {
            bytes(int(part) for part in f"{network}.{host + 1}".split(".")): host
            for host in range(hosts)
        }
        self.namespaces: list[int] = []
        self._devices: list[int] = []
        home = _own_namespace()
        for host in range(hosts):
            self._make(f"{network}.{host + 1}/24")
        self._checked(self._libc.setns(home, CLONE_NEWNET))
        os.close(home)
        self._ways: dict[tuple[int, int], Way] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()
        self.carried = 0
        self.lost = 0

    def run(self) -> None:
        """Carry until nobody gives orders any more."""
        poll = select.epoll()
        for device in self._devices:
            poll.register(device, select.EPOLLIN)
        orders = sys.stdin.fileno()
        poll.register(orders, select.EPOLLIN)
        while True:
            wait_s = -1.0
            if self._late:
                wait_s = max(0.0, self._late[0][0] - time.monotonic())
            ready = poll.poll(wait_s)
            self._deliver_late()
            # What was sent before an order goes as it was said before.
            for source in range(len(self._devices)):
                self._carry_from(source)
            if any(descriptor == orders for descriptor, _ in ready) and not self._obey():
                return

    def _make(self, address: str) -> None:
        self._checked(self._libc.unshare(CLONE_NEWNET))
        self.namespaces.append(_own_namespace())
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", DEVICE.encode(), TUN_WITHOUT_HEADER))
        self._devices.append(device)
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", address, "dev", DEVICE),
            ("link", "set", DEVICE, "mtu", str(MTU), "up"),
        ):
            subprocess.run(["ip", *words], check=True)

    def _checked(self, status: int) -> None:
        if status:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _obey(self) -> bool:
        line = sys.stdin.readline()
        if not line:
            return False
        self._ways = {(source, target): Way(**way) for source, target, way in json.loads(line)}
        print(json.dumps([self.carried, self.lost]), flush=True)
        return True

    def _carry_from(self, source: int) -> None:
        device = self._devices[source]
        for _ in range(AT_ONCE):
            try:
                packet = os.read(device, PACKET_SIZE_MAX)
            except BlockingIOError:
                return
            if len(packet) < IP_HEADER_SIZE or packet[0] >> 4 != IP_VERSION_4:
                continue
            target = self._hosts.get(packet[16:20])
            if target is None:
                continue
            way = self._ways.get((source, target))
            if way is None:
                self._deliver(target, packet)
            else:
                self._carry_badly(way, target, packet)

    def _carry_badly(self, way: Way, target: int, packet: bytes) -> None:
        chance = self._chance.random
        if way.is_cut or chance() < way.loss:
            self.lost += 1
            return
        if chance() < way.corrupt and len(packet) > HEADERS_SIZE:
            changed = bytearray(packet)
            changed[self._chance.randrange(HEADERS_SIZE, len(packet))] ^= 1 << int(chance() * 8)
            packet = bytes(changed)
        for _ in range(1 + (chance() < way.duplicates)):
            late_s = way.delay_s + way.jitter_s * chance()
            if late_s:
                due = time.monotonic() + late_s
                heapq.heappush(self._late, (due, next(self._numbers), target, packet))
            else:
                self._deliver(target, packet)

    def _deliver_late(self) -> None:
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            *_, target, packet = heapq.heappop(self._late)
            self._deliver(target, packet)

    def _deliver(self, target: int, packet: bytes) -> None:
        self.carried += 1
        # A device whose queue is full drops, as others do.
        with suppress(OSError):
            os.write(self._devices[target], packet)


def as_order(ways: Iterable[tuple[tuple[int, int], Way]]) -> str:
    """A line of its input."""
    return json.dumps(
        [
            [*pair, {name: getattr(way, name) for name in Way.__dataclass_fields__}]
            for pair, way in ways
        ]
    )


def _own_namespace() -> int:
    return os.open("/proc/self/ns/net", os.O_RDONLY)


def main() -> None:
    hosts, network, seed = sys.argv[1:]
    carrier = Carrier(int(hosts), network, int(seed))
    print(json.dumps(carrier.namespaces), flush=True)
    carrier.run()


if __name__ == "__main__":
    main()

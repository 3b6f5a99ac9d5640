"""A line between two network namespaces where the kernel has no netem: packets, held and dropped.

``lossy_link`` runs it with the names of both, that of a TUN device to make in each, the delay of
one way in ms and the loss in percent. It carries packets until it is ended, and costs processor
time for each; netem costs none that is worth counting.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque
from pathlib import Path

_CLONE_NEWNET = 0x4000_0000
_TUNSETIFF = 0x4004_54CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PACKET_MAX = 65_536
_READ_AT_ONCE = 64
QUEUE_PACKETS = 100_000


def open_device(namespace: str, name: str) -> int:
    """A TUN device in a namespace, which this process is in from then on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", namespace).open("rb") as place:
        if libc.setns(place.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"namespace {namespace} not entered")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(device, _TUNSETIFF, request)
    return device


class Direction:
    """Packets on their way from one device to the other, in order."""

    def __init__(self, source: int, target: int, delay_s: float, loss: float) -> None:
        self.source = source
        self._target = target
        self._delay_s = delay_s
        self._loss = loss
        self._held: deque[tuple[float, bytes]] = deque()

    def take(self) -> None:
        """Read what has come; some of it is lost."""
        for _ in range(_READ_AT_ONCE):
            try:
                packet = os.read(self.source, _PACKET_MAX)
            except BlockingIOError:
                return
            if random.random() >= self._loss and len(self._held) < QUEUE_PACKETS:
                self._held.append((time.monotonic() + self._delay_s, packet))

    def give(self, now: float) -> float | None:
        """Write what is due; seconds until more is, None when nothing is held."""
        while self._held and self._held[0][0] <= now:
            try:
                os.write(self._target, self._held.popleft()[1])
            except OSError:
                # The other end is not up yet: a packet is lost.
                continue
        return self._held[0][0] - now if self._held else None


def main() -> None:
    near, far, name, delay_ms, loss_percent = sys.argv[1:]
    devices = [open_device(namespace, name) for namespace in (near, far)]
    delay_s, loss = float(delay_ms) / 1_000, float(loss_percent) / 100
    here, there = devices
    ways = [Direction(here, there, delay_s, loss), Direction(there, here, delay_s, loss)]
    poll = select.poll()
    for device in devices:
        poll.register(device, select.POLLIN)
    print("ready", flush=True)
    while True:
        waits = [wait for way in ways if (wait := way.give(time.monotonic())) is not None]
        ready = dict(poll.poll(None if not waits else min(waits) * 1_000))
        for way in ways:
            if way.source in ready:
                way.take()


if __name__ == "__main__":
    main()

"""Two network namespaces and a line between them that delays and loses packets, by root alone."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bench.lossy_line import QUEUE_PACKETS
from bench.processes import DIES_WITH_US

DEVICE = "line"


class Site(NamedTuple):
    """One end of the line.

    Attributes:
        name: of its namespace.
        address: of the line's end there.
    """

    name: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """In front of a command that runs there."""
        return ["ip", "netns", "exec", self.name]


class Line(NamedTuple):
    """Two sites, and what is between them: ``netem``, or ``tun`` where the kernel has no netem."""

    near: Site
    far: Site
    made_of: str

    def set_congestion_control(self, name: str) -> None:
        """What connections send by over the line that begin from now on."""
        for site, other in ((self.near, self.far), (self.far, self.near)):
            # Of a route: a namespace's own setting takes only what all accounts may choose.
            _run([*site.prefix, "ip", "route", "replace", other.address, "dev", DEVICE,
                  "src", site.address, "congctl", name])  # fmt: skip


@contextmanager
def lossy_link(*, delay_ms: float, loss_percent: float) -> Iterator[Line]:
    """Two sites with their loopback each, and nothing else between them; gone at the end.

    Args:
        delay_ms: round trip.
        loss_percent: in each direction.

    Raises:
        RuntimeError: this account may not, or the kernel cannot.
    """
    if os.geteuid() != 0:
        raise RuntimeError("namespaces are root's: run as root")
    mark = secrets.token_hex(3)
    near, far = Site(f"lmq-{mark}-a", "10.231.0.1"), Site(f"lmq-{mark}-b", "10.231.0.2")
    with ExitStack() as made:
        for site in (near, far):
            _run(["ip", "netns", "add", site.name])
            made.callback(_run, ["ip", "netns", "delete", site.name])
            _run([*site.prefix, "ip", "link", "set", "lo", "up"])
        has_netem = _has_netem(near)
        if has_netem:
            _run(["ip", "link", "add", DEVICE, "netns", near.name,
                  "type", "veth", "peer", "name", DEVICE, "netns", far.name])  # fmt: skip
        else:
            carrier = _carrier(near, far, delay_ms=delay_ms, loss_percent=loss_percent)
            made.callback(carrier.wait)
            made.callback(carrier.kill)
        for site, other in ((near, far), (far, near)):
            _run([*site.prefix, "ip", "address", "add", site.address, "peer", other.address,
                  "dev", DEVICE])  # fmt: skip
            _run([*site.prefix, "ip", "link", "set", DEVICE, "up"])
            if has_netem:
                # Each packet as a line has it: of those that are sent together all would be lost.
                _run([*site.prefix, "ip", "link", "set", DEVICE, "gso_max_segs", "1"])
                _run([*site.prefix, "tc", "qdisc", "add", "dev", DEVICE, "root", "netem",
                      "delay", f"{delay_ms / 2}ms", "loss", f"{loss_percent}%",
                      "limit", str(QUEUE_PACKETS)])  # fmt: skip
        yield Line(near, far, "netem" if has_netem else "tun")


def congestion_controls() -> list[str]:
    """Those that the kernel has."""
    return _run(["sysctl", "-n", "net.ipv4.tcp_available_congestion_control"]).split()


def _has_netem(site: Site) -> bool:
    words = [*site.prefix, "tc", "qdisc", "add", "dev", "lo", "root", "netem"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        return False
    _run([*site.prefix, "tc", "qdisc", "delete", "dev", "lo", "root"])
    return True


def _carrier(
    near: Site, far: Site, *, delay_ms: float, loss_percent: float
) -> subprocess.Popen[bytes]:
    words = [near.name, far.name, DEVICE, str(delay_ms / 2), str(loss_percent)]
    carrier = subprocess.Popen(
        [*DIES_WITH_US, sys.executable, "-m", "bench.lossy_line", *words], stdout=subprocess.PIPE
    )
    assert carrier.stdout is not None
    if carrier.stdout.readline() != b"ready\n":
        raise RuntimeError("there is no netem, and no TUN device either")
    return carrier


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout

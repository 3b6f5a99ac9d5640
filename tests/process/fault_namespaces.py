"""Each member in a network namespace, all on one switch: packets are lost, not connections.

A way is cut by a wrong hardware address that the sender has of the receiver, which works without
iptables and without a queueing discipline: packets leave, and nobody takes them.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress

PORT = 40_911
NOWHERE = "02:00:00:00:00:ff"


class NamespaceNetwork:
    """Namespaces and their links, made here and removed by ``close``.

    The switch has a namespace, too: nothing is added to the machine's own network.
    """

    raft: Mapping[str, object] = {}

    def __init__(self, members: int, network: str = "10.77.0") -> None:
        """Make them; the first member is ``network`` and ``.1``.

        Raises:
            PermissionError: the machine does not let this process make namespaces.
        """
        self._members = range(members)
        self._network = network
        # Names of namespaces are the machine's: other tests may make some at the same time.
        token = f"lmq-{secrets.token_hex(4)}"
        self._switch = f"{token}-switch"
        self._names = [f"{token}-n{member}" for member in self._members]
        self._lost: set[tuple[int, int]] = set()
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> list[str]:
        """Of all namespaces."""
        return [*self._names, self._switch]

    def address(self, member: int) -> str:
        return f"{self._network}.{member + 1}"

    def namespace(self, member: int) -> str:
        return self._names[member]

    def peers(self, member: int) -> list[str]:
        del member
        return [f"n{other}-{self.address(other)}:{PORT}" for other in self._members]

    def prefix(self, member: int) -> list[str]:
        return ["ip", "netns", "exec", self._names[member]]

    def lose(self, source: int, target: int) -> None:
        self._lost.add((source, target))
        _ip(
            "-n", self._names[source], "neighbour", "replace", self.address(target),
            "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent",
        )  # fmt: skip

    def heal(self) -> None:
        for source, target in self._lost:
            _ip("-n", self._names[source], "neighbour", "del", self.address(target), "dev", "eth0")
        self._lost.clear()

    def close(self) -> None:
        for name in self.names:
            # One that could not be made.
            with suppress(PermissionError):
                _ip("netns", "del", name)

    def _make(self) -> None:
        for name in (self._switch, *self._names):
            _ip("netns", "add", name)
        _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "br0", "up")
        for member, name in zip(self._members, self._names, strict=True):
            port = f"port{member}"
            _ip(
                "-n", self._switch, "link", "add", port, "type", "veth",
                "peer", "name", "eth0", "netns", name,
            )  # fmt: skip
            _ip("-n", self._switch, "link", "set", port, "master", "br0", "up")
            _ip("-n", name, "address", "add", f"{self.address(member)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth0", "up")


def _ip(*words: str) -> None:
    if shutil.which("ip") is None:
        raise PermissionError("there is no `ip` (Debian: iproute2)")
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")

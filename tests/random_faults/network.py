"""The network of a run: hosts in namespaces of their own, and troubles that are laid upon it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.random_faults.carrier import Way, as_order

PORT = 10_920
NETWORK = "10.77.0"

Pair = tuple[int, int]


class FaultyNetwork:
    """Members are the first hosts, clients the others; ``close`` ends it.

    As a network of ``tests.process.group_nodes``, for the members.
    """

    raft: Mapping[str, object] = {}

    def __init__(self, members: int, clients: int, *, seed: int) -> None:
        """Make it.

        Args:
            seed: of which packets are lost, late or changed.
        """
        self.members = range(members)
        self.clients = range(members, members + clients)
        self._troubles: dict[str, dict[Pair, Way]] = {}
        script = str(Path(__file__).with_name("carrier.py"))
        self._carrier = subprocess.Popen(
            [sys.executable, script, str(members + clients), NETWORK, str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._namespaces: list[int] = json.loads(self._answer())
        self.carried = 0
        self.lost = 0

    def address(self, host: int) -> str:
        return f"{NETWORK}.{host + 1}"

    def peers(self, member: int) -> list[str]:
        """The same for all."""
        del member
        return [f"n{one}-{self.address(one)}:{PORT}" for one in self.members]

    def prefix(self, member: int) -> list[str]:
        """What runs a command at a host, in a session of its own."""
        return ["setsid", "nsenter", f"--net={self.namespace(member)}", "--"]

    def namespace(self, host: int) -> str:
        """The file of a host's namespace."""
        return f"/proc/{self._carrier.pid}/fd/{self._namespaces[host]}"

    def lay(self, trouble: str, ways: Mapping[Pair, Way]) -> None:
        """Let packets suffer this, too, until it is lifted by its name."""
        self._troubles[trouble] = dict(ways)
        self._tell()

    def lift(self, trouble: str) -> None:
        """End one trouble; others go on."""
        self._troubles.pop(trouble)
        self._tell()

    def close(self) -> None:
        """End it; whoever is still at a host hears nobody any more."""
        assert self._carrier.stdin is not None
        self._carrier.stdin.close()
        self._carrier.wait()

    def _tell(self) -> None:
        assert self._carrier.stdin is not None
        self._carrier.stdin.write(as_order(_together(self._troubles.values())) + "\n")
        self._carrier.stdin.flush()
        self.carried, self.lost = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._carrier.stdout is not None
        line = self._carrier.stdout.readline()
        assert line, f"the carrier has ended with {self._carrier.wait()}"
        return line


def between(sources: Iterable[int], targets: Iterable[int], way: Way) -> dict[Pair, Way]:
    """The same way from each of these to each of those; nobody is cut off from himself."""
    targets = list(targets)
    return {(one, other): way for one in sources for other in targets if one != other}


def both(one: dict[Pair, Way]) -> dict[Pair, Way]:
    """And back."""
    return {**one, **{(target, source): way for (source, target), way in one.items()}}


def _together(troubles: Iterable[Mapping[Pair, Way]]) -> Iterable[tuple[Pair, Way]]:
    found: dict[Pair, Way] = {}
    for ways in troubles:
        for pair, way in ways.items():
            found[pair] = way.with_other(found.get(pair, Way()))
    return found.items()

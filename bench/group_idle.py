"""What does each node of an idle group of three cost, a node alone, and pulls that wait?

Estimate beforehand: heartbeats every 100 ms wake the raft processes and their ZeroMQ threads, 20
messages a second at the leader (two peers, their replies) and 10 at a follower, some 100 µs each
with the switches; the other processes wake once or twice a second: half a per cent of a core. Of
2,000 pulls that wait for 15 s 133 end in a second, and are asked for again, at 130 µs: 1.7 %.

A wake-up is a switch that a thread made of its own accord; calls are those that ``sys.setprofile``
tells of, as in ``message_calls``. Both depend on no machine, or hardly.

    python -m bench.group_idle [--seconds N] [--no-curve] [--parked N] [--top N] [--smoke]
        [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.group import BenchGroup, GroupNode, bench_group
from bench.idle_shares import Share, shares
from bench.machine import write
from bench.message_calls import count_in_processes
from bench.node import bench_node
from bench.parked_pulls import parked
from bench.processes import end_in_order, memory_mib
from bench.remoting_idle import free_port
from ledgermq.client import Producer

SETTLED_S = 5.0
BATCHES = 100
BATCH = 64

Figures = dict[str, object]


def use(addresses: str) -> None:
    """Send something, so that every process has done its work once; then let it settle."""
    with Producer(addresses) as producer:
        for _ in range(BATCHES):
            producer.send_batch("used", [b"x" * 1024] * BATCH).result()
    time.sleep(SETTLED_S)


class Idle:
    """Nodes that are looked at while nothing happens, and what was found."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.situations: dict[str, Figures] = {}
        self._folder = folder
        self._seconds: float = given.seconds
        self._parked: int = given.parked
        self._top: int = given.top

    def look(self, name: str, supervisors: Mapping[str, int]) -> None:
        """Measure nodes, by name, as they are now."""
        found = shares(supervisors, self._folder, self._seconds, top=self._top)
        self.situations[name] = {node: _row(processes) for node, processes in found.items()}
        print(name, {node: _sum(processes) for node, processes in found.items()}, flush=True)

    def look_with_pulls(
        self, name: str, supervisors: Mapping[str, int], address: str, port: int
    ) -> None:
        """The same while pulls wait at one of them: of our clients, then of RocketMQ's."""
        for whose, at in (("ours", None), ("at the port", port)) if self._parked else ():
            with parked(address, self._parked, port=at):
                time.sleep(SETTLED_S)
                self.look(f"{name}, {self._parked} pulls that wait, {whose}", supervisors)


def _row(processes: Mapping[str, Share]) -> Figures:
    return {
        "all": _sum(processes)._asdict(),
        **{role: share._asdict() for role, share in processes.items()},
    }


def _sum(processes: Mapping[str, Share]) -> Share:
    return Share(*(round(sum(column), 3) for column in zip(*processes.values(), strict=True)))


@contextmanager
def _group(given: argparse.Namespace, base: Path) -> Iterator[tuple[BenchGroup, GroupNode]]:
    with bench_group(base, ack=given.ack, curve=given.curve, remoting=True) as group:
        use(group.addresses)
        yield group, group.leader()


def _group_figures(given: argparse.Namespace, base: Path, idle: Idle) -> Figures:
    """A group; also what memory its nodes need, and whether somebody was elected meanwhile."""
    with _group(given, base) as (group, leader):
        term = group.term()
        roles = {
            node: f"{node.name}, {'leader' if node is leader else 'follower'}"
            for node in group.nodes
        }
        pids = {roles[node]: node.pid for node in group.nodes}
        idle.look("group", pids)
        memory = {roles[node]: memory_mib(node.pid) for node in group.nodes}
        idle.look_with_pulls("group", pids, leader.address, group.port_of(leader))
        return {"elections": group.term() - term, "pss_mib": memory}


def _node(given: argparse.Namespace, base: Path, idle: Idle) -> None:
    port = free_port()
    listen = f'remoting = "127.0.0.1:{port}"\n'
    with bench_node(base, ack=given.ack, listen=listen) as node:
        use(node.address)
        pids = {"alone": node.process.pid}
        idle.look("one node", pids)
        idle.look_with_pulls("one node", pids, node.address, port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="default: 60, and 5 with --smoke")
    parser.add_argument("--ack", default="majority-fsync", help="ack.mode (default: %(default)s)")
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--parked", type=int, default=2_000, help="pulls that wait; 0: none")
    parser.add_argument("--top", type=int, default=0, help="functions to show of each process")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    given.seconds = given.seconds or (5.0 if given.smoke else 60.0)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        base = Path(scratch)
        folder = base / "calls"
        count_in_processes(folder)
        idle = Idle(given, folder)
        group = _group_figures(given, base, idle)
        _node(given, base, idle)
    figures = {
        "seconds": given.seconds,
        "ack_mode": given.ack,
        "curve": given.curve,
        **group,
        "situations": idle.situations,
    }
    if not given.smoke:
        write("group_idle", figures)


if __name__ == "__main__":
    main()

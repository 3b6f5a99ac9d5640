"""What would members gain by sockets of their own, without ZeroMQ's threads between them?

An append with one entry of 1 KiB goes from a leader to one follower or two, and a reply comes back,
by today's sockets and by TCP connections in the process's own poll: with TLS 1.3 and mutual
certificates (over bytes in memory, and by Python's own sockets), with Noise's transport messages
(AES-GCM of the package ``cryptography``; left out where that is not installed), and in the clear.
Nothing but the way is there: no core, no log. All ways have their processes all the time, and are
measured in turn.

Estimate beforehand: four passes through a thread of ZeroMQ's, some 30 to 50 µs each with the switch
to it, go away: 120 to 200 µs of a round trip; AES-GCM of 1 KiB is 2 µs on each side.

    python -m bench.peer_transport [--runs N] [--rounds N] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import secrets
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import zmq

from bench.counted.call_counts import CallCounts
from bench.group import free_ports
from bench.machine import spread, write
from bench.message_cost import Spent, spent_by
from bench.peer_ways import (
    OwnSockets,
    Plain,
    TodaysWay,
    Way,
    make_certificates,
    secured,
)
from bench.processes import end_in_order
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft.messages import Append, AppendReply, EntryId, TermRun
from ledgermq.sessions.keys.peer_keys import init_keys

WAYS = ("zmq-curve", "zmq-clear", "tls", "tls-socket", "noise", "plain")
NODES = (NodeId("n0"), NodeId("n1"), NodeId("n2"))
LEADER = NODES[0]
ENTRY_SIZE = 48 + 1024 + 120
"""An entry's header, a body of 1 KiB and the rest of its record."""

PAUSES = {"without a pause": 0.0, "a millisecond between": 0.001}
"""A group with one message under way does other things meanwhile, and its cores halt."""

PATIENCE_S = 60.0
COUNTED = 300


class Member:
    """One process of a way: a leader that sends, or a follower that answers."""

    def __init__(self, way: Way, orders: Connection) -> None:
        self._way = way
        self._orders = orders
        self._poller = zmq.Poller()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        # As in the raft process, whose inbox for orders is a socket of ZeroMQ's.
        self._inbox = self._context.socket(zmq.PULL)
        for source in (*way.sources, self._inbox, orders.fileno()):
            self._poller.register(source, zmq.POLLIN)
        self._counts = CallCounts()
        self._head = encode_message(
            Append(Term(2), EntryId(Term(2), Index(7)), (TermRun(Term(2), 1),), Index(7), 9, ())
        )
        self._entry = secrets.token_bytes(ENTRY_SIZE)
        self._reply = encode_message(
            AppendReply(
                Term(2), 9, accepted=True, verified=Index(8), held=Index(8), tail=None, fit=True
            )
        )

    def follow(self) -> None:
        """Answer until told to end."""
        while True:
            ready = dict(self._poller.poll(1_000))
            for message in self._way.take(ready):
                self._way.send(message.node, (self._reply,))
            if self._orders.fileno() in ready and not self._obey(self._orders.recv()):
                return
            self._watch()

    def lead(self, followers: Sequence[NodeId]) -> None:
        """Do what is ordered: so many rounds, or a count."""
        self._meet(followers)
        self._orders.send("ready")
        while True:
            ready = dict(self._poller.poll(1_000))
            for _ in self._way.take(ready):
                pass
            self._watch()
            if self._orders.fileno() not in ready:
                continue
            order = self._orders.recv()
            if isinstance(order, tuple):
                self._orders.send(self._rounds(followers, *order))
            elif not self._obey(order):
                return

    def close(self) -> None:
        """Close the sockets."""
        self._way.close()
        self._context.destroy(linger=0)

    def _obey(self, order: str) -> bool:
        if order == "count":
            self._counts.take()
            sys.setprofile(self._counts)
        elif order == "told":
            sys.setprofile(None)
            self._orders.send(self._counts.take().total())
        return order != "end"

    def _watch(self) -> None:
        # Greetings and handshakes; the raft process looks after them beside its turns.
        if isinstance(self._way, TodaysWay):
            self._way.group.watch()

    def _meet(self, followers: Sequence[NodeId]) -> None:
        """Until each of them has answered once."""
        met: set[NodeId] = set()
        until = time.monotonic() + PATIENCE_S
        while met != set(followers):
            if time.monotonic() > until:
                raise TimeoutError(f"no answer of {set(followers) - met}")
            for follower in followers:
                if follower not in met:
                    self._way.send(follower, (self._head, self._entry))
            for message in self._way.take(dict(self._poller.poll(50))):
                met.add(message.node)
            self._watch()
        # What was asked twice is answered twice.
        while taken := dict(self._poller.poll(200)):
            for _ in self._way.take(taken):
                pass

    def _rounds(
        self, followers: Sequence[NodeId], count: int, pause_s: float
    ) -> tuple[list[int], list[int]]:
        """Nanoseconds of each round until the first answer, and until the last one."""
        firsts, lasts = [], []
        parts = (self._head, self._entry)
        for number in range(count):
            begin = time.monotonic_ns()
            for follower in followers:
                assert self._way.send(follower, parts), follower
            answers = 0
            while answers < len(followers):
                for _ in self._way.take(dict(self._poller.poll(1_000))):
                    answers += 1
                    if answers == 1:
                        firsts.append(time.monotonic_ns() - begin)
            lasts.append(time.monotonic_ns() - begin)
            if pause_s:
                time.sleep(pause_s)
            if not number & 0x3F:
                self._watch()
        return firsts, lasts


def run_member(
    way: str, node: NodeId, ports: Sequence[int], folder: Path, orders: Connection
) -> None:
    """The main function of a member's process; there are as many members as ports."""
    size = len(ports)
    opened = open_way(way, node, NODES[:size], ports, folder)
    member = Member(opened, orders)
    if node == LEADER:
        member.lead(NODES[1:size])
    else:
        member.follow()
    member.close()


def open_way(
    way: str, node: NodeId, nodes: Sequence[NodeId], ports: Sequence[int], folder: Path
) -> Way:
    """Connections to all that this member talks with: a leader with all, a follower with it."""
    if way.startswith("zmq"):
        peers = [f"{one}-127.0.0.1:{port}" for one, port in zip(nodes, ports, strict=False)]
        return TodaysWay(node, peers, folder, curve=way == "zmq-curve")
    streams: dict[NodeId, Plain] = {}
    if node == LEADER:
        with socket.create_server(("127.0.0.1", ports[0])) as listening:
            for _ in nodes[1:]:
                connection, _address = listening.accept()
                peer = NodeId(connection.recv(2).decode())
                streams[peer] = secured(way, connection, folder, node, peer, is_server=True)
        return OwnSockets(streams)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", ports[0]))
            break
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
    connection.sendall(node.encode())
    return OwnSockets({LEADER: secured(way, connection, folder, node, LEADER, is_server=False)})


class Running:
    """The processes of one way, of one leader and some followers."""

    def __init__(self, way: str, size: int, folder: Path) -> None:
        self.way = way
        self.folder = folder
        folder.mkdir()
        init_keys(folder, NODES[:size])
        if way.startswith("tls"):
            make_certificates(folder, NODES[:size])
        (folder / "noise").write_bytes(secrets.token_bytes(64))
        ports = free_ports(size)
        spawn = multiprocessing.get_context("spawn")
        self._orders: list[Connection] = []
        self._processes = []
        for node in NODES[:size]:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
                target=run_member, args=(way, node, ports, folder, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._orders.append(ours)
            self._processes.append(process)
        self._answer(0)

    def run(self, rounds: int, pause_s: float) -> dict[str, float]:
        """Round trips, and what they cost all processes: for each."""
        before = self._spent()
        self._orders[0].send((rounds, pause_s))
        firsts, lasts = self._answer(0)
        figures = {
            "first_us": statistics.median(firsts) / 1_000,
            "all_us": statistics.median(lasts) / 1_000,
        }
        for kind, spent in self._spent().items():
            earlier = before.get(kind, Spent(0, 0))
            figures[f"{kind}_cpu_us"] = (spent.cpu_ns - earlier.cpu_ns) / 1_000 / rounds
            figures[f"{kind}_switches"] = (spent.switches - earlier.switches) / rounds
        figures["cpu_us"] = sum(value for name, value in figures.items() if "_cpu_us" in name)
        figures["switches"] = sum(value for name, value in figures.items() if "_switch" in name)
        return figures

    def calls(self) -> dict[str, float]:
        """Calls of functions and builtins that a round makes at the leader and a follower."""
        for orders in self._orders:
            orders.send("count")
        self._orders[0].send((COUNTED, 0.0))
        self._answer(0)
        told = []
        for at, orders in enumerate(self._orders):
            orders.send("told")
            told.append(self._answer(at) / COUNTED)
        return {"leader_calls": told[0], "follower_calls": statistics.mean(told[1:])}

    def end(self) -> None:
        """End the processes."""
        for orders, process in zip(self._orders, self._processes, strict=True):
            if process.is_alive():
                orders.send("end")
        for process in self._processes:
            process.join(PATIENCE_S)
            process.kill()

    def _spent(self) -> dict[str, Spent]:
        found: dict[str, Spent] = {}
        for process in self._processes:
            assert process.pid is not None
            for kind, spent in spent_by(process.pid).items():
                found[kind] = found.get(kind, Spent(0, 0)).plus(spent)
        return found

    def _answer(self, member: int) -> Any:
        if not self._orders[member].poll(PATIENCE_S):
            raise TimeoutError(f"{self.way}: {NODES[member]} does not answer")
        return self._orders[member].recv()


@contextmanager
def all_ways(base: Path, size: int) -> Iterator[list[Running]]:
    """The processes of all ways that this machine has."""
    has_noise = importlib.util.find_spec("cryptography") is not None
    if not has_noise:
        print("noise is left out: the package cryptography is not installed", file=sys.stderr)
    with ExitStack() as started:
        running = []
        for way in WAYS:
            if way != "noise" or has_noise:
                running.append(Running(way, size, base / f"{way}-{size}"))
                started.callback(running[-1].end)
        yield running


def measured(
    running: Sequence[Running], *, runs: int, rounds: int, pause_s: float
) -> dict[str, object]:
    """Each way's figures over all runs, which go in turn."""
    rows: dict[str, list[dict[str, float]]] = {one.way: [] for one in running}
    for one in running:
        one.run(max(100, rounds // 10), pause_s)
    for number in range(runs):
        # Who comes first changes: what else the machine does may have a beat of its own.
        for one in [*running[number % len(running) :], *running[: number % len(running)]]:
            rows[one.way].append(one.run(rounds, pause_s))
    found: dict[str, object] = {}
    for one in running:
        row: dict[str, object] = {
            name: spread([figures[name] for figures in rows[one.way]]) for name in rows[one.way][0]
        }
        row.update({name: round(value, 1) for name, value in one.calls().items()})
        found[one.way] = row
        show(one.way, row)
    return found


def show(way: str, row: dict[str, Any]) -> None:
    """A line of the medians."""
    print(
        f"{way:11} first {row['first_us']['median']:7.0f} us  all {row['all_us']['median']:7.0f} us"
        f"  cpu {row['cpu_us']['median']:6.0f} us  switches {row['switches']['median']:5.2f}"
        f"  calls {row['leader_calls']:5.0f} + {row['follower_calls']:4.0f}",
        flush=True,
    )


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    runs, rounds = (1, 200) if given.smoke else (given.runs, given.rounds)
    figures: dict[str, object] = {"runs": runs, "rounds": rounds, "entry": ENTRY_SIZE}
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        for size in (2, 3):
            with all_ways(Path(scratch), size) as running:
                for name, pause_s in PAUSES.items():
                    load = f"{size - 1} followers, {name}"
                    print(f"{load} (machine's load {os.getloadavg()[0]:.0f}):")
                    figures[load] = measured(running, runs=runs, rounds=rounds, pause_s=pause_s)
    if not given.smoke:
        write("peer_transport", figures)


if __name__ == "__main__":
    main()

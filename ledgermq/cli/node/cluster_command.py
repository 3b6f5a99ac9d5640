"""``ledgermq cluster``: several groups, feature levels, and a demonstration.

``cluster demo`` starts three nodes on this machine, and shows the fail-over from one of them.
"""

from __future__ import annotations

import argparse
import json
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ledgermq.cli.arguments import takes
from ledgermq.cli.clusters.cluster_verbs import add_clusters
from ledgermq.cli.node.demo_command import BATCH, BODY_SIZE, Steps
from ledgermq.cli.node.local_node import LocalNode, leader_of
from ledgermq.cli.node.raft_command import LOOK_AGAIN_S
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import called_as, tell
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.client import BatchResult, Consumer, Producer, ProducerOptions
from ledgermq.client.admin.broker_admins import FeatureAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.hosts.host_name import host_and_port
from ledgermq.model.config.settings import AckMode, Settings
from ledgermq.model.errors import CorruptLogError, LedgerError, StorageError, TimedOutError
from ledgermq.model.features import LEVELS, described, holding_back, version_of
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.verbs.upkeep import FeatureLevels


def add_features(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``features``."""
    features = commands.add_parser(
        "features",
        help="show the feature level in force, or put the next one in force",
        description="What a version adds to the log, or to what members say, stays off until its "
        "level is in force. A level can be put in force once all members know it, and never goes "
        "down: versions that do not know it are not let in from then on.",
    )
    takes(
        features,
        "--enable LEVEL",
        "put this level in force, without a number the highest",
        nargs="?",
        type=int,
        const=-1,
    )
    asks(features, connect_broker, _features)


def _features(broker: Broker, arguments: argparse.Namespace) -> int:
    admin = FeatureAdmin(broker)
    if arguments.enable is not None:
        in_force = admin.enable(None if arguments.enable < 0 else arguments.enable)
        return tell(arguments, {"in_force": in_force}, f"level {in_force} is in force")
    found = admin.features()
    levels = [level._asdict() for level in LEVELS]
    return tell(arguments, {**found._asdict(), "levels": levels}, "\n".join(_lines(found)))


def _lines(found: FeatureLevels) -> Iterator[str]:
    yield f"in force    level {found.in_force}"
    yield f"known       level {found.known} by {found.node}, version {found.version}"
    if found.members:
        yield f"members     {described(found.members)}"
    if found.needed:
        yield f"held up     the log needs level {found.needed}: {version_of(found.needed)}"
    elif found.in_force < min(found.known, found.members_know):
        yield "next        ledgermq cluster features --enable"
    elif found.in_force < found.known:
        for reason in holding_back(found.members, found.known):
            yield f"held back   {reason}"
    for level in LEVELS:
        yield f"level {level.number}     {level.adds} (since {level.version})"


NODES = 3
TOPIC = "demo"
BATCHES = 600
PAUSE_S = 0.005
PATIENCE_S = 30.0


class DemoOutcome(NamedTuple):
    """What became of the messages, and the longest time without an acknowledgement."""

    messages: int
    seconds: float
    longest_gap_s: float


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``cluster`` and its sub-commands."""
    parser = subparsers.add_parser(
        "cluster",
        help="several groups as one; feature levels of a group; try one here",
        description="A cluster is several groups as one. The members of one group, and which"
        " of them leads: `ledgermq raft status`.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_clusters(commands)
    add_features(commands)
    demo = commands.add_parser(
        "demo",
        help="three nodes on loopback: send, kill the leader, compare, hand over",
        description="Starts three nodes, and stops them at the end. To go on with three of them:"
        " `ledgermq dev --nodes 3`.",
    )
    takes(
        demo,
        "--ack",
        "default: %(default)s",
        choices=[AckMode.MAJORITY_FSYNC.value, AckMode.MAJORITY_MEMORY.value],
        default=AckMode.MAJORITY_FSYNC.value,
    )
    takes(demo, "--json", "print the summary as JSON")
    demo.set_defaults(func=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    say = Steps(quiet=arguments.json)
    folder = Path(tempfile.mkdtemp(prefix="ledgermq-cluster-", dir="/tmp"))
    nodes = _nodes(folder, AckMode(arguments.ack))
    with ExitStack() as running:
        say.step(f"start three nodes in {folder}")
        for node in nodes:
            running.enter_context(node)
            node.launch()
        leader = leader_of(nodes)
        say.tell(f"{leader.name} leads in term {_raft(leader)['term']}")
        say.step(f"send {BATCHES * BATCH:,} messages, and kill -9 the leader half-way")
        sent = _send(nodes, leader, say)
        say.tell(
            f"{sent.messages:,} acknowledged as {arguments.ack} in {sent.seconds:.2f} s; "
            f"longest time without one: {sent.longest_gap_s * 1_000:.0f} ms"
        )
        successor = leader_of(nodes)
        say.step(f"start {leader.name} again, and wait until it has what it missed")
        leader.launch()
        index = _wait_equal(nodes)
        say.tell(f"all three hold the entries up to {index:,}, {successor.name} leads")
        say.step("read everything back: each message exactly once, in the order of its queue")
        received = _receive(nodes)
        say.tell(f"{received:,} messages")
        say.step(f"hand the leadership over to {leader.name}")
        took_ms = _hand_over(nodes, successor, leader)
        say.tell(f"{leader.name} leads after {took_ms} ms")
        say.step("stop all three")
        statuses = [node.stop() for node in nodes]
        say.tell(f"exit status {', '.join(map(str, statuses))}")
        if any(statuses):
            raise LedgerError("a node did not stop cleanly", folder=str(folder))
    if arguments.json:
        document = {"folder": str(folder), "received": received, "hand_over_ms": took_ms}
        print(json.dumps({**document, **sent._asdict()}))
    else:
        print(f"\nDone. The stores are in {folder}; remove them with\n\n   rm -r {folder}\n")
        print(f"A node to write programs against, which prints how:\n\n   {called_as()} dev\n")
    return 0


def _nodes(folder: Path, ack: AckMode) -> list[LocalNode]:
    defaults = Settings()
    names = [f"n{number}" for number in range(NODES)]
    peers = tuple(f"{name}-{place}" for name, place in zip(names, _places(), strict=True))
    nodes = []
    for name in names:
        own = folder / name
        own.mkdir()
        settings = replace(
            defaults,
            node=replace(defaults.node, self_id=name, peers=peers),
            # On one machine, where whoever could listen could read the files as well.
            raft=replace(defaults.raft, curve=False),
            ack=replace(defaults.ack, mode=ack),
        )
        nodes.append(LocalNode(own, settings))
    return nodes


def _places() -> list[str]:
    """Addresses of this machine's own, with ports that nobody has now."""
    with ExitStack() as held:
        probes = [held.enter_context(_bound_probe()) for _ in range(NODES)]
        places = [probe.getsockname()[:2] for probe in probes]
        return [host_and_port(str(host), int(port)) for host, port in places]


def _bound_probe() -> socket.socket:
    """A socket at a free port of the loopback's IPv4 address, or of IPv6 where it has that alone.

    Raises:
        StorageError: the machine gives neither.
    """
    reason = ""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            return socket.create_server((host, 0), family=family)
        except OSError as error:
            reason = str(error.strerror)
    raise StorageError("no port of this machine's own", addresses="127.0.0.1, ::1", reason=reason)


def _raft(node: LocalNode) -> dict[str, object]:
    return control.ask(RuntimePaths(node.runtime).raft_control, "status", timeout_s=5.0)


def _addresses(nodes: Sequence[LocalNode]) -> list[str]:
    return [node.address for node in nodes]


class _Gaps:
    """The longest time between two acknowledgements."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self.longest_s = 0.0

    def note(self, _: SendFuture[BatchResult]) -> None:
        """One more has an outcome."""
        with self._lock:
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - self._last)
            self._last = now


def _send(nodes: Sequence[LocalNode], leader: LocalNode, say: Steps) -> DemoOutcome:
    filler = b"." * BODY_SIZE
    begin = time.monotonic()
    with (
        Producer(
            _addresses(nodes),
            name="ledgermq cluster demo",
            options=ProducerOptions(timeout_s=PATIENCE_S),
        ) as producer,
        ProgressLine("messages sent") as progress,
    ):
        producer.send(TOPIC, b"so that the topic is there").result()
        gaps = _Gaps()
        futures = []
        for batch in range(BATCHES):
            bodies = [
                (b"message %d " % (batch * BATCH + number) + filler)[:BODY_SIZE]
                for number in range(BATCH)
            ]
            futures.append(producer.send_batch(TOPIC, bodies, callback=gaps.note))
            progress.show((batch + 1) * BATCH, BATCHES * BATCH)
            if batch == BATCHES // 2:
                leader.kill_all()
                say.tell(f"killed {leader.name}")
            time.sleep(PAUSE_S)
        stored = sum(len(future.result()) for future in futures)
    return DemoOutcome(stored, time.monotonic() - begin, gaps.longest_s)


def _wait_equal(nodes: Sequence[LocalNode]) -> int:
    """Index of the last entry, once all nodes hold and have committed the same."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for node in nodes:
            node.wait_ready()
        cursors = [node.status()["cursors"] for node in nodes]
        ends = {cursor[name]["index"] for cursor in cursors for name in ("written", "committed")}
        lags = [cursor["not_dispatched_bytes"] for cursor in cursors]
        if len(ends) == 1 and not any(lags):
            return int(ends.pop())
        if time.monotonic() >= deadline:
            raise TimedOutError("the nodes do not become equal", waited_s=PATIENCE_S)
        time.sleep(LOOK_AGAIN_S)


def _receive(nodes: Sequence[LocalNode]) -> int:
    """Number of messages; each is there once.

    Raises:
        CorruptLogError: one is missing, is there twice, or stands before one sent earlier.
    """
    seen: set[int] = set()
    last: dict[int, int] = {}
    with Consumer(_addresses(nodes), topic=TOPIC, start="first") as consumer:
        while len(seen) < BATCHES * BATCH:
            batch = consumer.poll(PATIENCE_S)
            if not batch:
                raise CorruptLogError("acknowledged messages are missing", found=len(seen))
            for message in batch:
                words = message.body.split(b" ", 2)
                if words[0] != b"message":
                    continue
                number = int(words[1])
                if number in seen or number < last.get(message.queue_id, -1):
                    raise CorruptLogError("message came twice, or out of order", number=number)
                seen.add(number)
                last[message.queue_id] = number
    return len(seen)


def _hand_over(nodes: Sequence[LocalNode], leader: LocalNode, target: LocalNode) -> int:
    """Milliseconds until ``target`` leads."""
    begin = time.monotonic()
    path = RuntimePaths(leader.runtime).raft_control
    control.ask(path, "transfer", timeout_s=5.0, target=target.name)
    while leader_of(nodes) is not target:
        if time.monotonic() - begin > PATIENCE_S:
            raise TimedOutError("the leadership was not handed over", target=target.name)
        time.sleep(LOOK_AGAIN_S)
    return round((time.monotonic() - begin) * 1_000)

"""A group of real nodes on loopback, and what its members hold."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from ledgermq.client import Consumer, Producer, ProducerOptions
from ledgermq.model.config.settings import VIP_DISTANCE
from ledgermq.model.errors import NotLeaderError, StorageError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.peer_keys import init_keys
from ledgermq.store.store_view import StoreView
from tests.process.conftest import Node, wait_until
from tests.process.node_start import run_command
from tests.process.running import topics_document
from tests.suite.patience import PATIENCE_S

TOPIC = "orders"
SIZES = {
    "mapped_file_size_commit_log": 262_144,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}
COMMAND = [sys.executable, "-m", "ledgermq.cli.main"]


class Network(Protocol):
    """What lies between members, which are named by their numbers."""

    @property
    def raft(self) -> Mapping[str, object]:
        """What the table of settings needs, so that all that members say goes this way."""
        ...

    def peers(self, member: int) -> list[str]:
        """``node.peers`` as this member is to have it."""
        ...

    def prefix(self, member: int) -> list[str]:
        """Words before the command that starts this member."""
        ...


class Loopback:
    """Nothing: each member reaches each other's port."""

    raft: Mapping[str, object] = {}

    def __init__(self, members: int) -> None:
        self._peers = [f"n{number}-127.0.0.1:{free_port()}" for number in range(members)]

    def peers(self, member: int) -> list[str]:
        """The same for all."""
        del member
        return self._peers

    def prefix(self, member: int) -> list[str]:
        """None."""
        del member
        return []


class Member:
    """One node of the group; ``prefix`` are words before the command that starts it."""

    def __init__(self, node: Node, name: str, prefix: Sequence[str] = ()) -> None:
        self.node = node
        self.name = name
        self.peer_address = ""
        self._prefix = tuple(prefix)

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"ipc://{self.node.runtime}"

    def start(self) -> None:
        """Start it; ``wait_ready`` comes later."""
        self.node.forget_told()
        self.node.launch(
            ["-m", "ledgermq.cli.main", "serve", "--config", str(self.node.config)],
            prefix=self._prefix,
        )

    @property
    def is_heard(self) -> bool:
        """Whether its broker takes connections."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.node.runtime / "consume")) == 0

    def kill(self) -> None:
        """End the supervisor with -9; its children follow."""
        self.node.signal(signal.SIGKILL)
        self.node.wait_end()

    def reload(self) -> None:
        """Have it read its settings again."""
        self.node.signal(signal.SIGHUP)

    def status(self) -> dict[str, Any] | None:
        """The answer of the control socket; None while the node has none yet."""
        try:
            return self.node.status()
        except StorageError:
            return None

    @property
    def leads(self) -> bool:
        """Whether it leads, and its writer may write."""
        status = self.status()
        return status is not None and bool(status["raft"]["granted"])

    def cursors(self) -> dict[str, Any]:
        """The cursors of ``status``."""
        cursors: dict[str, Any] = self.node.status()["cursors"]
        return cursors

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``ledgermq`` with the node's runtime directory."""
        return run_command(*words, "--runtime-dir", str(self.node.runtime))

    def log_bytes(self, since: int = 0) -> bytes:
        """The data files that begin at ``since`` or behind, up to the last byte that is not 0."""
        files = [path for path in self.log_files() if int(path.name) >= since]
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0")

    def log_files(self) -> list[Path]:
        """The data files, each named by the position at which it begins."""
        return sorted((self.node.root / f"dledger-{self.name}" / "data").iterdir())

    def bodies(self) -> list[bytes]:
        """Bodies of the topic's messages, queue by queue, read from the node's files.

        Of a node that runs, what was dispatched before the call (``Group.wait_equal``).
        """
        view = StoreView(self.node.root)
        try:
            return [
                bytes(queued.message.body)
                for queued in view.messages(None, None)
                if queued.queue.topic == TOPIC
            ]
        finally:
            view.close()


class Group:
    """Members by their number."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self._equal_until = 0

    @property
    def addresses(self) -> list[str]:
        """Addresses of all nodes, for clients that look for the leader themselves."""
        return [member.address for member in self.members]

    def up(self) -> list[Member]:
        """Those that run."""
        return [
            member
            for member in self.members
            if member.node.process is not None and member.node.process.poll() is None
        ]

    def leader(self, *, besides: Member | None = None) -> Member:
        """The member that leads and may write; waits until there is one."""

        def led() -> Member | None:
            return next((one for one in self.up() if one is not besides and one.leads), None)

        found: Member = self._await(led, "a leader")
        return found

    def others(self, leader: Member) -> list[Member]:
        """All but one."""
        return [member for member in self.members if member is not leader]

    def wait_equal(self) -> None:
        """Until all that run have dispatched the same end of the log."""

        def is_equal() -> bool:
            statuses = [member.status() for member in self.up()]
            if None in statuses:
                return False
            cursors = [status["cursors"] for status in statuses if status is not None]
            ends = {json.dumps([c["written"]["index"], c["committed"]["index"]]) for c in cursors}
            lags = [c["not_dispatched_bytes"] + c["not_committed_bytes"] for c in cursors]
            self._equal_until = min(int(c["committed"]["position"]) for c in cursors)
            return len(ends) == 1 and not any(lags)

        self._await(is_equal, "the members to be equal")

    def wait_level(self) -> None:
        """Until all that run have dispatched what one of them had committed a moment ago.

        Other than ``wait_equal`` this comes about while clients go on, however long it takes to ask
        the members one after the other.
        """
        wanted = 0

        def is_level() -> bool:
            nonlocal wanted
            statuses = [member.status() for member in self.up()]
            cursors = [status["cursors"] for status in statuses if status is not None]
            if len(cursors) < len(statuses):
                return False
            reached = [int(c["committed"]["position"]) - c["not_dispatched_bytes"] for c in cursors]
            if 0 < wanted <= min(reached):
                self._equal_until = wanted
                return True
            wanted = wanted or max(int(c["committed"]["position"]) for c in cursors)
            return False

        self._await(is_level, "the members to have dispatched what was committed")

    def wait_read(self, wanted: set[bytes]) -> None:
        """Read the topic from its beginning until all of ``wanted`` has come."""
        missing = set(wanted)
        with Consumer(self.addresses, topic=TOPIC, group="audit") as consumer:

            def is_read() -> bool:
                try:
                    missing.difference_update(bytes(one.body) for one in consumer.poll(timeout=1.0))
                except NotLeaderError:
                    # A leader is elected at this moment.
                    return False
                return not missing

            wait_until(is_read, "all that was acknowledged to be read")

    def _await(self, condition: Callable[[], Any], what: str) -> Any:
        """As ``wait_until``; who waits in vain learns what each member said."""
        try:
            return wait_until(condition, what)
        except AssertionError:
            for member in self.up():
                print(f"{member.name}: {json.dumps(member.status())}")
            raise

    def has_one_log(self, *besides: Member, is_retained: bool = True) -> bool:
        """Whether all stopped members, ``besides`` left out, hold the same bytes.

        Of what was there when they were last equal none lacks anything. Behind that a leader that
        was elected while others had stopped already may have begun its term with an entry.

        Args:
            is_retained: nobody deletes old files; else members may begin at different ones.
        """
        members = [member for member in self.members if member not in besides]
        begins = {int(member.log_files()[0].name) for member in members}
        if is_retained and len(begins) > 1:
            return False
        logs = [member.log_bytes(max(begins)) for member in members]
        wanted = self._equal_until - max(begins)
        common = min(map(len, logs))
        # What was equal may end with bytes that are 0.
        logs = [log.ljust(wanted, b"\0")[: max(common, wanted)] for log in logs]
        return len(set(logs)) == 1

    def stop(self) -> list[int]:
        """Stop all that run, the leader last; their exit statuses.

        A leader that finds others hands over, and its successor writes an entry that those which
        have stopped do not get.
        """
        statuses = []
        for member in sorted(self.up(), key=lambda one: one.leads):
            # One that still imports would end by the signal: none is taken before this is there.
            wait_until((member.node.runtime / "control.sock").exists, "a node that takes signals")
            member.node.signal(signal.SIGTERM)
            statuses.append(member.node.wait_end())
        return statuses


@contextmanager
def producer(*members: Member, **options: Any) -> Iterator[Producer]:
    """A producer of one or more members; unless something else is said, it waits as tests do.

    A group of a machine that does much else elects and answers later than an application waits. One
    of the members has begun to listen: where nobody does, a new client does not wait.
    """
    wait_heard(members)
    addresses = [member.address for member in members]
    with Producer(
        addresses if len(addresses) > 1 else addresses[0],
        options=ProducerOptions(**{"timeout_s": PATIENCE_S, **options}),
    ) as made:
        yield made


def wait_heard(members: Sequence[Member]) -> None:
    """Return when one of the members takes connections, or none runs."""

    def is_heard() -> bool:
        running = Group(members).up()
        return not running or any(one.is_heard for one in running)

    wait_until(is_heard, "a member to be heard")


def make_group(
    make_node: Callable[[], Node],
    *,
    members: int = 3,
    ack: str,
    sizes: Mapping[str, int] = SIZES,
    raft: Mapping[str, object] | None = None,
    reads: Mapping[str, object] | None = None,
    scrub: Mapping[str, object] | None = None,
    sinks: Mapping[str, object] | None = None,
    supervision: Mapping[str, object] | None = None,
    network: Network | None = None,
    prepare: Callable[[Member], None] | None = None,
) -> Group:
    """A group that was started, with keys and one topic of four queues.

    Args:
        raft, scrub, sinks, supervision: settings of these tables, besides the keys.
        network: what lies between the members; loopback when left out.
        prepare: called with each member before any is started.
    """
    between = network or Loopback(members)
    names = [f"n{number}" for number in range(members)]
    nodes = [make_node() for _ in names]
    folders = init_keys(nodes[0].folder / "group-keys", [NodeId(name) for name in names])
    made = []
    for number, (name, node, keys) in enumerate(zip(names, nodes, folders, strict=True)):
        peers, prefix = between.peers(number), between.prefix(number)
        made.append(
            _make_member(
                node, name, peers, keys,
                ack=ack, sizes=sizes, raft={**between.raft, **(raft or {})}, reads=reads,
                scrub=scrub, sinks=sinks, supervision=supervision, prefix=prefix,
            )
        )  # fmt: skip
    for member in made:
        if prepare is not None:
            prepare(member)
    for member in made:
        member.start()
    wait_heard(made)
    return Group(made)


def make_growing_group(
    make_node: Callable[[], Node],
    *,
    first: int,
    members: int,
    prefix: Sequence[str] = (),
    prepare: Callable[[Member], None] | None = None,
) -> Group:
    """A group of ``first`` members that were started, and nodes that may join them.

    Args:
        prefix: words before the commands that start the first ones.
        prepare: called with each of the first ones before it is started.
    """
    ports = [free_port() for _ in range(members)]
    names = [f"n{number}" for number in range(members)]
    peers = [f"{name}-127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)]
    nodes = [make_node() for _ in names]
    folders = init_keys(nodes[0].folder / "group-keys", [NodeId(name) for name in names])
    made = []
    for number, (name, node, keys) in enumerate(zip(names, nodes, folders, strict=True)):
        known, state = (peers[:first], "new") if number < first else (peers, "existing")
        made.append(
            _make_member(
                node, name, known, keys,
                ack="majority-fsync", initial_cluster_state=state,
                prefix=prefix if number < first else (),
            )
        )  # fmt: skip
        made[-1].peer_address = peers[number].partition("-")[2]
    for member in made[:first]:
        if prepare is not None:
            prepare(member)
        member.start()
    wait_heard(made)
    return Group(made)


def _make_member(
    node: Node,
    name: str,
    peers: Sequence[str],
    keys: Path,
    *,
    ack: str,
    sizes: Mapping[str, int] = SIZES,
    raft: Mapping[str, object] | None = None,
    reads: Mapping[str, object] | None = None,
    scrub: Mapping[str, object] | None = None,
    sinks: Mapping[str, object] | None = None,
    supervision: Mapping[str, object] | None = None,
    prefix: Sequence[str] = (),
    **about: str,
) -> Member:
    node.configure(
        node={"self_id": name, "peers": peers, **about},
        store=dict(sizes),
        ack={"mode": ack},
        raft={"keys_dir": str(keys), **(raft or {})},
        reads=dict(reads or {}),
        scrub=dict(scrub or {}),
        sinks=dict(sinks or {}),
        # Tests kill processes more often than an operator would stand.
        supervision={"restarts_max": 1_000, **(supervision or {})},
    )
    config = node.root / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(topics_document(TOPIC))
    return Member(node, name, prefix)


def add_settings(member: Member, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Put settings into the tables that a member's file has already, or into new ones."""
    text = member.node.config.read_text()
    for table, keys in tables.items():
        # What JSON writes of strings, numbers, booleans and lists is TOML, too.
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        heading = f"[{table}]\n"
        if heading in text:
            text = text.replace(heading, heading + lines)
        else:
            text += heading + lines
    member.node.config.write_text(text)


class PortClaims:
    """Ports that were chosen by one process of pytest, as the others see: a lock each, in one file.

    It is kept as long as the process lives: a node may listen seconds after its port was chosen,
    and again after it was killed. Another test's node in its place would have it end at its start.
    """

    def __init__(self, path: Path) -> None:
        # Opened once: who closes any descriptor of the file gives up all that the process has.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._chosen: set[int] = set()

    def take(self, port: int) -> bool:
        """Whether nobody has chosen it before."""
        if port in self._chosen:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except BlockingIOError:
            return False
        self._chosen.add(port)
        return True


_claims = PortClaims(Path(tempfile.gettempdir(), f"ledgermq-test-ports-{os.getuid()}"))


def free_port(count: int = 1, hosts: Sequence[str] = ("127.0.0.1",)) -> int:
    """A port that nobody has now, that no connection is given in the meantime, and no other test;
    the first of ``count`` such ones in a row, at each of ``hosts``.

    The system takes its own choices from 32768 on, and RocketMQ's brokers, where it runs beside
    ours, from 30911 on. A node with a port for RocketMQ's clients takes the one two below, too:
    nobody else gets that one.
    """
    while True:
        first = secrets.randbelow(18_000) + 12_000
        ports = range(first, first + count)
        with ExitStack() as bound, suppress(OSError):
            for host, port in itertools.product(hosts, ports):
                bound.enter_context(socket.socket()).bind((host, port))
            beside = {port - VIP_DISTANCE for port in ports}
            if all(_claims.take(port) for port in sorted(beside.union(ports))):
                return first

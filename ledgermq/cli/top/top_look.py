"""Snapshot of a cluster for ``top``: the reports of all nodes at one moment.

A node that is away costs the others nothing: it is asked by a thread of its own, and nobody waits
for it beyond the time of one look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from ledgermq.client.admin.broker_admins import ArchiveAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.members.mirrors.mirror_figures import mirror_of_mark
from ledgermq.model.errors import LedgerError

if TYPE_CHECKING:
    from ledgermq.broker.administration.node_calls import GroupReport, NodeReport

NAME = "ledgermq top"


class NodeLook(NamedTuple):
    """What a node told; ``report`` is ``None`` when it did not, and ``why`` says why.

    ``name``: what it called itself the last time it did, else empty.
    """

    address: str
    name: str
    report: NodeReport | None
    why: str


class GroupsLook(NamedTuple):
    """What the leader told of consumer groups: those with the most messages that wait.

    ``total`` and ``lag`` are of all groups, which are not all looked at before ``complete``.
    """

    groups: Sequence[GroupReport] = ()
    total: int = 0
    lag: int = 0
    complete: bool = True
    why: str = ""


class MirrorLook(NamedTuple):
    """A mirror at another site, by what it has told: ``behind`` are bytes of the log that it lacks,
    ``at_ms`` is when it has said so.
    """

    mirror: str
    position: int
    behind: int
    at_ms: int


class MirrorsLook(NamedTuple):
    """What the leader told of mirrors, for which its log is kept; ``why``: why there are none."""

    mirrors: Sequence[MirrorLook] = ()
    why: str = ""


class Look(NamedTuple):
    """All of it; ``at_ms`` is epoch milliseconds."""

    at_ms: int
    nodes: Sequence[NodeLook]
    groups: GroupsLook
    mirrors: MirrorsLook = MirrorsLook()


class ClusterLooks:
    """Asks the nodes at some addresses, again and again; a context."""

    def __init__(self, addresses: Sequence[str], *, timeout_s: float, groups: int) -> None:
        """Connections, which are made with the first look.

        Args:
            addresses: one of each node.
            timeout_s: a node that does not answer for so long is away.
            groups: so many consumer groups are told.

        Raises:
            ConfigError: an address cannot be one.
        """
        self._addresses = list(addresses)
        self._timeout_s = timeout_s
        self._groups = groups
        self._stack = ExitStack()
        # Entered last, so left first: no connection is closed while its thread uses it.
        self._brokers = [
            self._stack.enter_context(connect_broker(one, name=NAME, timeout_s=timeout_s))
            for one in self._addresses
        ]
        self._threads = self._stack.enter_context(ThreadPoolExecutor(len(self._addresses)))
        self._asked: dict[int, Future[NodeReport]] = {}
        self._names: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self) -> Look:
        """What the nodes tell now; returns within twice the time that one may take."""
        at_ms = time.time_ns() // 1_000_000
        for number, broker in enumerate(self._brokers):
            if number not in self._asked:
                self._asked[number] = self._threads.submit(_report, broker)
        wait(self._asked.values(), timeout=self._timeout_s)
        nodes = [self._outcome(number) for number in range(len(self._brokers))]
        return Look(at_ms, nodes, *self._told_by_leader(nodes))

    def _outcome(self, number: int) -> NodeLook:
        address, asked = self._addresses[number], self._asked[number]
        name = self._names.get(address, "")
        if not asked.done():
            return NodeLook(address, name, None, "no answer")
        del self._asked[number]
        error = asked.exception()
        if error is None:
            report = asked.result()
            self._names[address] = report["node"]["self_id"]
            return NodeLook(address, self._names[address], report, "")
        if isinstance(error, LedgerError):
            return NodeLook(address, name, None, error.message)
        raise error

    def _told_by_leader(self, nodes: Sequence[NodeLook]) -> tuple[GroupsLook, MirrorsLook]:
        """Asked of who leads in the highest term; members of groups are known to it alone."""
        number = leader_of(nodes)
        if number is None:
            why = "a mirror has none" if _are_mirrors(nodes) else "no node leads"
            return GroupsLook(why=why), MirrorsLook()
        asked = self._threads.submit(_told, self._brokers[number], self._groups)
        try:
            return asked.result(timeout=self._timeout_s)
        except TimeoutError:
            # It is asked for nodes again when this has ended: one thread may ask at a time.
            self._asked[number] = self._threads.submit(_after, asked, self._brokers[number])
            why = "the leader did not answer"
            return GroupsLook(why=why), MirrorsLook(why=why)


def leader_of(nodes: Sequence[NodeLook]) -> int | None:
    """The place of the node that leads in the highest term, ``None`` when none does."""
    leaders = [
        (node.report["raft"]["term"], number)
        for number, node in enumerate(nodes)
        if node.report is not None and node.report["raft"]["role"] == "leader"
    ]
    return max(leaders)[1] if leaders else None


def is_mirror(report: NodeReport) -> bool:
    """Whether a node is a mirror: only of one it is never 0 how long it has lacked something."""
    # A node of an older version may count no such thing.
    return report["counters"].get("raft", {}).get("mirror_lag_seconds", 0) > 0


def _are_mirrors(nodes: Sequence[NodeLook]) -> bool:
    reports = [node.report for node in nodes if node.report is not None]
    return bool(reports) and all(is_mirror(report) for report in reports)


class ClusterWatch:
    """Looks in a thread of its own every ``interval_s``, and tells when there is a new one.

    Attributes:
        paused: no new looks are taken while it is set.
    """

    def __init__(self, looks: ClusterLooks, *, interval_s: float, tell: Callable[[], None]) -> None:
        self._looks = looks
        self._interval_s = interval_s
        self._tell = tell
        self._lock = Lock()
        self._latest: Look | None = None
        self._error: Exception | None = None
        self._stop = Event()
        self.paused = False
        self._thread = Thread(target=self._run, name="looks", daemon=True)
        self._thread.start()

    def take(self) -> Look | None:
        """The newest look that was not taken yet.

        Raises:
            Exception: what ended the thread.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            latest, self._latest = self._latest, None
            return latest

    def close(self) -> None:
        """Take no more; returns when the last look is over."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self.paused:
                    latest = self._looks.look()
                    with self._lock:
                        self._latest = latest
                    self._tell()
                self._stop.wait(self._interval_s)
        except Exception as error:
            # Nobody sees what a thread raises: whoever takes the next look does.
            with self._lock:
                self._error = error
            self._tell()


def _report(broker: Broker) -> NodeReport:
    return cast("NodeReport", broker.call("node_report"))


def _told(broker: Broker, count: int) -> tuple[GroupsLook, MirrorsLook]:
    return _groups(broker, count), _mirrors(broker)


def _mirrors(broker: Broker) -> MirrorsLook:
    try:
        archives = ArchiveAdmin(broker).archives()
    except LedgerError as error:
        return MirrorsLook(why=error.message)
    return MirrorsLook(
        [
            MirrorLook(mirror, row.position, row.behind, row.at_ms)
            for row in archives
            if (mirror := mirror_of_mark(row.archive))
        ]
    )


def _groups(broker: Broker, count: int) -> GroupsLook:
    try:
        told = broker.call("group_lags", count=count)
    except LedgerError as error:
        return GroupsLook(why=error.message)
    groups = cast("Sequence[GroupReport]", told["groups"])
    return GroupsLook(
        groups, cast("int", told["count"]), cast("int", told["lag"]), bool(told["complete"])
    )


def _after(before: Future[tuple[GroupsLook, MirrorsLook]], broker: Broker) -> NodeReport:
    wait([before])
    return _report(broker)

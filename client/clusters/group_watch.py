"""Watch of a cluster's groups: which there are, which of them answer, and who has which topic.

One thread for all groups, with a connection to the broker of each; no group waits for another one's
answer. What a group has said last is good until it says something else.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import zmq

from ledgermq.client.blocking.send_driver import POLL_S_MAX, PollerBell
from ledgermq.client.clusters.known_groups import (
    KnownGroups,
    NamedGroup,
    groups_request,
    known_groups,
)
from ledgermq.client.clusters.topic_groups import TopicGroups
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.connection import Context
from ledgermq.client.core.nodes import broker_link
from ledgermq.client.core.questions import PERMIT_READ, PERMIT_WRITE, route_of
from ledgermq.client.core.requests import Request, RequestPipeline, call_request, call_result
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    NoPermissionError,
    ProtocolError,
    TopicUnknownError,
)

logger = logging.getLogger(__name__)

LOOK_S = 30.0
"""Groups, and what has a topic, are asked for again so often; as a topic's queues are."""

ANSWER_S = 10.0
"""After so long without an answer a group is asked anew."""

AGAIN_S = 1.0
"""After a failure it is asked again no sooner."""


class WatchedGroup:
    """One group; all but ``name`` and ``address`` belongs to the watch.

    Attributes:
        name: empty before it is known: a node's address says nothing of it.
        address: of its nodes, as clients take it.
        queues: of each topic that it was asked for; 0: it takes no messages of that.
    """

    def __init__(self, name: str, address: str, *, client: str) -> None:
        """A group that is not asked for anything yet.

        Raises:
            ConfigError: the address cannot be one.
        """
        self.name = name
        self.address = address
        context: Context = zmq.Context.instance()
        self.requests = RequestPipeline(
            broker_link(context, parse_addresses(address), client=client)
        )
        self.queues: dict[str, int] = {}
        self.look_at: dict[str, float] = {}
        self.tell_at = 0.0

    @property
    def answers(self) -> bool:
        """Whether a session stands with its leader's broker."""
        return self.requests.link.welcome is not None


class GroupWatch:
    """See the module. ``groups`` and ``topic_groups`` may be asked by any thread.

    Invariant: links and questions are touched by the watch's own thread alone.

    Attributes:
        alone: name of the only group that there is; empty: there are several, or none is known.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        client: str,
        keys: Mapping[str, str] | None = None,
        reads: bool = False,
    ) -> None:
        """Begin to watch.

        Args:
            addresses: of nodes of one group each; one group that answers is enough.
            keys: file of keys for a group by its name; others are reached with that of the address
                which told of them.
            reads: the queues that are counted are those to read, and not those to write.

        Raises:
            ConfigError: an address cannot be one.
        """
        self._client = client
        self._reads = reads
        self._keys = keys or {}
        self._own_keys = parse_addresses(addresses[0])[0].keys
        self._seeds = [WatchedGroup("", one, client=client) for one in addresses]
        self._groups: dict[str, WatchedGroup] = {}
        self._left: set[str] = set()
        self._unreachable: set[str] = set()
        self.alone = ""
        self._number: int | None = None
        self._teller: WatchedGroup | None = None
        self._topics: set[str] = set()
        self._said: dict[str, TopicGroups] = {}
        self._answering: list[bool] = []
        self._gone: list[WatchedGroup] = []
        self._news = threading.Condition()
        self._bell = PollerBell()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=f"{client}-groups", daemon=True)
        self._thread.start()

    def groups(self) -> list[WatchedGroup]:
        """The groups that are known now, by their names."""
        with self._news:
            return [self._groups[name] for name in sorted(self._groups) if name not in self._left]

    @property
    def first(self) -> WatchedGroup:
        """The group of the first address that has answered; there is one."""
        with self._news:
            return next(iter(self._groups.values()))

    def group(self, name: str) -> WatchedGroup | None:
        """The group of this name, if it is known now."""
        with self._news:
            return None if name in self._left else self._groups.get(name)

    def unreachable(self) -> LedgerError:
        """What to tell who waited in vain for any group to answer."""
        with self._news:
            first = next(iter(self._watched()))
            return first.requests.link.unreachable()

    def topic_groups(self, topic: str) -> TopicGroups:
        """What the groups have said of a topic so far; it is asked for from now on."""
        with self._news:
            if topic not in self._topics:
                self._topics.add(topic)
                self._bell.ring()
            return self._said_of(topic)

    def wait_for(
        self, topic: str, enough: Callable[[TopicGroups], bool], until: float
    ) -> TopicGroups:
        """What the groups have said of a topic when that is ``enough``, or at ``until``."""
        self.topic_groups(topic)
        with self._news:
            while True:
                said, seconds = self._said_of(topic), until - time.monotonic()
                known = bool(self._groups)
                if (known and enough(said)) or seconds <= 0 or self._is_closing:
                    return said
                self._news.wait(min(seconds, POLL_S_MAX))

    def look_again(self, topic: str) -> None:
        """Ask all groups for a topic soon: it was made, or is another one."""
        with self._news:
            for group in self._groups.values():
                group.look_at.pop(topic, None)
        self._bell.ring()

    def close(self) -> None:
        """End the thread, and say goodbye to all nodes."""
        with self._news:
            self._is_closing = True
            self._news.notify_all()
        self._bell.ring()
        self._thread.join()

    def _said_of(self, topic: str) -> TopicGroups:
        said = self._said.get(topic)
        if said is None:
            told: dict[str, int | None] = dict.fromkeys(self._unreachable)
            for name, group in self._groups.items():
                if name not in self._left:
                    told[name] = group.queues.get(topic)
            said = self._said[topic] = TopicGroups.of(told)
        return said

    def _watched(self) -> list[WatchedGroup]:
        return [*self._seeds, *self._groups.values()]

    def _run(self) -> None:
        try:
            while not self._is_closing:
                now = time.monotonic()
                for group in self._watched():
                    group.requests.advance(now)
                self._ask_who_is_there(now)
                self._ask_for_topics(now)
                self._tell_who_answers()
                self._sleep(now)
        finally:
            for group in [*self._gone, *self._watched()]:
                group.requests.link.close()

    def _tell_who_answers(self) -> None:
        while self._gone:
            self._gone.pop().requests.link.close()
        answering = [group.answers for group in self._watched()]
        if answering != self._answering:
            self._answering = answering
            with self._news:
                self._news.notify_all()

    def _sleep(self, now: float) -> None:
        poll, until = select.poll(), now + POLL_S_MAX
        poll.register(self._bell.descriptor, select.POLLIN)
        for group in self._watched():
            until = min(until, self._due_at(group, now))
            for descriptor in group.requests.link.descriptors:
                poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, until - time.monotonic()) * 1_000)
        self._bell.clear()

    def _due_at(self, group: WatchedGroup, now: float) -> float:
        if group.requests.link.failure is not None:
            # Only a name of hosts may still come to stand for something.
            return now + AGAIN_S
        due_at = group.requests.deadline
        if not group.answers:
            return due_at
        if self._tells(group):
            due_at = min(due_at, group.tell_at)
        if not group.name:
            return due_at
        with self._news:
            return min([due_at, *(group.look_at.get(one, 0.0) for one in self._topics)])

    def _tells(self, group: WatchedGroup) -> bool:
        """Whether it is asked for the others: one that is known by no name, and one more."""
        return not group.name or group is self._teller

    def _ask_who_is_there(self, now: float) -> None:
        if self._teller is not None and not self._teller.answers:
            self._teller = None
        if self._teller is None:
            there = (one for one in self._groups.values() if one.answers)
            self._teller = next(there, None)
        for group in self._watched():
            if self._tells(group) and group.answers and group.tell_at <= now:
                group.tell_at = now + LOOK_S
                request = groups_request(self._number, deadline=now + ANSWER_S)
                request.callback = partial(self._take_groups, group)
                group.requests.ask(request)
                group.requests.advance(now)

    def _take_groups(self, teller: WatchedGroup, request: Request) -> None:
        try:
            told = known_groups(request)
        except ProtocolError as error:
            welcome = teller.requests.link.last_welcome
            if welcome is None:
                teller.tell_at = time.monotonic() + AGAIN_S
                return
            # A node from before there were clusters: its group is alone.
            logger.info("node tells of no cluster", extra={"reason": str(error)})
            told = KnownGroups(welcome.broker, "", 0, None)
        except LedgerError:
            teller.tell_at = time.monotonic() + AGAIN_S
            return
        if told.cluster and not told.number:
            # It has joined, and has not been sent the rows: nobody knows how many groups there are.
            teller.tell_at = time.monotonic() + AGAIN_S
            return
        with self._news:
            self._take_name(teller, told.group)
            if told.groups is not None and told.cluster:
                self._take_rows(told.groups, own=told.group)
                self._number = told.number
            others = len(self._seeds) + len(self._unreachable) + len(self._groups) - 1
            self.alone = "" if others else told.group
            self._said.clear()
            self._news.notify_all()

    def _take_name(self, teller: WatchedGroup, name: str) -> None:
        if teller.name:
            return
        self._seeds.remove(teller)
        if name in self._groups:
            # Two addresses of one group. Its answer is being taken: it is closed after that.
            self._gone.append(teller)
            return
        teller.name = name
        self._groups[name] = teller

    def _take_rows(self, groups: Sequence[NamedGroup], *, own: str) -> None:
        names = {group.name for group in groups} | {own}
        self._unreachable.clear()
        self._left = {name for name in self._groups if name not in names}
        for group in groups:
            if group.name in self._groups:
                continue
            nodes = [node for node in group.nodes if node.startswith("tcp://")]
            keys = self._keys.get(group.name, self._own_keys)
            address = ",".join(f"{node}?keys={keys}" if keys else node for node in nodes)
            try:
                found = WatchedGroup(group.name, address, client=self._client)
            except ConfigError as error:
                logger.warning(
                    "group cannot be reached", extra={"group": group.name, "reason": str(error)}
                )
                self._unreachable.add(group.name)
                continue
            self._groups[group.name] = found

    def _ask_for_topics(self, now: float) -> None:
        with self._news:
            wanted = [
                (group, topic)
                for group in self._groups.values()
                if group.answers
                for topic in self._topics
                if group.look_at.get(topic, 0.0) <= now
            ]
            for group, topic in wanted:
                group.look_at[topic] = now + LOOK_S
        for group, topic in wanted:
            arguments: dict[str, object] = {"topic": topic, "create": False}
            request = call_request("route", arguments, deadline=now + ANSWER_S)
            request.callback = partial(self._take_route, group, topic)
            group.requests.ask(request)
        for group in {id(group): group for group, _ in wanted}.values():
            group.requests.advance(now)

    def _take_route(self, group: WatchedGroup, topic: str, request: Request) -> None:
        try:
            route = route_of(call_result(request))
            if self._reads:
                queues = route.read_queues if route.perm & PERMIT_READ else 0
            else:
                queues = route.write_queues if route.perm & PERMIT_WRITE else 0
        except (TopicUnknownError, NoPermissionError):
            queues = 0
        except LedgerError:
            with self._news:
                group.look_at[topic] = time.monotonic() + AGAIN_S
            return
        with self._news:
            group.queues[topic] = max(0, queues)
            self._said.pop(topic, None)
            self._news.notify_all()

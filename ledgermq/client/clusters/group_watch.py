"""Watch of a cluster's groups: which there are, which of them answer, and who has which topic.

One thread for all groups, with a connection to the broker of each; no group waits for another one's
answer. What a group has said last is good until it says something else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import zmq

from ledgermq.client.clusters.told_topics import (
    OVER_NONE,
    ROW_ANSWER_S,
    ROW_LOOK_S,
    AskedTopic,
    ToldTopic,
)
from ledgermq.client.clusters.topic_groups import TopicGroups
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.connection import Context
from ledgermq.client.core.known_groups import (
    KnownGroups,
    NamedGroup,
    groups_request,
    known_groups,
)
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import broker_link
from ledgermq.client.core.questions import PERMIT_READ, PERMIT_WRITE, route_of
from ledgermq.client.core.requests import Request, RequestPipeline, call_request, call_result
from ledgermq.hosts.wake_bell import SLEEP_S_MAX, new_bell, wait_for_descriptors
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

ASKED_AGAIN_S = 1.0
"""After a failure it is asked again no sooner."""

MOVED_S = 10.0
"""A group that does not answer for so long is looked for where the rows say that it is now."""


class WatchedGroup:
    """One group; all but ``name`` and ``address`` belongs to the watch.

    Attributes:
        name: empty before it is known: a node's address says nothing of it.
        address: of its nodes, as clients take it.
        elsewhere: another address of its nodes: what the rows say now, or what was tried before;
            empty: there is none.
        queues: of each topic that it was asked for; 0: it takes no messages of that.
        before: the same, of topics for which it is asked anew after a while, until it answers.
        is_replaced: another one of its name is there, at other nodes.
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
            # Of a group that others tell of a node was there: it is waited for.
            broker_link(context, parse_addresses(address), client=client, is_watchful=not name)
        )
        self.elsewhere = ""
        self.queues: dict[str, int] = {}
        self.before: dict[str, int] = {}
        self.look_at: dict[str, float] = {}
        self.tell_at = 0.0
        self.answered_at = time.monotonic()
        self.is_replaced = False

    @property
    def answers(self) -> bool:
        """Whether a session stands with its leader's broker."""
        return self.requests.link.welcome is not None

    def note_address(self, told: str) -> None:
        """The rows say that its nodes are there.

        Raises:
            ConfigError: it is no address.
        """
        if _endpoints(told) != _endpoints(self.address):
            self.elsewhere = told

    def ask_anew(self, topic: str) -> None:
        """Ask for a topic at once; what was said of it counts again if there is no answer."""
        self.look_at.pop(topic, None)
        if self.answers and topic in self.queues:
            self.before[topic] = self.queues.pop(topic)


class GroupWatch:
    """The groups of a cluster, as they are known now.

    ``groups`` and ``topic_groups`` may be asked by any thread.

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
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to watch.

        Args:
            addresses: of nodes of one group each; one group that answers is enough.
            keys: file of keys for a group by its name; others are reached with that of the address
                which told of them.
            reads: the queues that are counted are those to read, and not those to write.
            on_news: called by the thread of the watch when a group says something, or falls silent.

        Raises:
            ConfigError: an address cannot be one.
        """
        self._client = client
        self._reads = reads
        self._on_news = on_news
        self._keys = keys or {}
        self._own_keys = parse_addresses(addresses[0])[0].keys
        self._seeds = [WatchedGroup("", one, client=client) for one in addresses]
        self._groups: dict[str, WatchedGroup] = {}
        self._left: set[str] = set()
        self._cluster = ""
        self._unreachable: set[str] = set()
        self.alone = ""
        self._number: int | None = None
        self._teller: WatchedGroup | None = None
        self._topics: dict[str, float] = {}
        self._rows: dict[str, AskedTopic] = {}
        self._said: dict[str, TopicGroups] = {}
        self._answering: list[bool] = []
        self._gone: list[WatchedGroup] = []
        self._news = threading.Condition()
        self._bell = new_bell()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=f"{client}-groups", daemon=True)
        self._thread.start()

    def groups(self) -> list[WatchedGroup]:
        """The groups that are known now, by their names."""
        with self._news:
            return [self._groups[name] for name in sorted(self._groups) if name not in self._left]

    def wait_for_groups(self, until: float, *, whole: bool = False) -> list[WatchedGroup]:
        """The groups, once somebody has told which there are.

        Args:
            whole: of groups that are in no cluster, each address has to tell its own.

        Raises:
            NotLeaderError: nobody has at ``until``.
        """

        def are_known() -> bool:
            if not self._cluster and whole and self._seeds:
                return False
            return bool(self._groups) and bool(self._number or not self._cluster)

        with self._news:
            if not self._news.wait_for(are_known, max(0.0, until - time.monotonic())):
                raise self.unreachable()
            return self.groups()

    def wait_for_answers(self, until: float) -> None:
        """Return when all groups answer that are known, or at ``until``."""
        with self._news:
            self._news.wait_for(
                lambda: all(group.answers for group in self.groups()),
                max(0.0, until - time.monotonic()),
            )

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
        """What the groups have said of a topic so far.

        It is asked for as long as somebody calls this within ``LOOK_S``, and anew after a pause.
        """
        now = time.monotonic()
        with self._news:
            used_at = self._topics.get(topic, NEVER)
            self._topics[topic] = now
            if now - used_at > LOOK_S or used_at == NEVER:
                self._ask_anew(topic)
            return self._said_of(topic)

    def wait_for(
        self, topic: str, enough: Callable[[TopicGroups], bool], until: float
    ) -> TopicGroups:
        """What the groups have said of a topic when that is ``enough``, or at ``until``."""
        with self._news:
            while True:
                said, seconds = self._said_of(topic), until - time.monotonic()
                known = bool(self._groups)
                if (known and enough(said)) or seconds <= 0 or self._is_closing:
                    return said
                self._topics[topic] = time.monotonic()
                self._news.wait(min(seconds, LOOK_S / 2))

    def look_again(self, topic: str) -> None:
        """Ask all groups for a topic soon: it was made, or is another one."""
        with self._news:
            self._ask_anew(topic)

    def close(self) -> None:
        """End the thread, and say goodbye to all nodes."""
        with self._news:
            self._is_closing = True
            self._news.notify_all()
        self._bell.ring()
        self._thread.join()

    def _tell(self) -> None:
        """There are news."""
        with self._news:
            self._news.notify_all()
        self._on_news()

    def _ask_anew(self, topic: str) -> None:
        for group in self._groups.values():
            group.ask_anew(topic)
        self._rows.setdefault(topic, AskedTopic()).ask_anew()
        self._said.pop(topic, None)
        self._bell.ring()

    def _said_of(self, topic: str) -> TopicGroups:
        said = self._said.get(topic)
        if said is None:
            told: dict[str, int | None] = dict.fromkeys(self._unreachable)
            for name, group in self._groups.items():
                if name not in self._left:
                    told[name] = group.queues.get(topic)
            row = self._rows.get(topic)
            good_until = NEVER if row is None else row.good_until
            said = TopicGroups.of(told, self._row_of(topic), good_until=good_until)
            self._said[topic] = said
        return said

    def _row_of(self, topic: str) -> ToldTopic | None:
        """What the rows say of a topic; None: nobody has told it yet."""
        if self._reads or not self._cluster:
            # Also what is in a group that takes nothing any more is read.
            return OVER_NONE
        row = self._rows.get(topic)
        return None if row is None or row.is_old else row.told

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
                self._ask_for_rows(now)
                self._look_for_the_moved(now)
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
            self._tell()

    def _look_for_the_moved(self, now: float) -> None:
        for name, group in [*self._groups.items()]:
            if group.answers:
                group.answered_at = now
            elif group.elsewhere and now >= group.answered_at + MOVED_S:
                found = WatchedGroup(name, group.elsewhere, client=self._client)
                # It may only have been away: the two addresses take turns until one answers.
                found.elsewhere = group.address
                # What it said last is good until it says something else.
                found.queues = group.queues | group.before
                with self._news:
                    group.is_replaced = True
                    self._groups[name] = found
                    self._gone.append(group)

    def _sleep(self, now: float) -> None:
        descriptors, until = [self._bell.descriptor], now + SLEEP_S_MAX
        for group in self._watched():
            until = min(until, self._due_at(group, now))
            descriptors += group.requests.link.descriptors
        wait_for_descriptors(descriptors, until - time.monotonic())
        self._bell.clear()

    def _due_at(self, group: WatchedGroup, now: float) -> float:
        if group.requests.link.failure is not None:
            # Only a name of hosts may still come to stand for something.
            return now + ASKED_AGAIN_S
        due_at = group.requests.deadline
        if not group.answers:
            return min(due_at, group.answered_at + MOVED_S) if group.elsewhere else due_at
        if self._tells(group):
            due_at = min(due_at, group.tell_at)
        if not group.name:
            return due_at
        with self._news:
            used = self._topics_in_use(now)
            looks = [group.look_at.get(one, 0.0) for one in used]
            if group is self._rows_teller:
                looks += [self._rows[one].look_at for one in used]
        return min([due_at, *looks])

    def _tells(self, group: WatchedGroup) -> bool:
        """Whether it is asked for the others: one that is known by no name, and one more."""
        return not group.name or group is self._teller

    @property
    def _rows_teller(self) -> WatchedGroup | None:
        """The group that is asked for rows of topics; it is known to have rows."""
        return self._teller if self._number and not self._reads else None

    def _topics_in_use(self, now: float) -> list[str]:
        return [topic for topic, used_at in self._topics.items() if now - used_at <= LOOK_S]

    def _ask_who_is_there(self, now: float) -> None:
        teller = self._teller
        if teller is not None and (not teller.answers or teller.name in self._left):
            self._teller = None
        if self._teller is None:
            there = (
                one for name, one in self._groups.items() if one.answers and name not in self._left
            )
            self._teller = next(there, None)
            self._ask_for_rows_anew()
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
            if welcome is None or self._cluster:
                teller.tell_at = time.monotonic() + ASKED_AGAIN_S
                return
            # A node from before there were clusters: its group is alone.
            logger.info("node tells of no cluster", extra={"reason": str(error)})
            told = KnownGroups(welcome.broker, "", 0, None)
        except LedgerError:
            teller.tell_at = time.monotonic() + ASKED_AGAIN_S
            return
        if told.cluster and not told.number:
            # It has joined, and has not been sent the rows: nobody knows how many groups there are.
            teller.tell_at = time.monotonic() + ASKED_AGAIN_S
            return
        with self._news:
            self._take(teller, told)
            count = len(self._seeds) + len(self._unreachable) + len(self._groups)
            self.alone = next(iter(self._groups)) if count == len(self._groups) == 1 else ""
            self._said.clear()
        self._tell()

    def _take(self, teller: WatchedGroup, told: KnownGroups) -> None:
        if self._is_elsewhere(teller, told):
            logger.warning(
                "group is not of the cluster of the others, and is left out",
                extra={"group": told.group, "cluster": told.cluster, "others": self._cluster},
            )
            if teller.name:
                self._left.add(teller.name)
            else:
                self._seeds.remove(teller)
                self._gone.append(teller)
            return
        if told.cluster != self._cluster:
            self._cluster, self._number = told.cluster, None
            self._rows = {topic: AskedTopic() for topic in self._rows}
        self._take_name(teller, told.group)
        if told.groups is not None and told.cluster:
            self._take_rows(told.groups, own=told.group)
            self._number = told.number
            # One of those of topics may be what has changed.
            self._ask_for_rows_anew()

    def _is_elsewhere(self, teller: WatchedGroup, told: KnownGroups) -> bool:
        """Whether a node's group belongs to another cluster than the others, or to none."""
        if told.cluster == self._cluster:
            return False
        others = [name for name in self._groups if name not in self._left and name != teller.name]
        return bool(others)

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
            keys = self._keys.get(group.name, self._own_keys)
            address = ",".join(f"{node}?keys={keys}" if keys else node for node in group.nodes)
            try:
                if group.name in self._groups:
                    self._groups[group.name].note_address(address)
                else:
                    self._groups[group.name] = WatchedGroup(
                        group.name, address, client=self._client
                    )
            except ConfigError as error:
                logger.warning(
                    "group cannot be reached", extra={"group": group.name, "reason": str(error)}
                )
                if group.name not in self._groups:
                    self._unreachable.add(group.name)

    def _ask_for_topics(self, now: float) -> None:
        with self._news:
            wanted = [
                (group, topic)
                for group in self._groups.values()
                if group.answers
                for topic in self._topics_in_use(now)
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
                group.look_at[topic] = time.monotonic() + ASKED_AGAIN_S
                if topic not in group.before:
                    return
                queues = group.before[topic]
        with self._news:
            group.before.pop(topic, None)
            group.queues[topic] = max(0, queues)
            self._said.pop(topic, None)
        self._tell()

    def _ask_another(self, teller: WatchedGroup) -> None:
        """Have another group tell of rows, where one answers: this one has not."""
        others = (
            one
            for name, one in self._groups.items()
            if one is not teller and one.answers and name not in self._left
        )
        if teller is self._teller:
            self._teller = next(others, teller)

    def _ask_for_rows_anew(self) -> None:
        with self._news:
            for row in self._rows.values():
                row.look_at = 0.0

    def _ask_for_rows(self, now: float) -> None:
        teller = self._rows_teller
        if teller is None or not teller.answers:
            return
        with self._news:
            wanted = [
                (topic, row)
                for topic in self._topics_in_use(now)
                if (row := self._rows[topic]).look_at <= now
            ]
            for topic, row in wanted:
                row.look_at = now + min(ROW_LOOK_S, LOOK_S)
                request = row.request(topic, deadline=now + ROW_ANSWER_S)
                request.callback = partial(self._take_row, topic, row, teller, now)
                teller.requests.ask(request)
        if wanted:
            teller.requests.advance(now)

    def _take_row(
        self, topic: str, row: AskedTopic, teller: WatchedGroup, asked_at: float, request: Request
    ) -> None:
        with self._news:
            try:
                if not row.take(request, asked_at=asked_at):
                    row.look_at = time.monotonic() + ASKED_AGAIN_S
                    return
            except (ProtocolError, NoPermissionError):
                # A node that tells none, as one from before there were rows, or not to this client.
                row.told, row.is_old = row.told or OVER_NONE, False
            except LedgerError:
                row.look_at = time.monotonic() + ASKED_AGAIN_S
                row.is_old = False
                self._ask_another(teller)
            self._said.pop(topic, None)
        self._tell()


def seeds_of(addresses: str | Sequence[str]) -> list[str]:
    """Addresses as a ``GroupWatch`` takes them, one text for each group.

    Raises:
        ConfigError: there is none.
    """
    seeds = [addresses] if isinstance(addresses, str) else list(addresses)
    if not seeds:
        raise ConfigError("no address of a node")
    return seeds


def _endpoints(address: str) -> set[str]:
    return {place.consume for place in parse_addresses(address)}

"""Heartbeats of a group member, and the view of the group that they bring back.

Never blocks, has no thread and no clock: ``GroupConsumer`` drives it in a thread of its own,
``AsyncGroupConsumer`` in its loop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledgermq.client.core.requests import Request, RequestPipeline, call_result
from ledgermq.client.groups.allocation import GroupView, TopicQueue
from ledgermq.model.errors import LedgerError, ProtocolError
from ledgermq.verbs.answers import integer
from ledgermq.wire.header import Kind
from ledgermq.wire.session import encode_call

GOODBYE_S = 2.0
"""A member that leaves waits at most so long for the answer."""

HEARTBEAT_S_DEFAULT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatState:
    """What a member says of itself; see ``GroupConsumer``.

    Attributes:
        client: its id.
        instance: a text that no other client object has.
    """

    group: str
    client: str
    instance: str
    host: str
    model: str
    start: str
    ordered: bool
    strategy: str
    subscription: Mapping[str, str]

    def arguments(self) -> dict[str, object]:
        """Those of a heartbeat."""
        names = self.__dataclass_fields__
        return {name: getattr(self, name) for name in names} | {
            "subscription": dict(self.subscription)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNews:
    """What the broker told with a heartbeat.

    Attributes:
        number: counts the answers.
        version: of the group; see ``is_before``.
        warnings: members that do not want the same.
    """

    number: int
    version: str
    view: GroupView
    warnings: tuple[str, ...]


class Heartbeats:
    """One heartbeat is with the broker at all times, which answers when the group has changed.

    One thread drives it by ``advance``; any thread may use the rest.

    Invariant: ``valid_until`` is at most half of the locks' lease behind the moment at which the
    last heartbeat that was answered left: an owner stops before the broker gives its queues away.
    """

    def __init__(self, membership: HeartbeatState, *, timeout_s: float) -> None:
        """Heartbeats of a member that has not begun.

        Args:
            timeout_s: a heartbeat without an answer is asked anew after so long, beyond the time
                that the broker may keep it.
        """
        self.membership = membership
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._owned: frozenset[TopicQueue] = frozenset()
        self._news: GroupNews | None = None
        self._failure: LedgerError | None = None
        self._trouble: LedgerError | None = None
        self._valid_until = 0.0
        self._request: Request | None = None
        self._version = ""
        self._sent_at = 0.0
        self._heartbeat_s = HEARTBEAT_S_DEFAULT
        self._now = 0.0
        self._is_silent = False

    @property
    def news(self) -> GroupNews | None:
        """What the group is, as far as known."""
        with self._lock:
            return self._news

    @property
    def valid_until(self) -> float:
        """Until when the locks of queues that this member owns are surely its own."""
        with self._lock:
            return self._valid_until

    @property
    def failure(self) -> LedgerError | None:
        """Why the broker does not take this member, and will not."""
        with self._lock:
            return self._failure

    @property
    def trouble(self) -> LedgerError | None:
        """Why the last heartbeat has no answer."""
        with self._lock:
            return self._trouble

    def take_trouble(self) -> LedgerError | None:
        """Why the last heartbeat has no answer, once; the next one may have one."""
        with self._lock:
            trouble, self._trouble = self._trouble, None
            return trouble

    def own(self, queues: Iterable[TopicQueue]) -> None:
        """The member owns these queues from now on: heartbeats renew their locks."""
        with self._lock:
            self._owned = frozenset(queues)

    def fall_silent(self, is_silent: bool) -> None:
        """Send no heartbeats, or send them again."""
        with self._lock:
            self._is_silent = is_silent

    def advance(self, requests: RequestPipeline, now: float) -> None:
        """Ask when nothing is under way.

        The caller advances ``requests`` then, and comes again while ``is_due``: what was asked may
        be answered at once.
        """
        self._now = now
        with self._lock:
            if not self._is_due():
                return
            request = Request(
                self._encode, Kind.RESULT, deadline=now + self._heartbeat_s + self._timeout_s
            )
            request.callback = self._take
            self._request = request
        requests.ask(request)

    @property
    def is_due(self) -> bool:
        """Whether ``advance`` would ask."""
        with self._lock:
            return self._is_due()

    def _is_due(self) -> bool:
        return self._request is None and self._failure is None and not self._is_silent

    def _encode(self, request_id: int) -> list[bytes]:
        with self._lock:
            self._sent_at = self._now
            owned: dict[str, list[int]] = {}
            for queue in sorted(self._owned):
                owned.setdefault(queue.topic, []).append(queue.queue_id)
            arguments = self.membership.arguments()
            return encode_call(
                request_id, "group_heartbeat", **arguments, owned=owned, version=self._version
            )

    def _take(self, request: Request) -> None:
        with self._lock:
            self._request = None
            try:
                result = call_result(request)
                view, warnings = view_of(result), _texts(result, "warnings")
                self._heartbeat_s = integer(result, "heartbeat_ms") / 1_000
                lease = "lock_lease_ms" if self.membership.ordered else "member_lease_ms"
                self._valid_until = self._sent_at + integer(result, lease) / 2_000
            except LedgerError as error:
                self._trouble = error
                if not error.retriable:
                    self._failure = error
                return
            self._trouble = None
            self._version = str(result.get("version"))
            number = 1 if self._news is None else self._news.number + 1
            self._news = GroupNews(
                number=number, version=self._version, view=view, warnings=warnings
            )


def is_before(version: str, other: str) -> bool:
    """Whether a group had ``version`` before ``other``; false of those of two leaders."""
    (epoch, _, count), (other_epoch, _, other_count) = (
        version.rpartition("-"),
        other.rpartition("-"),
    )
    known = epoch == other_epoch and count.isdecimal() and other_count.isdecimal()
    return known and int(count) < int(other_count)


def view_of(result: Mapping[str, object]) -> GroupView:
    """The group in the answer to a heartbeat.

    Raises:
        ProtocolError: it is of another shape.
    """
    members = {
        client: [str(topic) for topic in topics] if isinstance(topics, list) else []
        for client, topics in _object(result, "members").items()
    }
    owners: dict[TopicQueue, str] = {}
    told = _object(result, "owners")
    for topic in told:
        for queue, client in _object(told, topic).items():
            if not queue.isdecimal() or not isinstance(client, str):
                raise ProtocolError("not the owner of a queue", topic=topic, queue=queue)
            owners[TopicQueue(topic, int(queue))] = client
    counts = _object(result, "queues")
    return GroupView(members, owners, {topic: integer(counts, topic) for topic in counts})


def _object(fields: Mapping[str, object], name: str) -> dict[str, object]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise ProtocolError("field missing or not an object", field=name)
    return value


def _texts(fields: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise ProtocolError("field not a list", field=name)
    return tuple(str(one) for one in value)

"""Codes of RocketMQ 5's push consumers that leave it to the broker which queues they read, and how.

Such a consumer (``setClientRebalance(false)``) asks for each of its topics every 20 s. It is told
to pull from its share of the queues, or to take messages singly (POP): an operator says which, for
a group in a topic (mqadmin's ``setConsumeMode``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ledgermq.client.groups.allocation import averagely, java_order
from ledgermq.gateway.clients.client_table import ClientTable
from ledgermq.gateway.code_rights import ADMIN, Named, named
from ledgermq.gateway.consuming.pull_checks import PullChecks
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import NoPermissionError, ProtocolError, TopicUnknownError
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import decode_body, encode_body
from ledgermq.remoting.fields import json_field
from ledgermq.remoting.pop_messages import ANY_QUEUE
from ledgermq.remoting.routes import QueueCounts
from ledgermq.rules.consumers.request_modes import (
    PULL,
    SHARE_QUEUES_MAX,
    RequestMode,
    mode_key,
    request_mode,
)
from ledgermq.rules.tables.name_values import REQUEST_MODES
from ledgermq.rules.tables.topics import Permission
from ledgermq.verbs.shares import EndShared

_MODES = ("PULL", "POP")
_BROADCASTING = "BROADCASTING"

Counts = Callable[[str], Iterable[QueueCounts]]


class Queue(NamedTuple):
    """One queue of a topic, in the order of ``MessageQueue.compareTo``."""

    broker: str
    queue_id: int


def _averagely(count: int, members: Sequence[str], client: str) -> list[int]:
    return averagely(range(count), members, client)


def _by_turns(count: int, members: Sequence[str], client: str) -> list[int]:
    """``AllocateMessageQueueAveragelyByCircle``."""
    return list(range(members.index(client), count, len(members)))


_STRATEGIES: dict[str, Callable[[int, Sequence[str], str], list[int]]] = {
    "AVG": _averagely,
    "AVG_BY_CIRCLE": _by_turns,
}


class AssignmentCodes(PortPart):
    """Looks at the tables and at who is connected; keeps nothing."""

    def __init__(self, context: BrokerContext, queue_counts: Counts) -> None:
        """Answers for what the tables say.

        Args:
            queue_counts: of a topic, at each broker of the cluster.
        """
        self._clients: ClientTable = context.clients
        self._tables = context.tables
        self._changes = context.changes
        self._checks = PullChecks(context)
        self._queue_counts = queue_counts
        self.codes = (
            Code(RequestCode.QUERY_ASSIGNMENT, self._assign, named(_names_assigned)),
            Code(RequestCode.SET_MESSAGE_REQUEST_MODE, self._set_mode, ADMIN),
        )

    def _assign(self, asked: Asked) -> Command:
        wanted = decode_body(asked.command.body)
        topic, group = json_field(wanted, "topic", str), json_field(wanted, "consumerGroup", str)
        mode = request_mode(self._tables.names, group, topic)
        queues = self._queues(topic)
        if json_field(wanted, "messageModel", str, "CLUSTERING") != _BROADCASTING:
            client = json_field(wanted, "clientId", str)
            strategy = json_field(wanted, "strategyName", str, "AVG")
            queues = self._share(queues, group, client, strategy, mode)
        if queues is None:
            # No answer to go by: the consumer goes on with what it has.
            return asked.command.reply(body=encode_body({}))
        rows = [
            {
                "messageQueue": {"brokerName": broker, "queueId": queue_id, "topic": topic},
                "mode": _MODES[mode.takes_singly],
            }
            for broker, queue_id in queues
        ]
        return asked.command.reply(body=encode_body({"messageQueueAssignments": rows}))

    def _queues(self, topic: str) -> list[Queue] | None:
        """All that may be read; None: there is no such topic."""
        counts = list(self._queue_counts(topic))
        readable = [one for one in counts if one.perm & Permission.READ]
        found = [Queue(one.broker, at) for one in readable for at in range(one.read_queues)]
        return sorted(found) if counts else None

    def _share(
        self,
        queues: list[Queue] | None,
        group: str,
        client: str,
        strategy: str,
        mode: RequestMode,
    ) -> list[Queue] | None:
        """Those of a client; None: it is not known which."""
        members = sorted(self._clients.consumer_ids(group), key=java_order)
        allocate = _STRATEGIES.get(strategy)
        if queues is None or allocate is None or not members:
            return None
        if mode.takes_singly and not 0 < mode.share_queues < len(members) - 1:
            return [Queue(broker, ANY_QUEUE) for broker in dict.fromkeys(one[0] for one in queues)]
        if client not in members or not queues:
            return []
        at = members.index(client)
        if not mode.takes_singly:
            shares = [client]
        elif len(members) > len(queues):
            return [queues[at % len(queues)]]
        else:
            behind = range(at, at + mode.share_queues + 1)
            shares = [members[number % len(members)] for number in behind]
        numbers = {at: None for one in shares for at in allocate(len(queues), members, one)}
        return [queues[number] for number in numbers]

    def _set_mode(self, asked: Asked) -> None:
        """Have a group pull, or take messages singly, in a topic.

        A group that is to pull again ends what is handed out singly, which is refused while some is
        not settled; its consumers are told to pull all the same, so that a later try succeeds.
        """
        wanted = decode_body(asked.command.body)
        topic, group = json_field(wanted, "topic", str), json_field(wanted, "consumerGroup", str)
        mode = self._mode_in(wanted, topic, group)
        value = mode.text
        said = {"namespace": REQUEST_MODES, "key": mode_key(group, topic)}
        steps = [lambda: ("name_set", said if value is None else {**said, "value": value})]
        shared = self._tables.shares.topics(group)
        if not mode.takes_singly and topic in shared:
            others = [
                one
                for one in shared
                if one != topic and request_mode(self._tables.names, group, one).takes_singly
            ]
            if others:
                raise ProtocolError(
                    "group takes messages of other topics singly: have it pull those first",
                    group=group,
                    topics=" ".join(others[:5]),
                )
            steps.append(lambda: (EndShared.NAME, {"group": group}))
        self._changes.ask_all(asked, steps)

    def _mode_in(self, wanted: dict[str, object], topic: str, group: str) -> RequestMode:
        """The mode that a request wants.

        Raises:
            NoPermissionError, TopicUnknownError, CodedError: it can be none of that topic or group.
            ProtocolError: there is no such mode.
        """
        if topic.startswith(RETRY_PREFIX):
            raise NoPermissionError("retry topic is not allowed to set mode", topic=topic)
        if self._tables.topics.get(topic) is None:
            raise TopicUnknownError("topic does not exist", topic=topic)
        self._checks.check_group(group)
        name = json_field(wanted, "mode", str, _MODES[0])
        share = json_field(wanted, "popShareQueueNum", int, 0)
        if name not in _MODES or share > SHARE_QUEUES_MAX:
            raise ProtocolError(
                "no such mode", mode=name[:64], allowed=" ".join(_MODES), share_queues=share
            )
        return RequestMode(True, max(0, share)) if name == _MODES[True] else PULL


def _names_assigned(command: Command) -> Named:
    wanted = decode_body(command.body)
    yield json_field(wanted, "topic", str), Right.SUB
    yield json_field(wanted, "consumerGroup", str), None

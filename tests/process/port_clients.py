"""Clients of RocketMQ's protocol that go on while nodes change: a producer, and a consumer.

Each is a thread with one connection, to the node that the routes call the leader. Both remember
what they were told, to be compared with what the group has in the end.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS, beat, offset_fields, pull_fields, pulled

QUEUES = 4
AGAIN_S = 0.05
"""Pause before the next attempt, as clients make one."""

NOTHING_STORED = "nothing was stored"
HOLD_MS = 500


class FollowingClient:
    """A thread that has a connection to the leader, and looks for it whenever there is none.

    Attributes:
        lost: how many connections were ended by the other side.
        error: what has ended the thread; it must be None.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.lost = 0
        self.error: BaseException | None = None
        self._addresses = addresses
        self._ends = threading.Event()
        self._client: RemotingClient | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_about: object) -> None:
        self._ends.set()
        self._thread.join()
        self._leave()

    @property
    def is_well(self) -> bool:
        """Whether it goes on; it ends by itself only because of an error, which is raised then."""
        if self.error is not None:
            raise self.error
        return self._thread.is_alive()

    def turn(self, client: RemotingClient) -> None:
        """Do one thing; ``ConnectionError`` when the other side has gone."""
        raise NotImplementedError

    def welcome(self, client: RemotingClient) -> None:
        """What a connection begins with."""

    def look_elsewhere(self) -> None:
        """This node leads no more: ask the routes again, in a moment."""
        self._leave()
        self._ends.wait(AGAIN_S)

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                client = self._connected()
                if client is None:
                    self._ends.wait(AGAIN_S)
                    continue
                try:
                    self.turn(client)
                except OSError as error:
                    assert not isinstance(error, TimeoutError), "no answer"
                    self.lost += 1
                    self._leave()
        # The test's own thread raises it.
        except BaseException as error:
            self.error = error

    def _connected(self) -> RemotingClient | None:
        if self._client is not None:
            return self._client
        for address in self._addresses:
            try:
                leader = leader_by(address)
                if leader:
                    self._client = RemotingClient(leader)
                    self.welcome(self._client)
                    return self._client
            except OSError as error:
                assert not isinstance(error, TimeoutError), "no answer"
        return None

    def _leave(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None


def leader_by(address: str) -> str | None:
    """Where the leader is, as the node at ``address`` says."""
    client = RemotingClient(address)
    try:
        reply = client.ask(Code.GET_BROKER_CLUSTER_INFO)
    finally:
        client.close()
    (broker,) = json.loads(bytes(reply.body))["brokerAddrTable"].values()
    found: str | None = broker["brokerAddrs"].get("0")
    return found


class PortProducer(FollowingClient):
    """Sends numbers to one queue, each until it is acknowledged, with one unique id.

    Attributes:
        acknowledged: queue offset of each number.
        doubtful: attempts of a number that may be stored though they were not acknowledged.
        refusals: code and remark of what was refused.
    """

    def __init__(self, addresses: Sequence[str], topic: str, queue_id: int) -> None:
        super().__init__(addresses)
        self.acknowledged: list[int] = []
        self.doubtful: dict[int, int] = {}
        self.refusals: list[tuple[int, str]] = []
        self._topic = topic
        self.queue_id = queue_id

    def body(self, number: int) -> bytes:
        """Of a message."""
        return f"{self.queue_id} {number}".encode()

    def turn(self, client: RemotingClient) -> None:
        """Send the next number, or the last one again."""
        number = len(self.acknowledged)
        properties = f"UNIQ_KEY\x01{self.queue_id}-{number}\x02"
        fields = ("port", self._topic, "TBW102", 4, self.queue_id, 0, NOW_MS, 0, properties, 0)
        doubt = self.doubtful.get(number, 0)
        # Should the connection end it is not known.
        self.doubtful[number] = doubt + 1
        named = dict(zip("abcdefghij", fields, strict=True))
        reply = client.ask(Code.SEND_MESSAGE_V2, named, self.body(number))
        if reply.code == ResponseCode.SUCCESS:
            self.doubtful[number] = doubt
            self.acknowledged.append(int(reply.fields["queueOffset"]))
            return
        self.refusals.append((reply.code, str(reply.remark)))
        if NOTHING_STORED in str(reply.remark):
            self.doubtful[number] = doubt
        self.look_elsewhere()


class PortConsumer(FollowingClient):
    """Reads all queues of a topic by long polls, and commits what it has read.

    Attributes:
        got: bodies of each queue, by their offset.
    """

    def __init__(self, addresses: Sequence[str], topic: str, group: str) -> None:
        super().__init__(addresses)
        self.got: list[list[bytes]] = [[] for _ in range(QUEUES)]
        self._topic = topic
        self._group = group

    def welcome(self, client: RemotingClient) -> None:
        """Subscribe."""
        beat(client, "reader", self._topic, group=self._group)

    def turn(self, client: RemotingClient) -> None:
        """Ask for what comes next in each queue, and wait for all answers."""
        numbers = [
            client.send(
                Code.PULL_MESSAGE,
                pull_fields(
                    self._topic, one, len(got), group=self._group, commit=len(got),
                    suspend_ms=HOLD_MS, subscription="*",
                ),
            )
            for one, got in enumerate(self.got)
        ]  # fmt: skip
        for queue_id, number in enumerate(numbers):
            reply = client.reply_to(number)
            if reply.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND):
                self._take(queue_id, pulled(reply).messages if reply.code == 0 else [])
            elif reply.code == ResponseCode.PULL_OFFSET_MOVED:
                raise AssertionError(f"queue {queue_id} ends before what was read: {reply}")
            elif reply.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
                self.look_elsewhere()
                return

    def _take(self, queue_id: int, messages: Sequence[object]) -> None:
        got = self.got[queue_id]
        for message in messages:
            offset, body = message.queue_offset, bytes(message.body)  # type: ignore[attr-defined]

            assert offset == len(got), (queue_id, offset, len(got))
            got.append(body)

    def committed(self, queue_id: int) -> int:
        """What the group is told to have consumed of a queue; -1 where nobody can say."""
        with suppress(OSError):
            for address in self._addresses:
                leader = leader_by(address)
                if leader:
                    client = RemotingClient(leader)
                    fields = offset_fields(self._topic, queue_id, group=self._group)
                    reply = client.ask(Code.QUERY_CONSUMER_OFFSET, fields)
                    client.close()
                    return int(reply.fields.get("offset", "-1"))
        return -1

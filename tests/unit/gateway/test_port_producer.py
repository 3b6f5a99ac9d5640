"""The port's link to a writer: one frame for what has come, and everybody is told once."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.formats.records.host_address import encode_host
from ledgermq.gateway.producing import port_producer
from ledgermq.gateway.producing.port_producer import Place, PortProducer, ToStore
from ledgermq.gateway.producing.remoting_records import RemotingRecords
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    MessageIllegalError,
    NotLeaderError,
    OutcomeUnknownError,
    QuotaError,
)
from ledgermq.remoting.send_request import SendRequest
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import Peer, running_peer

REQUEST = SendRequest("g", "T", "TBW102", 4, 0, 0, 1_700_000_000_123, 0, "", 0, False, None, False)


class Port:
    """Drives a link as the port does."""

    def __init__(self, peer: Peer, *, window_bytes: int = 1_000_000) -> None:
        environment: Any = SimpleNamespace(
            settings=SimpleNamespace(limits=SimpleNamespace(client_window_bytes=window_bytes)),
            paths=SimpleNamespace(produce=peer.directory / "produce"),
        )
        self.epoll = select.epoll()
        self.greetings = 0
        self.link = PortProducer(environment, self.epoll, greeted=self._greeted)
        self.told: dict[str, Place | LedgerError] = {}

    def _greeted(self) -> None:
        assert self.link.form is not None
        self.greetings += 1

    def advance(self) -> None:
        self.link.turn(time.monotonic_ns() // 1_000_000)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Advance when the link's descriptors or its deadline say so, until the condition holds."""
        end = time.monotonic() + PATIENCE_S
        while True:
            self.advance()
            if condition():
                return
            assert time.monotonic() < end, what
            deadline_ms = self.link.next_deadline_ms()
            wait_s = 1.0 if deadline_ms is None else deadline_ms / 1_000 - time.monotonic()
            # What the peer has seen wakes nobody.
            self.epoll.poll(min(max(wait_s, 0.001), 0.02))

    def store(self, name: str, queue_id: int = 0, *, count: int = 1, topic: bytes = b"T") -> None:
        """Have ``count`` records stored that are known by ``name``."""
        assert self.link.form is not None
        records = RemotingRecords(self.link.form)
        made = [
            records.one(
                REQUEST,
                name.encode(),
                topic=topic,
                queue_id=queue_id,
                properties=f"UNIQ_KEY\x01{name}{number}".encode(),
                born_host=encode_host(("10.0.0.1", 1)),
            )
            for number in range(count)
        ]
        parts = [part for one in made for part in one.parts]
        sizes = [size for one in made for size in one.sizes]
        record = ToStore(topic, queue_id, parts, sizes, sum(sizes))

        def take(outcome: Place | LedgerError) -> None:
            assert name not in self.told, name
            self.told[name] = outcome

        self.link.store(record, take)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running_peer() as running:
        yield running


@pytest.fixture
def port(peer: Peer) -> Iterator[Port]:
    port = Port(peer)
    port.until(lambda: port.link.form is not None, "the writer greets")
    yield port
    port.link.close()
    port.epoll.close()


def test_what_was_gathered_goes_as_one_frame_and_each_is_told_its_own_place(
    peer: Peer, port: Port
) -> None:
    port.store("a", 1)
    port.store("b", 2, count=3)
    port.store("c", 1)
    port.until(lambda: len(port.told) == 3, "all are told")

    assert [one.unique_ids for one in peer.seen] == [["a0", "c0", "b0", "b1", "b2"]]
    places = {name: place for name, place in port.told.items() if isinstance(place, Place)}
    assert {name: place.queue_offset for name, place in places.items()} == {"a": 0, "b": 0, "c": 1}
    for name, place in places.items():
        expected = [peer.log.places[f"{name}{one}"] for one in range(len(place.positions))]
        assert list(place.positions) == [one.physical_offset for one in expected]


def test_what_comes_while_frames_are_under_way_is_gathered(peer: Peer, port: Port) -> None:
    peer.do(lambda: setattr(peer, "silent", True))
    for number in range(port_producer.FRAMES_MAX + 3):
        port.store(f"m{number}")
        port.advance()
    port.until(lambda: len(peer.seen) == port_producer.FRAMES_MAX, "frames have come")
    has_gathered = port.link.has_gathered
    # The writer is replaced: what has no answer goes again, and is there once.
    peer.do(lambda: setattr(peer, "silent", False))
    peer.restart()
    port.until(lambda: len(port.told) == port_producer.FRAMES_MAX + 3, "all are told")

    assert has_gathered
    assert all(isinstance(one, Place) for one in port.told.values()), port.told
    assert peer.stored() == [b"m%d" % one for one in range(port_producer.FRAMES_MAX + 3)]
    assert len(peer.seen[-1].unique_ids) == 3
    assert port.greetings == 1


def test_a_message_that_the_writer_refuses_does_not_harm_the_others(peer: Peer, port: Port) -> None:
    refusal = MessageIllegalError("one is bad", record=1)
    peer.do(lambda: peer.refusals.extend([refusal, None, refusal]))
    for name in ("good", "bad", "fine"):
        port.store(name)
    port.until(lambda: len(port.told) == 3, "all are told")

    assert isinstance(port.told["bad"], MessageIllegalError)
    assert peer.stored() == [b"good", b"fine"]


def test_a_quota_of_one_topic_holds_up_nobody_else(peer: Peer, port: Port) -> None:
    refusal = QuotaError("topic has used up its quota", retry_after_ms=60_000)
    peer.do(lambda: peer.refusals.extend([refusal, refusal]))
    port.store("much", topic=b"busy")
    port.store("little")
    port.store("more", topic=b"busy")
    port.until(lambda: len(port.told) == 3, "all are told")

    assert {name: type(one) for name, one in port.told.items()} == {
        "much": QuotaError,
        "little": Place,
        "more": QuotaError,
    }


def test_who_waits_when_the_node_leads_no_more_is_told_at_once(peer: Peer, port: Port) -> None:
    peer.do(lambda: setattr(peer, "silent", True))
    for number in range(port_producer.FRAMES_MAX + 1):
        port.store(f"m{number}")
        port.advance()
    port.until(lambda: len(peer.seen) == port_producer.FRAMES_MAX, "frames have come")
    port.link.give_up()
    told = list(port.told.values())
    peer.do(lambda: setattr(peer, "silent", False))
    port.store("later")
    port.until(lambda: "later" in port.told, "the next one is told")

    assert [type(one) for one in told[:-1]] == [OutcomeUnknownError] * port_producer.FRAMES_MAX
    assert isinstance(told[-1], NotLeaderError)
    assert isinstance(port.told["later"], Place)


def test_more_than_the_window_is_refused(peer: Peer) -> None:
    port = Port(peer, window_bytes=1_000)
    port.until(lambda: port.link.form is not None, "the writer greets")
    peer.do(lambda: setattr(peer, "silent", True))
    with pytest.raises(BusyError) as refused:
        for number in range(10):
            port.store(f"m{number}")
    port.link.close()
    port.epoll.close()

    assert refused.value.details["setting"] == "limits.client_window_bytes"
    assert 0 < len(port.told) < 10

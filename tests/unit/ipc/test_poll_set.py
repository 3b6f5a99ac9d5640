"""What wakes a process: ZeroMQ's sockets by their descriptors, which tell of a thing once."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest
import zmq

from ledgermq.ipc.loop import EVENTS_MAX, PollSet

LONG_MS = 20_000
UNUSED = (0,)

Pair = tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A ROUTER, and a DEALER that is connected to it."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.bind("inproc://here")
    dealer.setsockopt(zmq.IDENTITY, b"one")
    dealer.connect("inproc://here")
    # Behind it the router knows whom to answer.
    dealer.send(b"hello")
    assert router.recv_multipart() == [b"one", b"hello"]
    try:
        yield router, dealer
    finally:
        context.destroy(0)


def test_what_is_left_by_who_reads_is_told_again_without_any_news(pair: Pair) -> None:
    router, dealer = pair
    polled = PollSet([router], UNUSED)
    for number in range(3):
        dealer.send(b"%d" % number)

    for number in range(3):
        assert polled.wait(LONG_MS) == {router: zmq.POLLIN}
        assert router.recv_multipart() == [b"one", b"%d" % number]

    assert polled.wait(0) == {}


def test_news_that_a_use_has_swallowed_are_found_where_the_use_is_told(pair: Pair) -> None:
    router, dealer = pair
    uses = [7]
    polled = PollSet([router], uses)
    assert polled.wait(0) == {}
    dealer.send(b"news")
    assert select.select([router.fileno()], [], [], LONG_MS / 1_000)[0]
    # Any use may do so; this one does in any version of the library.
    assert router.getsockopt(zmq.EVENTS) & zmq.POLLIN
    assert not select.select([router.fileno()], [], [], 0)[0]

    assert polled.wait(0) == {}, "its descriptor tells of nothing"
    uses[0] += 1
    assert polled.wait(LONG_MS) == {router: zmq.POLLIN}


def test_who_may_use_them_in_any_turn_never_misses_any(pair: Pair) -> None:
    router, dealer = pair
    polled = PollSet([router], None)
    dealer.send(b"news")
    assert router.getsockopt(zmq.EVENTS) & zmq.POLLIN

    assert polled.wait(LONG_MS) == {router: zmq.POLLIN}
    router.recv_multipart()
    assert polled.wait(0) == {}


def test_descriptors_are_told_of_as_long_as_they_can_be_read(pair: Pair) -> None:
    router, dealer = pair
    pipes = [os.pipe() for _ in range(EVENTS_MAX + 1)]
    readers = {read for read, _ in pipes}
    polled = PollSet([router, *readers], UNUSED)
    try:
        assert polled.wait(0) == {}
        for _, write in pipes:
            os.write(write, b"x")
        dealer.send(b"news")

        found: set[object] = set()
        for _ in pipes:
            told = polled.wait(LONG_MS)
            assert told and set(told) <= {router, *readers}
            found |= set(told)
            for one in readers & set(told):
                os.read(one, 1)
        assert found == {router, *readers}
        router.recv_multipart()
        assert polled.wait(0) == {}
        for _, write in pipes:
            os.close(write)
        assert set(polled.wait(LONG_MS)) <= readers, "an end is something to be read"
    finally:
        for read, _ in pipes:
            os.close(read)

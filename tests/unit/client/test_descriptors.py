"""Clients of a process that has no descriptors left for a while go on when it has some again."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.link import Link
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import Peer


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Whatever wants a new one is refused; those that are open stay as they are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in taken:
            os.close(one)


def link_to(peer: Peer) -> Link:
    (address,) = parse_addresses(peer.address)
    return Link(zmq.Context.instance(), address.consume, client="test")


def test_a_link_that_finds_no_descriptor_opens_its_session_later(peer: Peer) -> None:
    link = link_to(peer)
    now = time.monotonic()
    with no_descriptors():
        for _ in range(3):
            link.advance(now)
            now = link.deadline
        lost = link.lost_count
    until = time.monotonic() + PATIENCE_S
    while link.welcome is None and time.monotonic() < until:
        link.receive()
        link.advance(max(now, time.monotonic()))
    greeted = link.welcome is not None
    link.close()

    assert lost == 3
    assert greeted

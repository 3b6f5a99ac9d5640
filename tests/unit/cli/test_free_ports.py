"""Ports are claimed by one alone, and given back."""

from __future__ import annotations

import socket
from contextlib import closing

from ledgermq.cli.node.dev_run import LOOPBACK, PortClaims


def test_a_claimed_port_is_nobody_elses_until_it_is_given_back() -> None:
    with PortClaims() as others:
        with PortClaims() as ours:
            first = ours.take(6)
            assert not others.has_taken(first - 2, 4)
            assert not others.has_taken(first + 5, 2)
        assert others.has_taken(first, 6)


def test_a_port_at_which_somebody_listens_is_not_claimed() -> None:
    with (
        closing(socket.create_server((LOOPBACK, 0))) as listener,
        PortClaims() as claims,
    ):
        assert not claims.has_taken(listener.getsockname()[1], 1)

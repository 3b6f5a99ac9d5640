"""A hint for who typed a command at a member that does not lead."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from ledgermq.cli.arguments import NAME
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.model.errors import LedgerError, NotLeaderError, TimedOutError, UnreachableError

_ASK_S = 2.0
Run = Callable[[argparse.Namespace], int]


def naming_the_leader(run: Run) -> Run:
    """``run`` of a command with the options of a node: where it asks one node alone, and is refused
    since another one leads, the error says in ``do`` which; where it asks nobody in particular, and
    nobody is there, that there are other addresses.
    """

    def asked(arguments: argparse.Namespace) -> int:
        until = time.monotonic() + arguments.timeout
        try:
            return run(arguments)
        except UnreachableError as error:
            if arguments.address == DEFAULT_ADDRESS:
                error.details["do"] = "name where it is: --address"
            raise
        except (NotLeaderError, TimedOutError) as error:
            is_refused = isinstance(error, NotLeaderError) or "refused" in error.details
            if is_refused and (leader := _leader_elsewhere(arguments.address, error, until)):
                error.details["do"] = (
                    f"type it on the host of {leader}, which leads, or name all nodes: --address"
                )
            raise

    return asked


def _leader_elsewhere(address: str, error: LedgerError, until: float) -> str:
    """Who leads where the node at ``address`` is another one; empty if that is not known, and of
    several addresses, among which the client has looked for the leader itself.

    An error that names the leader takes no time. Else the node is asked, until the time of the
    command is over, or for a moment more where a refusal with a status says that it answers.

    Args:
        until: when that time is over; by ``time.monotonic``.
    """
    if len(parse_addresses(address)) > 1:
        return ""
    if leader := error.details.get("leader"):
        return str(leader)
    left = _ASK_S if "status" in error.details else min(_ASK_S, until - time.monotonic())
    if left <= 0:
        return ""
    try:
        with connect_broker(address, name=NAME, timeout_s=left) as broker:
            welcome = broker.welcome()
    except LedgerError:
        # It cannot be asked either: the first error says all that is known.
        return ""
    return "" if welcome.leader == welcome.node else welcome.leader

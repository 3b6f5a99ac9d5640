"""A node is attacked while honest clients go on: nobody dies, nothing is lost, memory is bounded.

LEDGERMQ_ADVERSARY_S: for how long all attacks are repeated, two at a time, in an order that is
drawn (LEDGERMQ_ADVERSARY_SEED); how late honest clients are is then compared with before. Without
it each is made once, and no time is looked at.

What tests elsewhere show of the same findings: H1, H3 tests/unit/rules/test_sql_filter.py; C1 and
M7 test_who_may.py; H2, H4, M5 tests/process/test_who_asks.py; H5, L6
tests/unit/sessions/test_session_server.py; H6 tests/process/test_endless_messages.py; H7
tests/process/test_remoting_attacks.py; M6 tests/unit/process/test_control_rights.py; M8
tests/power/test_failed_syncs.py; L1 tests/unit/process/test_log_lines.py; L3
tests/unit/cli/test_demo_archives.py; L4 tests/unit/conversion/test_backup.py.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from statistics import quantiles

import psutil
import pytest

from tests.adversary.attacks import ATTACKS, attack_for
from tests.adversary.honest_clients import HonestClients
from tests.adversary.share_attacks import HAS_GRPC
from tests.adversary.target import Target
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import free_port
from tests.process.http_client import listens
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import beat_when_leading

pytestmark = pytest.mark.slow

LONG_S = float(os.environ.get("LEDGERMQ_ADVERSARY_S") or 0)
SEED = int(os.environ.get("LEDGERMQ_ADVERSARY_SEED") or random.SystemRandom().randrange(2**32))
QUIET_S = 20.0
LATE_MAX = 10.0
PAGES_LATE_MAX = 20.0
"""How much later an honest client's slowest hundredth may be than without attackers, and that of
who asks for pages, which one process makes for attackers, too.
"""

MIB = 1 << 20
TOKEN = "0123456789abcdef0123456789abcdef"
MEMORY_MAX = 768 * MIB
"""Of one process: what the settings allow to wait, and what Python keeps."""

SHOWN_EVERY_S = 60.0
AFTER = 20
"""So many messages more of each kind show that a node goes on."""


def ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


@contextmanager
def attacked(scale: int = 1) -> Iterator[tuple[Node, Target]]:
    """A node that is open to everybody; at its end it must have had no bug, and stop in order."""
    with nodes_made() as make:
        node = make()
        consume, produce, http, grpc = ports(4)
        listen = {
            "consume": f"tcp://127.0.0.1:{consume}",
            "produce": f"tcp://127.0.0.1:{produce}",
            "http": f"127.0.0.1:{http}",
            **({"grpc": f"127.0.0.1:{grpc}"} if HAS_GRPC else {}),
        }
        tokens = node.folder / "tokens"
        tokens.write_text(f"reader {TOKEN} user:reader\n")
        tokens.chmod(0o600)
        access = {"admin_over_clients": False}
        reads = {"enable_property_filter": True}
        address = start_remoting_node(node, listen=listen, access=access, reads=reads,
                                      http={"tokens_file": str(tokens)})  # fmt: skip
        client = RemotingClient(address)
        beat_when_leading(client, "honest", "orders", group="honest")
        client.close()
        port = int(address.rpartition(":")[2])
        local = "127.0.0.1"
        stream = str(node.runtime / "produce.sock")
        wait_until(lambda: listens((local, http)), "the observer to answer")
        yield (
            node,
            Target(
                (local, consume),
                (local, produce),
                (local, port),
                (local, http),
                stream,
                TOKEN,
                scale,
                (local, grpc) if HAS_GRPC else None,
            ),
        )

        assert node.stop() == 0, node.log.read_text()[-5_000:]
        assert not node.logged("Traceback"), node.log.read_text()[-5_000:]
        lines = node.log.read_text().splitlines()

        assert not [line for line in lines if line.startswith("1999-") or "\x1b" in line]


def memory(node: Node) -> dict[str, int]:
    """Bytes of each process that are its own."""
    return {
        role: int(psutil.Process(pid).memory_full_info().uss) for role, pid in node.pids().items()
    }


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Node, Target, HonestClients]]:
    with attacked() as (node, target):
        honest = HonestClients(f"ipc://{node.runtime}", target)
        with honest:
            honest.wait_for_more(AFTER)
            yield node, target, honest

        assert not any(honest.missing().values())


@pytest.mark.long(but=4)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_no_process_and_hurts_no_honest_client(
    shared: tuple[Node, Target, HonestClients], name: str
) -> None:
    node, target, honest = shared
    print(f"LEDGERMQ_ADVERSARY_SEED={SEED}")
    pids = node.pids()
    ATTACKS[name](target, random.Random(f"{SEED} {name}"))
    honest.wait_for_more(AFTER)
    used = memory(node)

    assert node.pids() == pids
    assert max(used.values()) < MEMORY_MAX, used


@pytest.mark.skipif(not LONG_S, reason="make check-adversary runs it, for an hour")
def test_honest_clients_are_served_in_time_while_a_node_is_attacked_for_long() -> None:
    print(f"LEDGERMQ_ADVERSARY_SEED={SEED}")
    with attacked(scale=4) as (node, target):
        honest = HonestClients(f"ipc://{node.runtime}", target)
        pids = node.pids()
        most: dict[str, int] = {}
        made: dict[str, int] = {}
        context = multiprocessing.get_context("spawn")
        told: Queue[str] = context.Queue()
        # Not in this process: clients would wait for its attackers, and not for the node.
        attackers = [
            context.Process(target=attack_for, args=[target, f"{SEED} {number}", LONG_S, told])
            for number in range(2)
        ]
        with honest:
            honest.wait_for_more(AFTER)
            honest.take_waits()
            _run(honest, node, QUIET_S, {})
            quiet = honest.take_waits()
            loud: dict[str, list[float]] = {who: [] for who in quiet}
            for attacker in attackers:
                attacker.start()
            began = shown = time.monotonic()
            while any(one.is_alive() for one in attackers):
                _run(honest, node, 1.0, most)
                while not told.empty():
                    name = told.get()
                    made[name] = made.get(name, 0) + 1
                if time.monotonic() - shown >= SHOWN_EVERY_S:
                    shown = time.monotonic()
                    _show_part(shown - began, _take(honest, loud), memory(node))
            _take(honest, loud)
            honest.wait_for_more(AFTER)
        _show(quiet, loud, most, made)
        ended = node.pids()

        assert [one.exitcode for one in attackers] == [0, 0]
        assert ended == pids
        assert not any(honest.missing().values())
        assert max(most.values()) < MEMORY_MAX, most
        late = {who: _share(loud[who], 99) / _share(quiet[who], 99) for who in quiet}
        bounds = {who: PAGES_LATE_MAX if who.startswith("/") else LATE_MAX for who in late}
        assert all(late[who] < bounds[who] for who in late), late


def _take(honest: HonestClients, all_waits: dict[str, list[float]]) -> dict[str, list[float]]:
    """The waits since the last time, which are added to those before."""
    fresh = honest.take_waits()
    for who, waits in fresh.items():
        all_waits[who] += waits
    return fresh


def _show_part(after_s: float, waits: dict[str, list[float]], used: dict[str, int]) -> None:
    """What grows with time shows when parts of it stand below one another."""
    late = ", ".join(f"{who} {1_000 * _share(waits[who], 99):.0f}" for who in sorted(waits))
    sizes = ", ".join(f"{role} {size // MIB}" for role, size in sorted(used.items()))
    print(f"after {after_s:.0f} s: p99 in ms: {late}; MiB: {sizes}", flush=True)


def _run(honest: HonestClients, node: Node, seconds: float, most: dict[str, int]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        honest.wait_for_more(1)
        for role, size in memory(node).items():
            most[role] = max(most.get(role, 0), size)


def _share(waits: list[float], percent: int) -> float:
    return quantiles(waits, n=100, method="inclusive")[percent - 1]


def _show(
    quiet: dict[str, list[float]],
    loud: dict[str, list[float]],
    most: dict[str, int],
    made: dict[str, int],
) -> None:
    print(f"\n{'ms':24}{'quiet p50':>12}{'p99':>10}{'attacked p50':>14}{'p99':>10}{'acts':>9}")
    for who in sorted(quiet):
        told = [1_000 * _share(waits[who], part) for waits in (quiet, loud) for part in (50, 99)]
        cells = "".join(
            f"{one:>{width}.2f}" for one, width in zip(told, (12, 10, 14, 10), strict=True)
        )
        print(f"{who:24}{cells}{len(loud[who]):>9}")
    print(
        "MiB at most: " + ", ".join(f"{role} {size // MIB}" for role, size in sorted(most.items()))
    )
    print("attacks: " + ", ".join(f"{name} {count}" for name, count in sorted(made.items())))

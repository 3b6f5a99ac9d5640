"""What does each request cost the broker process, with large tables, and how long do others wait?

Each request code and each verb, asked as the tests of rights ask them (``tests/adversary``), and
the largest forms of some, at a node with 10,000 topics, 2,000 groups, 22,000 pairs of them with
offsets, and 200 members of one group: processor time of the broker's only thread; and, of those
that take two milliseconds, the longest time that another client has waited meanwhile, which asks
for the ends of a queue again and again. The least of three, each.

Estimate beforehand: what names one thing takes less than 5 ms, a list of all 10 to 20 µs a row: 200
to 400 ms for all offsets. Nobody waits for more than one slice of that, 5 ms, and one turn.

    python -m bench.request_costs [--smoke] [--directory DIR] [--topics N] [--groups N]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ctypes import c_double
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

from bench.machine import write
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order
from ledgermq.ipc.cursor_page import Role
from ledgermq.remoting.codes import RequestCode as Code
from tests.adversary.asked_things import OWN, About, Stored, request, verbs
from tests.process.group_nodes import free_port
from tests.process.raw_consumer import RawConsumer
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_requests import TEMPLATES
from tests.process.remoting_steps import beat_when_leading, heartbeat_body
from tests.process.running import topics_document

QUEUES = 4
MEMBERS = 200
GROUP = "billing"
"""The members' group, which has offsets of all topics."""

TIMES = 3
AFTER_S = 0.05
"""What a request has left to others is done by then."""

SHOWN_MS = 2.0
"""Cheaper ones are counted, and not named."""

PAUSE_S = 0.001
FILTER = "a = 12345678 OR " + "b > 1 AND (c = 'x') OR " * 347


SMALL_FILES = """\
mapped_file_size_consume_queue = 20000
max_hash_slot_num = 500
max_index_num = 400
"""


class Shared(Protocol):
    """A number of several processes."""

    value: float


def names_of(what: str, number: int) -> list[str]:
    return [f"{what}-{one:05d}" for one in range(number)]


def write_tables(directory: Path, topics: list[str], groups: list[str]) -> int:
    """A store's files as a RocketMQ broker leaves them; how many pairs have offsets."""
    config = directory / "store" / "config"
    config.mkdir(parents=True)
    retries = (f"%RETRY%{group}" for group in groups)
    config.joinpath("topics.json").write_text(topics_document("orders", "other", *topics, *retries))
    table = {group: {"groupName": group} for group in groups}
    config.joinpath("subscriptionGroup.json").write_text(
        json.dumps({"dataVersion": {"counter": 1, "timestamp": 1}, "subscriptionGroupTable": table})
    )
    pairs = [f"{topic}@{groups[at % len(groups)]}" for at, topic in enumerate(topics)]
    pairs += [f"orders@{group}" for group in groups] + [f"{topic}@{GROUP}" for topic in topics]
    offsets = dict.fromkeys(range(QUEUES), 0)
    config.joinpath("consumerOffset.json").write_text(
        json.dumps({"offsetTable": dict.fromkeys(pairs, offsets)})
    )
    return len(pairs)


def ask_all_the_time(runtime: Path, longest: Shared, ends: Shared) -> None:
    """Be another client: how long it has waited at most since ``longest`` was made 0."""
    client = RawConsumer(runtime)
    while not ends.value:
        begin = time.monotonic()
        client.call("queue", topic="orders", queue=0)
        longest.value = max(longest.value, 1_000 * (time.monotonic() - begin))
        time.sleep(PAUSE_S)
    client.close()


@contextmanager
def another(runtime: Path) -> Iterator[Shared]:
    """Have another client ask, in a process of its own; what it has waited at most."""
    context = multiprocessing.get_context("spawn")
    longest, ends = context.Value(c_double, 0.0), context.Value(c_double, 0.0)
    process = context.Process(target=ask_all_the_time, args=(runtime, longest, ends), daemon=True)
    process.start()
    try:
        yield longest
    finally:
        ends.value = 1.0
        process.join()


class Costs:
    """Asks, and notes what it has cost: milliseconds, the least of several."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._asks: dict[str, Callable[[], object]] = {}
        self.spent: dict[str, float] = {}
        self.waited: dict[str, float] = {}

    def take(self, label: str, ask: Callable[[], object], times: int = TIMES) -> None:
        """Ask so many times while nobody else does."""
        self._asks[label] = ask
        self.spent[label] = min(self._spend(ask) for _ in range(times))

    def take_waits(self, longest: Shared) -> None:
        """Ask again what was dear, while another client asks."""
        for label, ask in self._asks.items():
            if self.spent[label] >= SHOWN_MS:
                self.waited[label] = min(_wait(ask, longest) for _ in range(TIMES))

    def _spend(self, ask: Callable[[], object]) -> float:
        before = self._spent_ms()
        ask()
        time.sleep(AFTER_S)
        return self._spent_ms() - before

    def _spent_ms(self) -> float:
        return int(self._path.read_text().split()[0]) / 1e6


def _wait(ask: Callable[[], object], longest: Shared) -> float:
    longest.value = 0.0
    ask()
    time.sleep(AFTER_S)
    return longest.value


def consumers_of(groups: list[str]) -> bytes:
    """A heartbeat of one client that is in all of these."""
    one = json.loads(heartbeat_body("many", "orders", group=GROUP))
    (consumer,) = one["consumerDataSet"]
    one["consumerDataSet"] = [{**consumer, "groupName": group} for group in groups]
    return json.dumps(one).encode()


def locks_of(topics: list[str]) -> bytes:
    queues = [
        {"topic": topic, "brokerName": "broker-a", "queueId": queue}
        for topic in topics
        for queue in range(QUEUES)
    ]
    return json.dumps({"consumerGroup": GROUP, "clientId": "honest", "mqSet": queues}).encode()


def filter_of(number: int) -> bytes:
    """One that nobody has asked for before."""
    wanted = {
        "topic": "orders", "subString": f"{FILTER}e = {number}", "expressionType": "SQL92",
    }  # fmt: skip
    return json.dumps({"clientId": "x", "group": GROUP, "subscriptionData": wanted}).encode()


def ask_large(
    costs: Costs, client: RemotingClient, address: str, topics: list[str], groups: list[str]
) -> None:
    """Requests that name much; heartbeats each over a connection that ends behind it."""
    numbers = count()

    def heartbeat(body: Callable[[], bytes]) -> Callable[[], None]:
        def ask() -> None:
            client = RemotingClient(address)
            client.ask(Code.HEART_BEAT, {}, body())
            client.close()

        return ask

    many = min(len(groups), 1_000)
    costs.take(f"heartbeat, {many} known groups", heartbeat(lambda: consumers_of(groups[:many])))
    fresh = heartbeat(lambda: consumers_of([f"new-{next(numbers)}" for _ in range(many)]))
    costs.take(f"heartbeat, {many} new groups", fresh, 1)
    some = topics[:2_000]
    wide = heartbeat_body("wide", *some, group=GROUP)
    costs.take(f"heartbeat, {len(some)} subscriptions", heartbeat(lambda: wide))
    for code in (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
        body = locks_of(some)
        label = f"{code.name}, {QUEUES * len(some)} queues"
        costs.take(label, partial(client.ask, code, {}, body))
    costs.take(
        f"CHECK_CLIENT_CONFIG, {len(FILTER)} characters",
        lambda: client.ask(Code.CHECK_CLIENT_CONFIG, {}, filter_of(next(numbers))),
    )
    costs.take(
        f"GET_CONSUME_STATS of {len(topics)} topics",
        lambda: client.ask(Code.GET_CONSUME_STATS, {"consumerGroup": GROUP}),
    )


def measure(node: BenchNode, address: str, topics: list[str], groups: list[str]) -> Costs:
    """All requests, once the node leads."""
    with ExitStack() as resources:

        def connected() -> RemotingClient:
            client = RemotingClient(address)
            resources.callback(client.close)
            return client

        client = connected()
        beat_when_leading(client, "honest", "orders", group=GROUP)
        stored = Stored(client)
        for number in range(min(MEMBERS, len(groups))):
            body = heartbeat_body(f"member-{number}", "orders", group=GROUP)
            connected().ask(Code.HEART_BEAT, {}, body)
        own = RawConsumer(node.runtime)
        resources.callback(own.close)
        costs = Costs(node.page.read_process(Role.BROKER).pid)
        costs.take("nothing", lambda: None)
        for code in TEMPLATES:
            fields, body = request(code, OWN, stored)
            costs.take(f"{int(code)} {code.name}", partial(client.ask, code, fields, body))

        def call(verb: str, arguments: Callable[[About], Mapping[str, object]]) -> None:
            own.call(verb, **arguments(OWN))

        for verb, arguments in verbs(stored).items():
            costs.take(f"verb {verb}", partial(call, verb, arguments))
        show = partial(own.call, "group_show", group=GROUP)
        costs.take(f"verb group_show, {len(topics)} topics", show)
        ask_large(costs, client, address, topics, groups)
        with another(node.runtime) as longest:
            costs.take_waits(longest)
    return costs


def rows_of(costs: Costs) -> dict[str, object]:
    """The dear ones, the dearest first, and how many there are besides."""
    dear = sorted(costs.waited, key=lambda label: -costs.spent[label])
    return {
        "requests": {
            label: {
                "processor_ms": round(costs.spent[label], 1),
                "others_waited_ms": round(costs.waited[label], 1),
            }
            for label in dear
        },
        f"below_{SHOWN_MS:.0f}_ms": len(costs.spent) - len(dear),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=2_000)
    given = parser.parse_args()
    end_in_order()
    topics = names_of("topic", 100 if given.smoke else given.topics)
    groups = names_of("group", 20 if given.smoke else given.groups)
    port = free_port()
    ack, load = "majority-memory", round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        directory = Path(scratch) / "node"
        pairs = write_tables(directory, topics, groups)
        with bench_node(
            Path(scratch),
            ack=ack,
            directory=directory,
            listen=f'remoting = "127.0.0.1:{port}"\n',
            store=SMALL_FILES,
            more=f"[node]\nlisten_port = {port}\n[access]\nadmin_over_clients = true\n",
        ) as node:
            costs = measure(node, f"127.0.0.1:{port}", topics, groups)
    figures: dict[str, object] = {
        "durability": ack, "load_before": load, "topics": len(topics), "groups": len(groups),
        "pairs": pairs, "members": min(MEMBERS, len(groups)), "times": TIMES, **rows_of(costs),
    }  # fmt: skip
    if given.smoke:
        print(figures)
    else:
        write("request_costs", figures)


if __name__ == "__main__":
    main()

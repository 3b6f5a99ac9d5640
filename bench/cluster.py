"""What does a group cost on a host that has several, and what do 1,000 others cost a node?

Estimate beforehand: a node alone is five processes and 90 MiB, and nothing of it is shared with
another node's: ten are ten times as much. A broker name in the routes is 150 bytes of JSON and as
much a queue table: a route over 1,000 groups is 250 KB, one over three 700 bytes, however many
others there are. 10,000 topics over three groups each are 1 MB of rows, which compress to a tenth.

The first part starts 1, 3 and 10 nodes, each a group of its own, and looks while nothing happens.
The second one makes groups, topics and rows up, and has the product's own code take and encode
them; bytes and counts depend on no machine.

    python -m bench.cluster [--seconds N] [--routes] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from bench.machine import RESULTS, write
from bench.message_cost import spent_by
from bench.node import bench_node
from bench.processes import cpu_seconds, end_in_order, memory_mib, processes_of
from bench.remoting_idle import free_port
from ledgermq.client import Producer
from ledgermq.formats.ed25519 import SECRET_SIZE
from ledgermq.gateway.names.registered_brokers import RegisteredBrokers
from ledgermq.remoting.registration import (
    RegisteredBroker,
    Registration,
    TableVersion,
    TopicShape,
)
from ledgermq.remoting.routes import QueueCounts, encode_cluster, encode_route
from ledgermq.rules.cluster.cluster_document import (
    ClusterDocument,
    listed,
    open_document,
    sign_document,
)
from ledgermq.rules.cluster.cluster_table import GROUP_KIND
from ledgermq.rules.cluster.numbered_rows import NumberedRows, RowKey
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.rules.cluster.topic_rows import TOPIC_KIND, ClusterTopic, TopicShare

SETTLED_S = 5.0
OVER = 3
"""Groups of most topics."""

TOPICS = 10_000
TOPIC_ROWS = 66_000
"""Topics over three groups each, beside one over all: near ``TOPIC_ROWS_MAX`` rows."""

EVERYWHERE = "everywhere"
MIB = 2**20

Figures = dict[str, object]


def nodes_cost(count: int, seconds: float, base: Path) -> Figures:
    """So many nodes, each a group, while nothing happens."""
    with ExitStack() as stack:
        nodes = []
        for _ in range(count):
            listen = f'remoting = "127.0.0.1:{free_port()}"\n'
            nodes.append(stack.enter_context(bench_node(base, ack="majority-fsync", listen=listen)))
        for node in nodes:
            with Producer(node.address) as producer:
                producer.send_batch("used", [b"x" * 1024] * 64).result()
        time.sleep(SETTLED_S)
        pids = [node.process.pid for node in nodes]
        processes = [process for pid in pids for process in processes_of(pid)]
        cpu_s = sum(map(cpu_seconds, pids))
        woken = sum(map(_switches, processes))
        time.sleep(seconds)
        cpu_s = sum(map(cpu_seconds, pids)) - cpu_s
        woken = sum(map(_switches, processes)) - woken
        return {
            "processes": len(processes),
            "threads": sum(process.num_threads() for process in processes),
            "descriptors": sum(process.num_fds() for process in processes),
            "pss_mib": round(sum(sum(memory_mib(pid).values()) for pid in pids), 1),
            "cpu_percent_of_one_core": round(cpu_s / seconds * 100, 2),
            "wakes_a_second": round(woken / seconds, 1),
            "store_mib_on_disk": round(sum(_on_disk(node.directory) for node in nodes) / MIB, 1),
        }


def _switches(process: psutil.Process) -> int:
    """Of all its threads, those that they made of their own accord."""
    return sum(thread.switches for thread in spent_by(process.pid).values())


def _on_disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _timed(act: Callable[[], object]) -> float:
    """Milliseconds, the shortest of five."""
    found = []
    for _ in range(5):
        begin = time.perf_counter()
        act()
        found.append(time.perf_counter() - begin)
    return round(min(found) * 1_000, 3)


def _name(group: int) -> str:
    return f"orders-{group:04}"


def _groups_of(topic: int, groups: int) -> list[int]:
    return [(topic * OVER + one) % groups for one in range(min(OVER, groups))]


def _tables(groups: int, topics: int) -> list[dict[str, TopicShape]]:
    """What each leader tells of, as it is decoded: nothing of one is another's."""
    made = [{EVERYWHERE: TopicShape(8, 8, 6)} for _ in range(groups)]
    for topic in range(topics):
        for group in _groups_of(topic, groups):
            made[group][f"topic-{topic:05}"] = TopicShape(8, 8, 6)
    return made


def _registered(tables: Sequence[dict[str, TopicShape]]) -> RegisteredBrokers:
    known = RegisteredBrokers()
    for group, table in enumerate(tables):
        for member in range(3):
            host = f"10.{group >> 8}.{group & 255}.{member + 1}:10911"
            told = Registration(
                TableVersion(1), table if member == 0 else {}, is_whole=True, ha_address=host
            )
            broker = RegisteredBroker("orders", _name(group), member, host)
            known.register(broker, told, connection=3 * group + member, now_ms=0)
    return known


def routes_cost(groups: int, topics: int) -> Figures:
    """Registrations of so many other groups of three nodes, and what a client is told then."""
    tables = _tables(groups, topics)
    begin = time.perf_counter()
    _registered(tables)
    took_s = time.perf_counter() - begin
    tracemalloc.start()
    known = _registered(_tables(groups, topics))
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    def route(topic: str) -> bytes:
        at = known.of_topic(topic)
        counts = [
            QueueCounts(name, one.read_queues, one.write_queues, one.perm)
            for name, one in at.items()
        ]
        return encode_route(known.brokers(at), counts)

    some = f"topic-{topics // 2:05}"
    return {
        "addresses": len(known),
        "topic_rows": sum(map(len, known.topics().values())),
        "memory_mib": round(memory / MIB, 1),
        "registering_all_ms": round(took_s * 1_000),
        f"route_over_{OVER}": {"bytes": len(route(some)), "ms": _timed(lambda: route(some))},
        "route_over_all": {
            "bytes": len(route(EVERYWHERE)),
            "ms": _timed(lambda: route(EVERYWHERE)),
        },
        "cluster_info": {
            "bytes": len(encode_cluster(known.brokers())),
            "ms": _timed(lambda: encode_cluster(known.brokers())),
        },
    }


def routes_figures() -> Figures:
    """All of ``routes_cost``, up to what there may be."""
    return {
        "routes": {count: routes_cost(count, TOPICS) for count in (10, 100, 1_000)},
        "routes_at_the_bound": routes_cost(1_000, TOPIC_ROWS),
    }


def documents_cost(groups: int, topics: int) -> Figures:
    """The rows of so many groups and topics: all of them, and one change."""
    rows = NumberedRows()
    for group in range(groups):
        nodes = [f"tcp://10.{group >> 8}.{group & 255}.{one + 1}:10912" for one in range(3)]
        rows.change(RowKey(GROUP_KIND, _name(group)), {"nodes": nodes, "user": _name(group)})
    for topic in range(topics):
        over = ClusterTopic({_name(one): TopicShare(8) for one in _groups_of(topic, groups)})
        rows.change(RowKey(TOPIC_KIND, f"topic-{topic:05}"), over.to_value())
    before = rows.at
    rows.change(RowKey(GROUP_KIND, _name(0)), {"nodes": ["tcp://10.9.9.9:10912"], "user": "u"})
    signer = SigningKey(bytes(range(SECRET_SIZE)))
    whole = ClusterDocument("sales", 1, None, rows.at, rows.above(0))
    change = ClusterDocument("sales", 1, before, rows.at, rows.above(before.number))
    found: dict[str, Mapping[str, object]] = {}
    for name, document in (("all_rows", whole), ("one_change", change)):
        signed = sign_document(signer, document)
        found[name] = {
            "rows": len(document.rows),
            "json_bytes": len(json.dumps(listed(document.rows), separators=(",", ":"))),
            "signed_bytes": len(signed),
            "sign_ms": _timed(lambda document=document: sign_document(signer, document)),  # type: ignore[misc]
            "check_and_open_ms": _timed(lambda signed=signed: open_document(signed, signer.public)),  # type: ignore[misc]
            "bytes_to_all_groups": len(signed) * (groups - 1),
        }
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="default: 30, and 1 with --smoke")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument(
        "--routes", action="store_true", help="routes alone; other figures stay those of before"
    )
    given = parser.parse_args()
    end_in_order()
    if given.routes:
        kept = json.loads((RESULTS / "cluster.json").read_text(encoding="utf-8"))
        del kept["benchmark"]
        others = {"others_measured_on": kept.pop("machine")}
        write("cluster", {**others, **kept, **routes_figures()})
        return
    seconds = given.seconds or (1.0 if given.smoke else 30.0)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        nodes = {
            count: nodes_cost(count, seconds, Path(scratch))
            for count in ((1, 2) if given.smoke else (1, 3, 10))
        }
    figures: Figures = {
        "durability": "majority-fsync, each node a group of its own",
        "seconds": seconds,
        "nodes_on_one_host": nodes,
        "topics": TOPICS,
        **routes_figures(),
        "documents": {count: documents_cost(count, TOPICS) for count in (10, 100, 1_000)},
    }
    if given.smoke:
        print(figures)
    else:
        write("cluster", figures)


if __name__ == "__main__":
    main()

"""What does a node take less while it is scraped every second, and what does a scrape cost?

One node with ``listen.http`` on its unix socket, two producers of batches as in
``produce_throughput``; pairs of runs, one of them beside a scraper that asks for ``/metrics`` each
second, which goes first by turns. What one run differs from another without a scraper stands
beside it: the ratio of the second to the first of the unscraped ones.

Estimate beforehand: a scrape of some 280 series takes the observer 10 to 20 ms of processor time,
so one in a second is 1 to 2 % of one core; on two cores, which the producers share with the node,
a half of that is theirs.

Then the same of a node with 10,000 topics and 2,000 groups that have committed in 20 topics each,
which is scraped without any other load: time of an answer, and the observer's processor time. A
scrape looks at a part of the 40,000 pairs. Estimate beforehand: 200 ms, of which most is that look.

    python -m bench.scraped [--pairs N] [--topics N] [--groups N] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from bench.machine import spread, write
from bench.many_topics import QUEUE_FILE
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order, processes_of, role_of
from bench.produce_throughput import BATCH, IN_FLIGHT, PRODUCERS, producers

SIZE = 1024
EVERY_S = 1.0
TOPICS_OF_A_GROUP = 20


class _UnixConnection(http.client.HTTPConnection):
    """A connection to the observer's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("node")
        self._path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._path))


class Scraper:
    """Asks once a second, in a thread of this process.

    Attributes:
        times_ms: of each answer.
        series: of the last one.
    """

    def __init__(self, path: Path) -> None:
        self.times_ms: list[float] = []
        self.series = 0
        self._path = path
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End behind the scrape under way."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        connection = _UnixConnection(self._path)
        while not self._is_over.wait(EVERY_S):
            began = time.perf_counter()
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            text = answer.read()
            self.times_ms.append((time.perf_counter() - began) * 1_000)
            assert answer.status == 200, text
            self.series = sum(line[:1] not in (b"#", b"") for line in text.splitlines())
        connection.close()


@contextmanager
def scraper(node: BenchNode, *, wanted: bool) -> Iterator[Scraper | None]:
    """A scraper that runs meanwhile; None where none is wanted."""
    if not wanted:
        yield None
        return
    made = Scraper(node.runtime / "http.sock")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def observer_s(node: BenchNode) -> float:
    """Processor seconds of the observer so far."""
    for process in processes_of(node.process.pid):
        if role_of(process) == "observer":
            spent = process.cpu_times()
            return float(spent.user + spent.system)
    raise RuntimeError("the node has no observer")


def run(node: BenchNode, *, seconds: float, scraped: bool) -> tuple[float, Scraper | None]:
    """Messages a second of all producers."""
    with (
        producers(node.address, size=SIZE, seconds=seconds) as go,
        scraper(node, wanted=scraped) as found,
    ):
        return sum(go()), found


def made_tables(store: Path, topics: int, groups: int) -> None:
    """Files of a store with so many topics, and groups that are at the beginning of some."""
    names = [f"topic-{number:05d}" for number in range(topics)]
    config = store / "config"
    config.mkdir(parents=True)
    table = {
        name: {"topicName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
        for name in names
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    offsets = {
        f"{names[(group * 7 + step * 13) % topics]}@group-{group:04d}": {"0": 0}
        for group in range(groups)
        for step in range(TOPICS_OF_A_GROUP)
    }
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


def with_many(base: Path, *, topics: int, groups: int, seconds: float) -> dict[str, object]:
    """Scrapes of a node that has much to tell, one in a second and nothing else."""
    own = Path(tempfile.mkdtemp(prefix="node-", dir=base))
    made_tables(own / "store", topics, groups)
    listen = 'http = "unix"\n'
    with bench_node(
        base, ack="majority-memory", directory=own, store=QUEUE_FILE, listen=listen
    ) as node:
        # Scrapes look at all topics and pairs, a part at a time: begun, and gone round once.
        with scraper(node, wanted=True):
            time.sleep(seconds)
        before_s = observer_s(node)
        with scraper(node, wanted=True) as found:
            time.sleep(seconds)
        spent_s = observer_s(node) - before_s
    assert found is not None
    return {
        "topics": topics,
        "groups": groups,
        "topics_of_a_group": TOPICS_OF_A_GROUP,
        "series": found.series,
        "scrape_ms": spread(found.times_ms),
        "observer_ms_a_second": round(spent_s * 1_000 / seconds, 1),
    }


def under_load(base: Path, *, pairs: int, seconds: float) -> dict[str, object]:
    """Pairs of runs with producers, one of each scraped."""
    ratios: list[float] = []
    rates: dict[bool, list[float]] = {False: [], True: []}
    times_ms: list[float] = []
    series = 0
    with bench_node(base, ack="majority-memory", listen='http = "unix"\n') as node:
        run(node, seconds=seconds, scraped=True)
        before_s = observer_s(node)
        for number in range(pairs):
            found: dict[bool, float] = {}
            for scraped in ((False, True), (True, False))[number % 2]:
                found[scraped], one = run(node, seconds=seconds, scraped=scraped)
                rates[scraped].append(found[scraped])
                if one is not None:
                    times_ms += one.times_ms
                    series = one.series
            ratios.append(found[True] / found[False])
        spent_s = observer_s(node) - before_s
    unscraped = rates[False]
    return {
        "load": f"{PRODUCERS} producers, batches of {BATCH}, {IN_FLIGHT} in flight, {SIZE} bytes",
        "pairs": pairs,
        "seconds": seconds,
        "series": series,
        "scrape_ms": spread(times_ms),
        "observer_ms_a_scrape": round(spent_s * 1_000 / len(times_ms), 1),
        "messages_per_second": {"unscraped": spread(unscraped), "scraped": spread(rates[True])},
        "scraped_by_unscraped": round(statistics.median(ratios), 3),
        "unscraped_by_the_one_before": round(
            statistics.median(later / earlier for earlier, later in pairwise(unscraped)), 3
        )
        if pairs > 1
        else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, help="default: 8, and 1 with --smoke")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    pairs = given.pairs or (1 if given.smoke else 8)
    seconds = 2.0 if given.smoke else 5.0
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        figures: dict[str, object] = {
            "ack_mode": "majority-memory",
            "scraped_every_s": EVERY_S,
            **under_load(Path(scratch), pairs=pairs, seconds=seconds),
            "many": with_many(
                Path(scratch), topics=given.topics, groups=given.groups, seconds=4 * seconds
            ),
        }
    if given.smoke:
        print(figures)
    else:
        write("scraped", figures)


if __name__ == "__main__":
    main()

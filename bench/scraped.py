"""What does a node take less while it is scraped every second, and what does a scrape cost?

One node with ``listen.http`` on its unix socket, two producers of batches as in
``produce_throughput``; pairs of runs, one of them beside a scraper that asks for ``/metrics`` each
second, which goes first by turns. What one run differs from another without a scraper stands
beside it: the ratio of the second to the first of the unscraped ones.

Estimate beforehand: a scrape of some 280 series takes the observer 10 to 20 ms of processor time,
so one in a second is 1 to 2 % of one core; on two cores, which the producers share with the node,
a half of that is theirs.

    python -m bench.scraped [--pairs N] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import http.client
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
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order, processes_of, role_of
from bench.produce_throughput import BATCH, IN_FLIGHT, PRODUCERS, producers

SIZE = 1024
EVERY_S = 1.0


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, help="default: 8, and 1 with --smoke")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    pairs = given.pairs or (1 if given.smoke else 8)
    seconds = 2.0 if given.smoke else 5.0
    ratios: list[float] = []
    rates: dict[bool, list[float]] = {False: [], True: []}
    times_ms: list[float] = []
    series = 0
    with (
        tempfile.TemporaryDirectory(dir=given.directory) as scratch,
        bench_node(Path(scratch), ack="majority-memory", listen='http = "unix"\n') as node,
    ):
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
    figures: dict[str, object] = {
        "load": f"{PRODUCERS} producers, batches of {BATCH}, {IN_FLIGHT} in flight, {SIZE} bytes",
        "ack_mode": "majority-memory",
        "scraped_every_s": EVERY_S,
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
    if given.smoke:
        print(figures)
    else:
        write("scraped", figures)


if __name__ == "__main__":
    main()

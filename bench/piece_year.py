"""What do the pieces of a year of messages need in a bucket: requests, bytes, money?

Reckoned, and nothing is run: bytes are those that ``bench/piece_sizes.py`` has measured of JSON
messages (``bench/results/piece_sizes.json``), requests are counted by ``bench/bucket_requests.py``,
which tests hold against a real server, rows of the manifest are encoded by the real thing. Estimate
beforehand: a TB of log is 0.16 TB of pieces, 2 dollars a month a year later, and sealing it each
hour some cents; what each node asks for its manifest is more than that.

    python -m bench.piece_year [--log-gb 1000] [--seal-s 3600] [--members 3] [--puts 0.005] [...]
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from bench.bucket_requests import AMAZON, GB, Prices, Requests, piece_checked, seal_command
from bench.piece_sizes import QUEUES, TOPICS
from ledgermq.conversion.stream.log_facts import StretchFacts
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.model.config.settings import ColdSection
from ledgermq.pipeline.pieces.piece_footer import QueueStretch
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest, PieceRow, encode_manifest
from ledgermq.pipeline.pieces.piece_seal import GROUP_LOG_BYTES, PIECE_LOG_BYTES

YEAR_S = 365 * 86_400
MONTHS = 12
SIZES = Path(__file__).parent / "results" / "piece_sizes.json"
KIND = "middle"


class PlannedYear(NamedTuple):
    """A year of messages that are sealed as they come, evenly.

    Attributes:
        log_bytes: of the log in the year.
        seal_s: a run of ``piece seal`` each.
        members: whose ``cold.place`` it is: each asks for the manifest, and reads each piece once.
        kind: of messages, as ``bench/piece_sizes.py`` has them.
    """

    log_bytes: int
    seal_s: int = 3_600
    members: int = 3
    kind: str = KIND

    @property
    def messages(self) -> int:
        return int(self.log_bytes / _sizes()[self.kind]["bytes of a message"])

    @property
    def runs(self) -> int:
        return YEAR_S // self.seal_s

    @property
    def pieces_of_run(self) -> int:
        return ceil(self.log_bytes / self.runs / PIECE_LOG_BYTES)

    @property
    def pieces(self) -> int:
        return self.runs * self.pieces_of_run

    @property
    def stored(self) -> int:
        """Bytes of the pieces at the end of the year."""
        sizes = _sizes()[self.kind]
        return int(self.log_bytes * sizes["zstd of the log"] * sizes["a sealed piece"])

    @property
    def manifest(self) -> int:
        """Bytes of the manifest at the end of the year."""
        return self.pieces * _row_bytes()

    @property
    def refreshes(self) -> int:
        """Requests for the manifest by all members."""
        return self.members * (YEAR_S // ColdSection().refresh_s)

    @property
    def manifests_read(self) -> int:
        """Bytes of it that they are given: it grows from nothing."""
        return self.refreshes * self.manifest // 2

    def sealing(self) -> Requests:
        return seal_command(pieces=self.pieces_of_run, tables=1).times(self.runs)

    def reading(self) -> Requests:
        """What members ask for by themselves, and no consumer."""
        groups = ceil(self.log_bytes / self.pieces / GROUP_LOG_BYTES)
        checks = piece_checked(groups=groups).times(self.pieces * self.members)
        return checks + Requests(gets=self.refreshes)

    def kept_first(self, prices: Prices) -> float:
        """What keeping costs in the year in which the pieces come."""
        return prices.kept(self.stored) * MONTHS / 2

    def kept_later(self, prices: Prices) -> float:
        """What keeping the same costs in each later year."""
        return prices.kept(self.stored) * MONTHS


@cache
def _sizes() -> dict[str, dict[str, float]]:
    found: Any = json.loads(SIZES.read_text())["parts_of_the_log_in_zstd"]
    return dict(found)


@cache
def _row_bytes() -> int:
    """Bytes that a piece has in the manifest, of as many queues as were measured."""
    at = 1 << 42
    stretch = QueueStretch(QUEUES, at >> 9, at >> 8, at, at + 1)
    facts = StretchFacts(**dict.fromkeys(StretchFacts.__slots__, at))
    row = PieceRow(
        start=at,
        end=at + PIECE_LOG_BYTES,
        header_size=HEADER_SIZE,
        size=PIECE_LOG_BYTES,
        tail=1 << 16,
        facts=facts,
        queues=dict.fromkeys(TOPICS, (stretch,) * QUEUES),
        snapshots=(),
        topic_bytes=dict.fromkeys(TOPICS, PIECE_LOG_BYTES // len(TOPICS)),
    )
    both, one = (len(encode_manifest(PieceManifest((row,) * count))) for count in (2, 1))
    return both - one


def told(year: PlannedYear, prices: Prices) -> dict[str, str]:
    """The figures, as the page about pieces has them."""
    sealing, reading = year.sealing(), year.reading()
    return {
        "messages": f"{year.messages:,}",
        "pieces": f"{year.pieces:,}",
        "GB of pieces": f"{year.stored / GB:,.0f}",
        "MB of manifest": f"{year.manifest / 1e6:,.0f}",
        "sealing: PUT": f"{sealing.puts:,}",
        "sealing: GET": f"{sealing.gets:,}",
        "sealing: USD": f"{prices.of(sealing):,.2f}",
        "members: GET": f"{reading.gets:,}",
        "members: USD": f"{prices.of(reading):,.2f}",
        "GB of manifests that they are given": f"{year.manifests_read / GB:,.0f}",
        "kept, the year in which they come: USD": f"{year.kept_first(prices):,.2f}",
        "kept, each later year: USD": f"{year.kept_later(prices):,.2f}",
        "all of them read from outside of the region: USD": f"{prices.taken_out(year.stored):,.2f}",
    }


def main() -> None:
    """Print the figures of one year."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--log-gb", type=float, default=1_000.0, help="GB of the log in the year")
    parser.add_argument("--seal-s", type=int, default=3_600, help="seconds between two seals")
    parser.add_argument("--members", type=int, default=3, help="with cold.place")
    parser.add_argument("--kind", choices=sorted(_sizes()), default=KIND, help="of messages")
    for name in ("puts", "gets", "month", "out"):
        parser.add_argument(f"--{name}", type=float, default=getattr(AMAZON, name))
    given = parser.parse_args()
    prices = Prices(puts=given.puts, gets=given.gets, month=given.month, out=given.out)
    year = PlannedYear(int(given.log_gb * GB), given.seal_s, given.members, given.kind)
    for name, figure in told(year, prices).items():
        print(f"{name:<52}{figure:>16}")


if __name__ == "__main__":
    main()

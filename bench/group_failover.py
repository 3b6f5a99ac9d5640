"""How long has a group of three no acknowledgement when its leader is killed, or is stopped?

Two producers that know all nodes send batches as fast as they are taken; the settings are the
defaults. The leader dies with all its processes (kill -9), or with ``--hand-over`` is stopped as
``systemctl stop`` does; the longest time in which nobody got an acknowledgement counts. The node is
started again, and has caught up, before the next round.

Estimate beforehand: a follower whose connection has ended campaigns 240 ms after it heard of the
leader's last round first, which is 50 ms ago at the median; votes and grants cost two round trips
and three syncs, the clients look for the leader meanwhile: 0.22 s, and 0.6 s where it hears of no
end, or is not agreed with. A hand-over waits
until its target has everything: some 20 ms of entries under way, and the same two round trips.

    python -m bench.group_failover [--hand-over] [--rounds N] [--rate N] [--ack MODE]
                                   [--no-curve] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.group import BenchGroup, GroupNode, bench_group
from bench.group_load import Acks, GroupLoad, Load, group_load, longest_gap_s, rate_of
from bench.machine import spread, write
from bench.processes import end_in_order

PRODUCERS = 2
BATCH = 64
SIZE = 1024
IN_FLIGHT = 16
STEADY_S = 2.0
AFTER_S = 1.0
ROUNDS_A_GROUP = 5
"""Then stores are made anew: nothing deletes old log files, and a disk is soon full."""


class Round(NamedTuple):
    """One end of a leader; seconds.

    Attributes:
        gap: longest time without an acknowledgement for anyone.
        producer_gap: the same for the producer that fared worst.
        leader: until a node had a new grant.
        slowest_ack: longest time that a frame waited for its answer.
        gap_before: longest time without an acknowledgement in the seconds before.
        terms: elections that it took.
        failed: frames that were not stored, as far as their producer knows.
        caught_up: from the start of the node until it followed closely.
        status: the node's exit status, of a stop.
    """

    gap: float
    producer_gap: float
    leader: float
    slowest_ack: float
    gap_before: float
    terms: int
    failed: int
    rate_before: float
    caught_up: float = 0.0
    status: int | None = None


def end_leader(group: BenchGroup, load: GroupLoad, *, hands_over: bool) -> tuple[GroupNode, Round]:
    """Kill or stop who leads; who it was, and what that cost."""
    load.take()
    steady_ns = time.monotonic_ns()
    time.sleep(STEADY_S)
    leader, term = group.leader(), group.term()
    at_ns = time.monotonic_ns()
    if hands_over:
        leader.ask_to_stop()
    else:
        leader.kill()
    group.leader(besides=leader)
    led_ns = time.monotonic_ns()
    taken = load.take_until_all_acknowledge(led_ns)
    time.sleep(AFTER_S)
    taken = [np.concatenate(pair) for pair in zip(taken, load.take(), strict=True)]
    status = leader.wait_end() if hands_over else None
    end_ns = max(led_ns, *(_first_answer_ns(one, led_ns) for one in taken)) + int(AFTER_S * 1e9)
    rows = np.concatenate(taken)
    rows = rows[rows["acked_ns"] >= at_ns]
    return leader, Round(
        gap=longest_gap_s(taken, at_ns, end_ns),
        producer_gap=max(longest_gap_s([one], at_ns, end_ns) for one in taken),
        leader=(led_ns - at_ns) / 1e9,
        slowest_ack=float((rows["acked_ns"] - rows["sent_ns"]).max()) / 1e9,
        gap_before=longest_gap_s(taken, steady_ns, at_ns),
        terms=group.term() - term,
        failed=int((rows["messages"] == 0).sum()),
        rate_before=rate_of(taken, steady_ns, at_ns),
        status=status,
    )


def _first_answer_ns(taken: Acks, since_ns: int) -> int:
    """When a producer was first told of something that it sent after ``since_ns``."""
    late = taken[(taken["sent_ns"] > since_ns) & (taken["messages"] > 0)]
    return int(late["acked_ns"].min())


def run(
    base: Path, *, ack: str, curve: bool, rounds: int, rate: float, hands_over: bool
) -> tuple[list[Round], list[str]]:
    """So many rounds, and what the nodes complained of."""
    done: list[Round] = []
    complaints: list[str] = []
    wanted = Load(BATCH, SIZE, IN_FLIGHT, rate / PRODUCERS)
    while len(done) < rounds:
        with (
            tempfile.TemporaryDirectory(dir=base) as own,
            bench_group(Path(own), ack=ack, curve=curve) as group,
            group_load(group.addresses, Path(own), load=wanted, producers=PRODUCERS) as load,
        ):
            for _ in range(min(ROUNDS_A_GROUP, rounds - len(done))):
                node, one = end_leader(group, load, hands_over=hands_over)
                node.start()
                done.append(one._replace(caught_up=group.wait_caught_up(node)))
                print(f"{len(done)} of {rounds}: {_rounded(done[-1])}", flush=True)
            complaints += group.complaints()
    return done, complaints


def _rounded(one: Round) -> dict[str, float | int | None]:
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in one._asdict().items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hand-over", action="store_true", help="SIGTERM instead of kill -9")
    parser.add_argument("--rounds", type=int, help="default: 20, and 2 with --smoke")
    parser.add_argument(
        "--rate", type=float, default=0, help="messages a second (default: all that are taken)"
    )
    parser.add_argument("--ack", default="majority-fsync", help="ack.mode (default: %(default)s)")
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    rounds = given.rounds or (2 if given.smoke else 20)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        done, complaints = run(
            Path(scratch),
            ack=given.ack,
            curve=given.curve,
            rounds=rounds,
            rate=given.rate,
            hands_over=given.hand_over,
        )
    figures: dict[str, object] = {
        "leader": "SIGTERM" if given.hand_over else "kill -9",
        "rounds": rounds,
        "ack_mode": given.ack,
        "curve": given.curve,
        "load": f"{PRODUCERS} producers, batches of {BATCH}, {SIZE} bytes, {IN_FLIGHT} in flight",
        "messages_per_second_asked": given.rate or "all that are taken",
        "longest_gap_between_acks_s": spread([one.gap for one in done]),
        "the_same_for_one_producer_s": spread([one.producer_gap for one in done]),
        "new_leader_after_s": spread([one.leader for one in done]),
        "slowest_ack_s": spread([one.slowest_ack for one in done]),
        "longest_gap_before_s": spread([one.gap_before for one in done]),
        "messages_per_second_before": spread([one.rate_before for one in done]),
        "caught_up_after_s": spread([one.caught_up for one in done]),
        "elections_most": max(one.terms for one in done),
        "frames_failed": sum(one.failed for one in done),
        "lines_of_warnings_and_errors": len(complaints),
        "each": [_rounded(one) for one in done],
    }
    if given.smoke:
        print(figures)
    else:
        write("group_hand_over" if given.hand_over else "group_failover", figures)


if __name__ == "__main__":
    main()

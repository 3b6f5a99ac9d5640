"""``python -m ledgermq.sim --seed N --count M``: runs, each with a seed that repeats it.

    --seed N    the first seed (0)
    --count M   how many seeds, one after the other (1)
    --storm     elections follow one another at once, whatever the seed says
    --spoil     disks turn bits and lose pages of what was synced, whatever the seed says
    --services  with brokers, and clients of all that they do
    --witness   with a witness that holds no bodies, and a member that is lost for good
    --repeat    clients that are cut off while others write more than is looked at, and then repeat
    --idle      queues that fall idle while logs are deleted and shipped, and nothing else
    --cluster   clusters of groups, their home and its documents, and nothing else
    --trace     print what happened, also when nothing failed

Exit status: 0 all promises were kept, 1 not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from ledgermq.sim.cluster.cluster_run import run_cluster_seed
from ledgermq.sim.machine.events import MS
from ledgermq.sim.runs.idle_queues import run_idle_seed
from ledgermq.sim.runs.runs import FaultRun, Outcome, Verbs, WitnessRun, run_seed
from ledgermq.sim.runs.service_runs import ServiceRun
from ledgermq.sim.world import Shape, World

WINDOW = 8_192
"""More than a frame, and less than producers write while one of them is away."""

PRODUCERS = 6
AWAY_MS = (50, 300, 1_200)
TRACE_LINES = 150


class RepeatRun(FaultRun):
    """Writers look at less of the log than is written while a client is away; there is no index.

    So what is not found is refused as unknown, unless the client knows that it was sent later.
    """

    def _world(self, seed: int, shape: Shape) -> World:
        return World(seed, replace(shape, window=WINDOW, producers=PRODUCERS))

    def _verbs(self) -> Verbs:
        return (*super()._verbs(), (self._cut_off, 12))

    def _cut_off(self) -> None:
        producer = self.random.choice(self.world.producers)
        producer.cut_off(self.random.choice(AWAY_MS) * MS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds that ``arguments`` name; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ledgermq.sim",
        description="Run groups of real nodes on a fake network, disk and clock.",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--count", type=int, default=1, metavar="M", help="how many seeds")
    parser.add_argument("--storm", action="store_true", help="elections and nothing else")
    parser.add_argument("--spoil", action="store_true", help="disks spoil what was synced")
    parser.add_argument("--services", action="store_true", help="with brokers and their clients")
    parser.add_argument("--witness", action="store_true", help="with a witness without bodies")
    parser.add_argument("--repeat", action="store_true", help="clients that repeat late")
    parser.add_argument("--idle", action="store_true", help="idle queues, deleted logs, shipping")
    parser.add_argument("--cluster", action="store_true", help="groups, their home, documents")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    options = parser.parse_args(arguments)
    if options.idle:
        return _run_idle(options)
    if options.cluster:
        return _run_clusters(options)
    make = _kind(options)
    failures = committed = acknowledged = leaders = 0
    for seed in range(options.seed, options.seed + options.count):
        outcome = run_seed(seed, storm=options.storm, spoils=options.spoil or None, make=make)
        committed += outcome.committed
        acknowledged += outcome.acknowledged
        leaders += outcome.leaders
        if outcome.failure:
            failures += 1
            _tell(seed, outcome, options)
        if options.trace:
            print("\n".join(outcome.history[-TRACE_LINES:]))
    print(
        f"seeds={options.count} failures={failures} committed={committed}"
        f" acknowledged={acknowledged} leaders={leaders}"
    )
    return 1 if failures else 0


def _kind(options: argparse.Namespace) -> type[FaultRun]:
    if options.witness:
        return WitnessRun
    if options.repeat:
        return RepeatRun
    return ServiceRun if options.services else FaultRun


def _run_idle(options: argparse.Namespace) -> int:
    failures = shipped = deleted = leaders = 0
    for seed in range(options.seed, options.seed + options.count):
        failure, run = run_idle_seed(seed)
        shipped, deleted, leaders = (
            shipped + run.shipped,
            deleted + run.deleted,
            leaders + run.leaders,
        )
        if failure:
            failures += 1
            again = f"python -m ledgermq.sim --idle --seed {seed}"
            print(f"FAILED seed={seed} {failure} | again: {again} --trace", flush=True)
        if options.trace:
            print("\n".join(run.history[-TRACE_LINES:]))
    print(
        f"seeds={options.count} failures={failures} shipped={shipped}"
        f" files_deleted={deleted} leaders={leaders}"
    )
    return 1 if failures else 0


def _run_clusters(options: argparse.Namespace) -> int:
    failures = groups = moves = changes = 0
    for seed in range(options.seed, options.seed + options.count):
        failure, run = run_cluster_seed(seed)
        groups, moves = groups + len(run.groups), moves + run.moves
        changes += run.home.table.at.number
        if failure:
            failures += 1
            again = f"python -m ledgermq.sim --cluster --seed {seed}"
            print(f"FAILED seed={seed} {failure} | again: {again} --trace", flush=True)
        if options.trace:
            print("\n".join(run.network.events.history))
    print(
        f"seeds={options.count} failures={failures} groups={groups} homes={moves} changes={changes}"
    )
    return 1 if failures else 0


def _tell(seed: int, outcome: Outcome, options: argparse.Namespace) -> None:
    again = f"python -m ledgermq.sim --seed {seed}"
    again += (" --storm" if options.storm else "") + (" --spoil" if options.spoil else "")
    kinds = ("witness", "repeat", "services")
    again += next((f" --{kind}" for kind in kinds if vars(options)[kind]), "")
    print(f"FAILED seed={seed} {outcome.failure} | again: {again} --trace", flush=True)


if __name__ == "__main__":
    sys.exit(main())

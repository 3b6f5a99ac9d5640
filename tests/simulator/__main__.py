"""``python -m tests.simulator --seed N --count M``: runs, each with a seed that repeats it.

    --seed N    the first seed (0)
    --count M   how many seeds, one after the other (1)
    --storm     elections follow one another at once, whatever the seed says
    --spoil     disks turn bits and lose pages of what was synced, whatever the seed says
    --fed       writers feed one another in all of them, and not in half
    --services  with brokers, and clients of all that they do
    --witness   with a witness that holds no bodies, and a member that is lost for good
    --lone      groups of one, which become larger and of one again
    --wait      writers take what they can where they wait, by the compiled kernel
    --repeat    clients that are cut off while others write more than is looked at, and then repeat
    --idle      queues that fall idle while logs are deleted and shipped, and nothing else
    --cluster   clusters of groups, their home and its documents, and nothing else
    --trace     print what happened, also when nothing failed

Exit status: 0 all promises were kept, 1 not.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tests.simulator.cluster.cluster_run import run_cluster_seed
from tests.simulator.runs.idle_queues import run_idle_seed
from tests.simulator.runs.runs import FaultRun, LoneRun, RepeatRun, WaitRun, WitnessRun, run_seed
from tests.simulator.runs.service_runs import ServiceRun

TRACE_LINES = 150

Seen = tuple[str, Sequence[str], Mapping[str, int]]
"""What came of a seed: its failure (empty: none), what happened, and its figures."""

_KINDS: Mapping[str, type[FaultRun]] = {
    "witness": WitnessRun,
    "lone": LoneRun,
    "repeat": RepeatRun,
    "wait": WaitRun,
    "services": ServiceRun,
}
"""Runs that are asked for by name; of several the first one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds that ``arguments`` name; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulator",
        description="Run groups of real nodes on a fake network, disk and clock.",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--count", type=int, default=1, metavar="M", help="how many seeds")
    parser.add_argument("--storm", action="store_true", help="elections and nothing else")
    parser.add_argument("--spoil", action="store_true", help="disks spoil what was synced")
    parser.add_argument("--fed", action="store_true", help="writers feed one another in all")
    parser.add_argument("--services", action="store_true", help="with brokers and their clients")
    parser.add_argument("--witness", action="store_true", help="with a witness without bodies")
    parser.add_argument("--lone", action="store_true", help="groups of one that become larger")
    parser.add_argument("--repeat", action="store_true", help="clients that repeat late")
    parser.add_argument("--wait", action="store_true", help="writers work where they wait")
    parser.add_argument("--idle", action="store_true", help="idle queues, deleted logs, shipping")
    parser.add_argument("--cluster", action="store_true", help="groups, their home, documents")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    options = parser.parse_args(arguments)
    if options.idle:
        return _run(options, _idle, "--idle --seed {}")
    if options.cluster:
        return _run(options, _cluster, "--cluster --seed {}")
    flags = [f" --{one}" for one in ("storm", "spoil", "fed") if vars(options)[one]]
    flags += [f" --{one}" for one in _KINDS if vars(options)[one]][:1]
    return _run(options, partial(_group, options), f"--seed {{}}{''.join(flags)}")


def _group(options: argparse.Namespace, seed: int) -> Seen:
    make = next((_KINDS[one] for one in _KINDS if vars(options)[one]), FaultRun)
    found = run_seed(
        seed,
        storm=options.storm,
        spoils=options.spoil or None,
        fed=options.fed or None,
        make=make,
    )
    figures = {name: getattr(found, name) for name in ("committed", "acknowledged", "leaders")}
    return found.failure, found.history[-TRACE_LINES:], figures


def _idle(seed: int) -> Seen:
    failure, run = run_idle_seed(seed)
    figures = {"shipped": run.shipped, "files_deleted": run.deleted, "leaders": run.leaders}
    return failure, run.history[-TRACE_LINES:], figures


def _cluster(seed: int) -> Seen:
    failure, run = run_cluster_seed(seed)
    figures = {"groups": len(run.groups), "homes": run.moves, "changes": run.home.table.at.number}
    return failure, list(run.network.events.history), figures


def _run(options: argparse.Namespace, run: Callable[[int], Seen], again: str) -> int:
    """Run the seeds, and tell what came of them; the exit status."""
    failures = 0
    sums: Counter[str] = Counter()
    # A run ends with a collection, which need not look through what was imported.
    gc.freeze()
    for seed in range(options.seed, options.seed + options.count):
        failure, history, figures = run(seed)
        sums.update(figures)
        if failure:
            failures += 1
            command = f"python -m tests.simulator {again.format(seed)} --trace"
            print(f"FAILED seed={seed} {failure} | again: {command}", flush=True)
        if options.trace:
            print("\n".join(history))
    told = "".join(f" {name}={count}" for name, count in sums.items())
    print(f"seeds={options.count} failures={failures}{told}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

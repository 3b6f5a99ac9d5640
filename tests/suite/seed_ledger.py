"""``make seeds``: seeds of the simulator, until 2,000 of each kind passed with the same sources.

    python -m tests.suite.seed_ledger               what is left of each kind
    python -m tests.suite.seed_ledger spoil plain   of these
    python -m tests.suite.seed_ledger --list        how many have passed; 1 while any is left

2,000 take ten minutes to half an hour of one processor, and most changes touch nothing of what the
simulator runs. So what has passed is kept in ``tests/sim/passed_seeds.json``, which is tracked,
beside a digest of all modules that were loaded after some runs of the kind: a change of the code of
one of them begins anew, and at other seeds; any other change does not, nor one of words alone.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

from tests.suite.kept_rows import keep_rows, kept_rows

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "sim" / "passed_seeds.json"
PRODUCT = ROOT / "ledgermq"
KERNELS = PRODUCT / "formats" / "kernels"
CLIENT = PRODUCT / "client"
OF_CLIENTS = KERNELS / "_exchange.py"
"""The kernel that a producer's exchange alone has, of which none is made without the client."""

VERSION_FILE = PRODUCT / "__init__.py"
"""Has the version alone: a label that a release changes, and by which nothing is decided."""

_GROUP = "from tests.simulator.runs.runs import run_seed as run\noptions['fed'] = None\n"


def _made(name: str, module: str = "runs") -> str:
    """Runs of this class."""
    return f"{_GROUP}from tests.simulator.runs.{module} import {name}\noptions['make'] = {name}\n"


KINDS = {
    "plain": _GROUP,
    "spoil": _GROUP,
    "fed": _GROUP,
    "services": _made("ServiceRun", "service_runs"),
    "lone": _made("LoneRun"),
    "repeat": _made("RepeatRun"),
    "wait": _made("WaitRun"),
    "witness": _made("WitnessRun"),
    "cluster": "from tests.simulator.cluster.cluster_run import run_cluster_seed as run\n",
}
"""By the word of ``python -m tests.simulator``, which for the first is none: what a run takes."""

IDLE = dict.fromkeys(("plain", "spoil", "fed", "lone", "repeat", "wait"), ("broker", "dispatcher"))
"""Packages that are loaded with a node, and of which nothing runs where a group has no readers:
they are left out of the digest."""

WANTED = 2_000
CHUNK = 20
"""Seeds of one process: what is lost when a run is broken off, for each processor."""

LOADED_AFTER = 4
"""Runs, after which modules that are imported late are there."""

_TELL_LOADED = """
import sys
for seed in range(int(sys.argv[1])):
    run(seed, **options)
for name, module in sys.modules.items():
    if name.partition(".")[0] == "ledgermq" or name.startswith("tests.simulator"):
        print("loaded", module.__file__)
"""


class Passed(NamedTuple):
    """The seeds from ``first`` on, ``count`` of them, passed with sources of this digest."""

    sources: str
    first: int
    count: int


class SeedFailedError(Exception):
    """A seed failed, or its process did: with what it printed."""


def kept() -> dict[str, Passed]:
    """What is known to have passed, by kind."""
    return {kind: Passed(**fields) for kind, fields in kept_rows(KEPT).items()}


def keep(kind: str, passed: Passed) -> None:
    """Replace what is known of a kind."""
    rows = sorted((kept() | {kind: passed}).items())
    keep_rows(KEPT, {name: one._asdict() for name, one in rows})


def sources_of(kind: str) -> str:
    """A digest of the modules of the product and of the simulator that runs of this kind load.

    Raises:
        SeedFailedError: one of these runs failed.
    """
    program = f"options = {{}}\n{KINDS[kind]}{_TELL_LOADED}"
    printed = _run([sys.executable, "-c", program, str(LOADED_AFTER)])
    paths = {Path(name) for name in re.findall(r"^loaded (.+)$", printed, re.M)}
    sources = {source for path in paths for source in _written(path.resolve())}
    sources.discard(VERSION_FILE)
    if not any(path.is_relative_to(CLIENT) for path in sources):
        sources.discard(OF_CLIENTS)
    idle = tuple(PRODUCT / package for package in IDLE.get(kind, ()))
    sources = {path for path in sources if not any(path.is_relative_to(one) for one in idle)}
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + _code(path))
    return digest.hexdigest()


def _code(path: Path) -> bytes:
    """What of a source decides what is run: not its comments and docstrings.

    A kernel's comments say how it is compiled.
    """
    data = path.read_bytes()
    if path.suffix != ".py" or path.parent == KERNELS:
        return data
    tree = ast.parse(data)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.unparse(tree).encode()


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _written(path: Path) -> Iterator[Path]:
    """What people wrote of a loaded file.

    A kernel is compiled, and not to the same bytes on each machine: from its module, and from what
    the kernels of its folder say of one another. What they share of Cython's own has no module.
    """
    if path.suffix == ".py":
        yield path
        return
    name = path.name.partition(".")[0]
    modules = [path.with_name(f"{name}{suffix}") for suffix in (".py", ".pyx")]
    yield from (module for module in modules if module.exists())
    yield from path.parent.glob("*.pxd")


def of_sources(kind: str, sources: str) -> Passed:
    """What has passed with them: at first nothing, from a seed on that these sources draw."""
    one = kept().get(kind)
    if one is not None and one.sources == sources:
        return one
    return Passed(sources, int(sources[:6], 16), 0)


def run_left(kind: str, wanted: int) -> Passed:
    """Run what is left of a kind, on all processors; what has passed is kept meanwhile.

    Raises:
        SeedFailedError: by the first that failed; those before it are kept.
    """
    passed = of_sources(kind, sources_of(kind))
    begins = range(passed.first + passed.count, passed.first + wanted, CHUNK)
    with ThreadPool(len(os.sched_getaffinity(0))) as pool:
        for printed in pool.imap(lambda seed: _chunk(kind, seed), begins):
            passed = passed._replace(count=passed.count + CHUNK)
            keep(kind, passed)
            print(f"{kind}: {passed.count} of {wanted}: {printed.strip()}", flush=True)
    return passed


def _chunk(kind: str, seed: int) -> str:
    words = ["--seed", str(seed), "--count", str(CHUNK), *_words(kind)]
    return _run([sys.executable, "-m", "tests.simulator", *words])


def _words(kind: str) -> list[str]:
    return [] if kind == "plain" else [f"--{kind}"]


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, check=False, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise SeedFailedError(done.stdout)
    return done.stdout


def main(words: Sequence[str]) -> int:
    """See the module's text; 0 when all that was asked for has passed."""
    asked = [word for word in words if word != "--list"]
    if unknown := sorted(set(asked) - set(KINDS)):
        print(f"not known: {', '.join(unknown)}; kinds are {', '.join(KINDS)}", file=sys.stderr)
        return 2
    left = 0
    for kind in asked or KINDS:
        try:
            if "--list" in words:
                one = of_sources(kind, sources_of(kind))
            else:
                one = run_left(kind, WANTED)
        except SeedFailedError as failed:
            print(f"{kind}: {failed}", file=sys.stderr)
            left += 1
            continue
        left += one.count < WANTED
        print(f"{kind}: {one.count} of {WANTED} passed, from seed {one.first} on")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

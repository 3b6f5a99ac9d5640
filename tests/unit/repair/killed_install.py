"""Install derived files in children that die by -9, run as a script by the tests.

    killed_install.py TEMPLATE FOLDER COUNT

A first child installs in a copy of ``TEMPLATE`` (a store, whose old queues are damaged, and what
was built of its log) and counts the calls that change a file. For each one that renames, the one
behind it, and ``COUNT`` others a child installs in another copy and kills itself instead; then the
store is started as a dispatcher starts, sometimes after the command was given once more. Prints one
JSON object: how many died, the numbers of the calls that rename, and what was found wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.repair.install_derived import install_derived
from ledgermq.store.store_directory import open_directory
from tests.small_store import SIZES, dispatch
from tests.unit.conversion.killed_conversion import copy, in_child

DERIVED = "ledgermq/derived"
LAYOUT = IndexLayout(slots=SIZES["max_hash_slot_num"], items=SIZES["max_index_num"])


def install(root: Path) -> None:
    install_derived(open_directory(root), root / DERIVED)


def content(root: Path) -> list[list[bytes]]:
    """Queues and index, each by the order of their names: those of index files are times."""
    return [
        [path.read_bytes() for path in sorted((root / name).rglob("*")) if path.is_file()]
        for name in ("consumequeue", "index")
    ]


def wrong_with(root: Path, expected: list[list[bytes]]) -> list[str]:
    """What is not as it must be in a store that was started."""
    found = content(root)
    if found == expected:
        return [one.what for one in check_store(root, CheckOptions(index_layout=LAYOUT)).findings]
    return [f"{name} differs" for name, a, b in zip("qi", found, expected, strict=True) if a != b]


def main(template: Path, folder: Path, count: int) -> None:
    expected = content(template / DERIVED)
    whole = copy(template, folder / "whole")
    _, calls = in_child(lambda: install(whole), kill_at=None, renames=folder / "renames")
    renames = [int(line) for line in (folder / "renames").read_text().split()]
    dispatch(whole)
    wrong = [f"not killed: {one}" for one in wrong_with(whole, expected)]
    damaged = content(template)
    untouched = 0
    chosen = {number * calls // count for number in range(count)}
    chosen |= {at for one in renames for at in (one, one + 1) if at < calls}
    for turn, at in enumerate(sorted(chosen)):
        root = copy(template, folder / "killed")
        ended, _ = in_child(lambda root=root: install(root), kill_at=at)  # type: ignore[misc]
        if ended:
            wrong.append(f"call {at} was not made")
        if turn % 4 == 3:
            try:
                install(root)
            except (ConfigError, CorruptLogError) as error:
                # Some of its files have been put in place, or are being deleted.
                if "run the job again" not in error.message:
                    raise
        elif content(root) == damaged:
            # It died before it had changed anything of the store, which needs no start.
            untouched += 1
            continue
        dispatch(root)
        wrong += [f"call {at} of {calls}: {one}" for one in wrong_with(root, expected)]
    said = {"killed": len(chosen), "renames": renames, "untouched": untouched, "wrong": wrong}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))

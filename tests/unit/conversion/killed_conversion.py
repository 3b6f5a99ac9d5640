"""Convert copies of a store in children that die by -9, run as a script by the tests.

    killed_conversion.py VERB TEMPLATE FOLDER COUNT

A first child converts a copy and counts the calls that change a file; ``COUNT`` calls are chosen
evenly. For each a child converts another copy and kills itself instead of making that call; then
the conversion is gone on with, or undone, by turns, and the store is compared with one that was
never interrupted. Every second time the way back or forth is killed, too, and begun again. Prints
one JSON object: the number of calls, and what was found wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from ledgermq.cli.arguments import add_size_options
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.conversion import conversion_journal
from ledgermq.conversion.downgrade import downgrade, undo_downgrade
from ledgermq.conversion.upgrade import undo_upgrade, upgrade
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId

CHANGING = (
    "open", "pwrite", "write", "ftruncate", "posix_fallocate", "fsync", "fdatasync", "rename",
    "replace", "unlink", "mkdir", "rmdir",
)  # fmt: skip
"""Calls of the operating system that the conversion changes files with, or waits for the disk."""

NOT_COMPARED = ("lock", "ledgermq/lock", "ledgermq/conversion", "abort")
REWRITTEN = ("checkpoint", "ledgermq/dispatch-checkpoint")
"""What recovery alone writes anew, which an undo does not take back."""

Digests = dict[str, str]


class Killer:
    """Counts calls in this process, and ends it instead of the one that has the number ``at``."""

    def __init__(self, at: int | None) -> None:
        self.count = 0
        self.renames: list[int] = []
        self._at = at
        for name in CHANGING:
            setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def counted(*arguments: Any, **named: Any) -> Any:
            if call.__name__ != "open" or arguments[1] & os.O_CREAT:
                if self.count == self._at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if call.__name__ in ("rename", "replace"):
                    self.renames.append(self.count)
                self.count += 1
            return call(*arguments, **named)

        return counted


def convert(verb: str, root: Path) -> None:
    parser = argparse.ArgumentParser()
    add_size_options(parser)
    sizes = parser.parse_args(["--hash-slots", "500"])

    def ignore(*_: object) -> None:
        pass

    store = store_section(sizes, root, LogKind.COMMITLOG)
    if verb == "upgrade":
        upgrade(root, store, group="g", self_id=NodeId("n0"), progress=ignore)
    else:
        downgrade(root, store, self_id=None, progress=ignore)


def undo(verb: str, root: Path) -> None:
    try:
        undo_upgrade(root) if verb == "upgrade" else undo_downgrade(root)
    except ConfigError:
        # It died before anything was begun, or when all was undone.
        if conversion_journal.read_journal(root) is not None:
            raise


def in_child(
    work: Callable[[], None], *, kill_at: int | None, renames: Path | None = None
) -> tuple[bool, int]:
    """Run ``work`` in a child; whether it came to its end, and how many calls it made.

    Args:
        renames: gets the numbers of the calls that renamed, one a line.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        killer = Killer(kill_at)
        status = 1
        try:
            work()
            status = 0
        finally:
            killer._at = None
            if renames is not None:
                renames.write_text("\n".join(map(str, killer.renames)))
            os.write(writer, b"%d" % killer.count)
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        count = said.read()
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert os.WEXITSTATUS(status) == 0, "the conversion failed"
    return not os.WIFSIGNALED(status), int(count or 0)


def copy(template: Path, target: Path) -> Path:
    subprocess.run(["rm", "-rf", str(target)], check=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(template), str(target)], check=True)
    return target


def digests(root: Path, *, without: tuple[str, ...] = ()) -> Digests:
    """Content by name; names of index files tell when they were made, so they are numbered."""
    found: Digests = {}
    for folder in (root, *sorted(path for path in root.rglob("*") if path.is_dir())):
        for number, path in enumerate(sorted(path for path in folder.iterdir() if path.is_file())):
            name = str(path.relative_to(root))
            # A file that was to replace another one when the process died.
            if name.startswith(NOT_COMPARED) or name.endswith(".tmp") or name in without:
                continue
            found[f"index/{number}" if name.startswith("index/") else name] = digest(path)
    return found


def digest(path: Path) -> str:
    """Size and content; what is a hole, or might be one, is left out."""
    total = hashlib.blake2b(b"%d" % path.stat().st_size)
    with path.open("rb") as file:
        end = path.stat().st_size
        at = 0
        while at < end:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            data = os.pread(file.fileno(), hole - at, at)
            for page in range(0, len(data), 4_096):
                if any(data[page : page + 4_096]):
                    total.update(b"%d" % (at + page) + data[page : page + 4_096])
            at = hole
    return total.hexdigest()


def difference(found: Digests, expected: Digests) -> list[str]:
    return sorted(
        name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
    )


def main(verb: str, template: Path, folder: Path, count: int) -> None:
    whole = copy(template, folder / "whole")
    _, calls = in_child(lambda: convert(verb, whole), kill_at=None)
    converted = digests(whole)
    back = digests(template, without=REWRITTEN)
    wrong: list[str] = []
    chosen = sorted({number * calls // count for number in range(count)})
    for turn, at in enumerate(chosen):
        root = copy(template, folder / "killed")
        ended, _ = in_child(lambda root=root: convert(verb, root), kill_at=at)  # type: ignore[misc]
        is_resumed = turn % 2 == 0

        def go(root: Path = root, is_resumed: bool = is_resumed) -> None:
            convert(verb, root) if is_resumed else undo(verb, root)

        if turn % 4 >= 2:
            in_child(go, kill_at=(at * 7) % 40)
        if not (is_resumed and done(root)):
            in_child(go, kill_at=None)
        expected = converted if is_resumed else back
        differs = difference(digests(root, without=() if is_resumed else REWRITTEN), expected)
        if ended or differs:
            wrong.append(f"call {at} of {calls}, resumed={is_resumed}: {differs}")
    json.dump({"calls": calls, "killed": len(chosen), "wrong": wrong}, sys.stdout)


def done(root: Path) -> bool:
    found = conversion_journal.read_journal(root)
    return found is not None and found.phase is conversion_journal.Phase.SWITCHED


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))

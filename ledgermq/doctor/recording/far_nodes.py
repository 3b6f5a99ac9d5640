"""Nodes at addresses, asked once a second for what they report; each in a thread of its own."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledgermq.client.broker_connection import connect_broker
from ledgermq.doctor.recording.record_folder import INTERVAL_S, RecordFolder
from ledgermq.model.errors import LedgerError

NAME = "ledgermq doctor"
ANSWER_S = 3.0
ADDRESSES_MAX = 16
_STRANGE = re.compile(r"[^A-Za-z0-9.-]+")
_AGAIN = "+"
"""Sign before the number of an address that is written as one before it."""

ABOUT = (
    "what the node at {} answered (node_report), once a second: role, cursors, counters, disk,"
    " processes; or why it did not"
)


@dataclass(slots=True)
class FarNode:
    """What one of them told.

    Attributes:
        name: what it calls itself; empty when it never answered.
        last: its last report.
        why: why it told nothing the last time it did not; empty when it always did.
        answers: how often it answered.
        failures: how often it did not.
    """

    address: str
    name: str = ""
    last: Mapping[str, object] = field(default_factory=dict)
    why: str = ""
    answers: int = 0
    failures: int = 0


class FarNodes:
    """All of them, asked from the beginning until ``finish``."""

    def __init__(self, folder: RecordFolder, addresses: Sequence[str]) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self._nodes = [FarNode(address) for address in addresses]
        self._threads = [
            threading.Thread(target=self._run, args=(node, file), name=node.address, daemon=True)
            for node, file in zip(self._nodes, files_of(addresses), strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[FarNode]:
        """Ask no more; what each told. Waits for an answer that is still out, and for no other."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_S)
        for node in self._nodes:
            if node.failures and not node.answers:
                self._folder.miss(f"node at {node.address}", node.why)
        return self._nodes

    def _run(self, node: FarNode, file: str) -> None:
        try:
            with connect_broker(node.address, name=NAME, timeout_s=ANSWER_S) as broker:
                while not self._stop.is_set():
                    began = time.time()
                    line: dict[str, object] = {"at": round(began, 3)}
                    try:
                        report = broker.call("node_report")
                    except LedgerError as error:
                        node.failures += 1
                        node.why = line["why"] = error.message
                    else:
                        node.answers += 1
                        node.last = report
                        node.name = _name_in(report)
                        line |= {"took_ms": round((time.time() - began) * 1_000), **report}
                    self._folder.add_line(file, ABOUT.format(node.address), line)
                    self._stop.wait(max(0.0, began + INTERVAL_S - time.time()))
        except (LedgerError, OSError) as error:
            node.failures += 1
            node.why = str(error)


def files_of(addresses: Sequence[str]) -> list[str]:
    """The file of a record for each address, another one for each."""
    files: list[str] = []
    seen: Counter[str] = Counter()
    for address in addresses:
        name = _STRANGE.sub("-", address)
        seen[name] += 1
        number = f"{_AGAIN}{seen[name]}" if seen[name] > 1 else ""
        files.append(f"nodes/{name}{number}.jsonl")
    return files


def _name_in(report: Mapping[str, object]) -> str:
    names = report.get("node")
    return str(names.get("self_id", "")) if isinstance(names, dict) else ""

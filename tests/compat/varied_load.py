"""Processes that produce at the same time (``varied_producer.py``), and what they were told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.compat.dump_checks import NEW_TOPIC, OLD_TOPIC, Json
from tests.compat.varied_producer import QUEUES
from tests.process.conftest import SOURCES

PRODUCERS = 4
PRODUCE_TIMEOUT_S = 120.0


class VariedLoad:
    """The processes; each line of a journal is a message that was acknowledged."""

    def __init__(self, address: str, folder: Path, each: int) -> None:
        """Start them.

        Args:
            address: of a node, or of all members of a group, divided by commas.
            folder: for the journals.
            each: messages of one producer.
        """
        self._each = each
        self._journals = [folder / f"journal-{number}" for number in range(PRODUCERS)]
        script = str(Path(__file__).with_name("varied_producer.py"))
        paths = str(SOURCES)
        self.processes = [
            subprocess.Popen(
                [
                    sys.executable, script, address, f"p{number}", str(each),
                    f"{NEW_TOPIC},{OLD_TOPIC}", str(journal),
                ],
                env={**os.environ, "PYTHONPATH": paths},
            )
            for number, journal in enumerate(self._journals)
        ]  # fmt: skip

    @property
    def runs(self) -> bool:
        """Whether one of them still sends; on a busy machine others are sooner done than it."""
        return any(process.poll() is None for process in self.processes)

    def told(self, logs: Sequence[Path]) -> list[Json]:
        """What they were told of all their messages; waits until they end.

        Args:
            logs: of the nodes, shown when a producer fails.
        """
        statuses = [process.wait(PRODUCE_TIMEOUT_S) for process in self.processes]

        assert statuses == [0] * PRODUCERS, [log.read_text() for log in logs]
        sent = [
            json.loads(line)
            for journal in self._journals
            for line in journal.open(encoding="utf-8")
        ]
        queues = Counter((document["topic"], document["queue"]) for document in sent)

        assert len(sent) == PRODUCERS * self._each
        assert {(topic, queue) for topic in (OLD_TOPIC, NEW_TOPIC) for queue in range(QUEUES)} <= (
            queues.keys()
        )
        return sent


@contextmanager
def varied_load(address: str, folder: Path, *, each: int) -> Iterator[VariedLoad]:
    """Producers that send ``each`` messages; none runs afterwards."""
    load = VariedLoad(address, folder, each)
    try:
        yield load
    finally:
        for process in load.processes:
            process.kill()
            process.wait()

"""Producers that send to a group until they are told to stop, and note every acknowledgement."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.client import BatchResult, Producer
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import LedgerError

TOPIC = "bench"
PATIENCE_S = 60.0
MEASURED_S = 0.2
"""How often a wait for acknowledgements looks."""

_ACK = struct.Struct("<qqq")
ACK = np.dtype([("sent_ns", "<i8"), ("acked_ns", "<i8"), ("messages", "<i8")])
"""A frame: when it was sent and had its outcome (CLOCK_MONOTONIC); no messages when it failed."""

Acks = npt.NDArray[Any]

assert ACK.itemsize == _ACK.size


class Load(NamedTuple):
    """What one producer sends.

    Attributes:
        batch: messages a frame.
        in_flight: frames that may be unanswered.
        messages_per_second: 0 for as many as it can.
    """

    batch: int
    size: int
    in_flight: int
    messages_per_second: float = 0.0


class _Sender:
    """One producer process: sends what it was told last."""

    def __init__(self, producer: Producer, journal: int) -> None:
        self._producer = producer
        self._journal = journal
        self._waiting: deque[SendFuture[BatchResult]] = deque()
        self._next_at = 0.0

    def send(self, load: Load, bodies: Sequence[bytes], told: Connection) -> None:
        """Send one frame as soon as there is room, and it is due."""
        if load.messages_per_second:
            # Time that was lost, as by a change of leader, is made good for a second at most.
            self._next_at = max(self._next_at, time.monotonic() - 1.0)
            self._next_at += load.batch / load.messages_per_second
            wait_s = self._next_at - time.monotonic()
            if wait_s > 0 and told.poll(wait_s):
                return
        while len(self._waiting) >= load.in_flight:
            self._waiting.popleft().exception()
        sent_ns = time.monotonic_ns()

        def note(future: SendFuture[BatchResult]) -> None:
            messages = load.batch if future.exception(0) is None else 0
            self._note(sent_ns, messages)

        try:
            self._waiting.append(self._producer.send_batch(TOPIC, bodies, callback=note))
        except LedgerError:
            # Nothing was sent, and the time for it is over: that is a failure, too.
            self._note(sent_ns, 0)

    def finish(self) -> None:
        """Wait for what is under way."""
        while self._waiting:
            self._waiting.popleft().exception()

    def _note(self, sent_ns: int, messages: int) -> None:
        os.write(self._journal, _ACK.pack(sent_ns, time.monotonic_ns(), messages))


def send_until_told(address: str, journal: str, told: Connection) -> None:
    """The producer process: each ``Load`` that comes replaces the last, None ends it."""
    # A terminal's Ctrl-C is for the benchmark, which stops us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with Producer(address) as producer:
        producer.send(TOPIC, b"so that the topic is there").result(PATIENCE_S)
        told.send("ready")
        sender = _Sender(producer, file)
        load: Load | None = told.recv()
        while load is not None:
            bodies = [bytes([65 + number % 26]) * load.size for number in range(load.batch)]
            while not told.poll():
                sender.send(load, bodies, told)
            try:
                load = told.recv()
            except EOFError:
                # The benchmark is gone.
                return
        sender.finish()
    os.close(file)


class GroupLoad:
    """The producers."""

    def __init__(self, address: str, scratch: Path, producers: int) -> None:
        self._journals = [scratch / f"acks-{number}" for number in range(producers)]
        self._read = [0] * producers
        self._ends: list[Connection] = []
        self.processes: list[BaseProcess] = []
        context = multiprocessing.get_context("spawn")
        for journal in self._journals:
            ours, theirs = context.Pipe()
            process = context.Process(
                target=send_until_told, args=(address, str(journal), theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self._ends.append(ours)

    def wait_ready(self) -> None:
        """Until every producer has stored a message."""
        for ours in self._ends:
            if not ours.poll(PATIENCE_S):
                raise TimeoutError("a producer does not start")
            ours.recv()

    def tell(self, load: Load | None) -> None:
        """Send like that from now on; None to stop."""
        for ours in self._ends:
            ours.send(load)

    def take(self) -> list[Acks]:
        """What each producer was answered since this was asked last, in the order of the answers.

        Raises:
            RuntimeError: a producer has ended.
        """
        if not all(process.is_alive() for process in self.processes):
            raise RuntimeError("a producer has ended: its traceback is above")
        taken = []
        for number, journal in enumerate(self._journals):
            rows = _rows(journal, self._read[number])
            self._read[number] += len(rows) * ACK.itemsize
            taken.append(rows[np.argsort(rows["acked_ns"], kind="stable")])
        return taken

    def rate(self, seconds: float) -> float:
        """Messages a second that are acknowledged from now on."""
        self.take()
        begin = time.monotonic_ns()
        time.sleep(seconds)
        return rate_of(self.take(), begin, time.monotonic_ns())

    def take_until_all_acknowledge(self, since_ns: int) -> list[Acks]:
        """``take``, once each producer had an answer to something it sent after ``since_ns``."""
        taken = self.take()
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if all(np.any((one["sent_ns"] > since_ns) & (one["messages"] > 0)) for one in taken):
                return taken
            time.sleep(MEASURED_S)
            more = self.take()
            taken = [np.concatenate(pair) for pair in zip(taken, more, strict=True)]
        raise TimeoutError(f"a producer has no acknowledgement for {PATIENCE_S} s")


def _rows(journal: Path, begin: int) -> Acks:
    if not journal.exists():
        return np.empty(0, ACK)
    whole = (journal.stat().st_size - begin) // ACK.itemsize
    rows: Acks = np.fromfile(journal, ACK, count=whole, offset=begin)
    return rows


def rate_of(taken: Sequence[Acks], begin_ns: int, end_ns: int) -> float:
    """Messages a second that were acknowledged between two times."""
    rows = np.concatenate(list(taken))
    inside = (rows["acked_ns"] >= begin_ns) & (rows["acked_ns"] < end_ns)
    return float(rows["messages"][inside].sum()) / ((end_ns - begin_ns) / 1e9)


def longest_gap_s(taken: Sequence[Acks], begin_ns: int, end_ns: int) -> float:
    """Longest time without an acknowledgement for anyone, so far as it lies between two times."""
    rows = np.concatenate(list(taken))
    acked = np.sort(rows["acked_ns"][rows["messages"] > 0])
    inside = acked[(acked > begin_ns) & (acked < end_ns)]
    return float(np.diff(inside, prepend=begin_ns, append=end_ns).max()) / 1e9


@contextmanager
def group_load(address: str, scratch: Path, *, load: Load, producers: int) -> Iterator[GroupLoad]:
    """Producers that send ``load`` each, until the end."""
    made = GroupLoad(address, scratch, producers)
    try:
        made.wait_ready()
        made.tell(load)
        yield made
        made.tell(None)
        for process in made.processes:
            process.join(PATIENCE_S)
    finally:
        for process in made.processes:
            process.kill()
            process.join()

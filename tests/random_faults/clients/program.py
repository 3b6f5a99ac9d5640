"""A client of a run, from its start to SIGTERM; a program.

    python -m tests.random_faults.clients.program NAME FOLDER SEED ADDRESSES PORTS

NAME is a kind of client and a number; FOLDER gets what it records.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from tests.process import stop_signal
from tests.random_faults.clients.later import LaterClient
from tests.random_faults.clients.place import Client, Place
from tests.random_faults.clients.port import PortClient
from tests.random_faults.clients.readers import GroupMember, TailReader
from tests.random_faults.clients.register import OffsetReader, OffsetWriter
from tests.random_faults.clients.senders import (
    BatchSender,
    BulkSender,
    KeySender,
    OnceSender,
    WorkSender,
)
from tests.random_faults.clients.topics import TopicClient, WindowClient
from tests.random_faults.clients.transactions import TransactionClient
from tests.random_faults.records import Recorder

KINDS: dict[str, type[Client]] = {
    "keys": KeySender,
    "batches": BatchSender,
    "work": WorkSender,
    "bulk": BulkSender,
    "once": OnceSender,
    "later": LaterClient,
    "transactions": TransactionClient,
    "register": OffsetWriter,
    "lookup": OffsetReader,
    "topics": TopicClient,
    "windows": WindowClient,
    "port": PortClient,
    "member": GroupMember,
    "tail": TailReader,
}


def main() -> None:
    name, folder, seed, addresses, ports = sys.argv[1:]
    parent = os.getppid()
    stop_signal.hold_back()
    kind = KINDS[name.rstrip("0123456789")]
    place = Place(
        name,
        addresses,
        ports.split(","),
        Path(folder),
        random.Random(f"{seed} {name}"),
        Recorder(Path(folder, f"{name}.jsonl")),
    )
    with kind(place) as client:
        # A run that was killed cannot tell its clients to stop.
        while not stop_signal.came(client.pause_s) and os.getppid() == parent:
            client.turn()
        client.finish()


if __name__ == "__main__":
    main()

"""Does an understudy follow what RocketMQ 5.5.1's own slave follows, and at what processor time?

One master of RocketMQ 5.5.1 under a steady load, with its own slave and an understudy beside one
another for the same seconds: the bytes by which the log of each has grown, and the processor time
of each process meanwhile. Both have begun before, so that no start is in it. The slave reports what
is in its page cache; the understudy syncs first, and checks each record.

Estimate beforehand: a MiB costs the slave's JVM a copy into its map, a read of it for its queues,
and 32 frames and reports, some 5 ms; the understudy a CRC, a scan and a write, some 3 ms.

    python -m bench.understudy_follow [--smoke] [--directory DIR] [--rate MIB]
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from bench.machine import write
from bench.processes import end_in_order
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.understudy.master_access import MasterAccess
from ledgermq.understudy.master_questions import MasterQuestions
from ledgermq.understudy.understudy_status import read_status
from tests.compat.broker_set import NAME_SERVER_PROGRAM
from tests.compat.java_broker import JavaBroker
from tests.compat.rocketmq5 import begun, fetch, wait_booted
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.understudy_process import UnderstudyProcess

TOPIC = "followed"
BODY = bytes(range(256)) * 128
MIB = 1024 * 1024
FILE_SIZE = 1024 * MIB
QUEUES = 4
WARM_S = 10.0
LEVEL_S = 60.0


class SteadyLoad(threading.Thread):
    """Sends so many bytes a second, one message after the other."""

    def __init__(self, address: str, bytes_per_s: float) -> None:
        super().__init__(daemon=True)
        self._client = RemotingClient(address)
        self._each_s = len(BODY) / bytes_per_s
        self._ends = threading.Event()

    def run(self) -> None:
        due, number = time.monotonic(), 0
        while not self._ends.is_set():
            values = ("load", TOPIC, "TBW102", QUEUES, number % QUEUES, 0, 0, 0, "", 0, "false")
            fields = dict(zip("abcdefghijk", values, strict=True))
            reply = self._client.ask(RequestCode.SEND_MESSAGE_V2, fields, BODY)
            # A broker that is short of a processor for 0.2 s refuses.
            assert reply.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY), reply.remark
            due, number = max(due, time.monotonic() - 1.0) + self._each_s, number + 1
            self._ends.wait(max(0.0, due - time.monotonic()))
        self._client.close()

    def end(self) -> None:
        """Send no more."""
        self._ends.set()
        self.join()


def cpu_s(process: psutil.Process) -> float:
    """Processor time that it has used."""
    times = process.cpu_times()
    return times.user + times.system


def followed(folder: Path, *, rate_mib: float, seconds: float) -> dict[str, float]:
    """Both beside one another under the load; see the module's text."""
    with ExitStack() as ends:
        names = folder / "names"
        names.mkdir()
        port = free_port()
        server = begun(NAME_SERVER_PROGRAM, names, {"listenPort": port})
        ends.callback(server.wait)
        ends.callback(server.kill)
        wait_booted(names)
        rows = {"namesrvAddr": f"127.0.0.1:{port}", "mappedFileSizeCommitLog": FILE_SIZE}
        brokers = []
        for name, role in (("master", "ASYNC_MASTER"), ("slave", "SLAVE")):
            home = folder / name
            home.mkdir()
            brokers.append(JavaBroker(5, home, **rows))
            ends.callback(brokers[-1].kill)
            brokers[-1].start(role)
        master, slave = brokers
        ours = UnderstudyProcess(folder / "understudy", folder / "said")
        ends.callback(ours.kill)
        load = SteadyLoad(master.address, rate_mib * MIB)
        ends.callback(load.end)
        load.start()
        ours.add(master.ha, master.address)
        ours.start()

        def durable() -> int:
            status = read_status(ours.folder)
            return 0 if status is None else status.durable

        def size_of(broker: JavaBroker) -> int:
            questions = MasterQuestions(broker.address, MasterAccess())
            try:
                return questions.reach().end
            finally:
                questions.close()

        wait_until(lambda: durable() > 0, "the understudy follows", LEVEL_S)
        wait_until(lambda: size_of(slave) > MIB, "the slave follows", LEVEL_S)
        time.sleep(WARM_S)
        processes = psutil.Process(slave.pid), psutil.Process(ours.pid)
        before = size_of(slave), durable()
        used = [cpu_s(one) for one in processes]
        time.sleep(seconds)
        used = [cpu_s(one) - was for one, was in zip(processes, used, strict=True)]
        grown = size_of(slave) - before[0], durable() - before[1]
        load.end()
        end = size_of(master)
        wait_until(lambda: size_of(slave) == durable() == end, "both are level", LEVEL_S)
        return {
            "slave_mib": grown[0] / MIB,
            "understudy_mib": grown[1] / MIB,
            "slave_cpu_ms_a_mib": used[0] * 1_000 / (grown[0] / MIB),
            "understudy_cpu_ms_a_mib": used[1] * 1_000 / (grown[1] / MIB),
            "followed_ratio": grown[1] / grown[0],
            "cpu_ratio": used[1] / used[0] * grown[0] / grown[1],
        }


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument("--rate", type=float, default=25.0, help="MiB a second that are sent")
    given = parser.parse_args()
    fetch()
    seconds = 5.0 if given.smoke else 20.0
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        figures = followed(Path(scratch), rate_mib=given.rate, seconds=seconds)
    rounded: dict[str, object] = {name: round(value, 3) for name, value in figures.items()}
    rounded |= {"body_bytes": len(BODY), "rate_mib": given.rate, "seconds": seconds}
    if given.smoke:
        print(rounded)
    else:
        write("understudy_follow", rounded)


if __name__ == "__main__":
    main()

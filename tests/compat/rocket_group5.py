"""Hosts of RocketMQ 5.5.1, which are folders here: three with DLedger, or a plain broker."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ledgermq.formats.config_json import decode_document
from ledgermq.remoting.codes import RequestCode
from tests.compat.broker_set import NAME_SERVER_PROGRAM
from tests.compat.rocketmq import BROKER, STOP_TIMEOUT_S
from tests.compat.rocketmq5 import BROKER_PROGRAM, begun, fetch, wait_booted
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient


class RocketGroup5:
    """Brokers with a name server, on the stores in ``folder``.

    Attributes:
        names: of the hosts whose directories are moved.
        places: where the name server and the brokers listen.
        ha: where a plain broker waits for slaves.
    """

    version = "5"

    def __init__(self, folder: Path, *, names: Sequence[str], **rows: object) -> None:
        """Nothing runs yet.

        Args:
            names: several are members of one DLedger group.
            rows: of each broker.conf, besides those that each one has.

        Raises:
            NotToBeHadError: RocketMQ 5 is not there, and cannot be fetched.
        """
        fetch()
        self.folder, self.names = folder, names
        ports = {"namesrv": free_port(), **{name: free_port(4) + 2 for name in names}}
        self.places = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        self.ha = f"127.0.0.1:{ports[names[0]] + 1}"
        members = ";".join(f"{name}-127.0.0.1:{free_port()}" for name in names)
        self._rows: dict[str, dict[str, object]] = {"namesrv": {"listenPort": ports["namesrv"]}}
        for name in names:
            self.home(name).mkdir(exist_ok=True)
            store = self.home(name) / "store"
            self._rows[name] = {
                "brokerName": BROKER,
                "brokerClusterName": BROKER,
                "brokerIP1": "127.0.0.1",
                "listenPort": ports[name],
                "haListenPort": ports[name] + 1,
                "namesrvAddr": self.places["namesrv"],
                "storePathRootDir": store,
                "storePathCommitLog": store / "commitlog",
                "diskMaxUsedSpaceRatio": 95,
                **rows,
            }
            if len(names) > 1:
                self._rows[name] |= {
                    "enableDLegerCommitLog": "true",
                    "dLegerGroup": BROKER,
                    "dLegerPeers": members,
                    "dLegerSelfId": name,
                    # Until it leads, and has its queues' ends. Else RocketMQ takes messages as soon
                    # as it is elected, and may give the first ones a queue offset twice ("Build
                    # consume queue repeatedly" in its log): one of the two is never read.
                    "brokerRole": "SLAVE",
                    "brokerId": 1,
                }
        self.home("namesrv").mkdir()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def home(self, name: str) -> Path:
        """Where one of them has its settings, its logs and its store."""
        return self.folder / name

    def conf(self, name: str) -> Path:
        """The broker.conf of a host."""
        return self.home(name) / "broker.conf"

    def write(self, key: str, value: object) -> None:
        """Set what each broker.conf has of ``key`` from the next start on; None: leave it."""
        if value is not None:
            for name in self.names:
                self._rows[name][key] = value

    def start(self, *names: str) -> None:
        """Start ``names``, or all of it, where it was before; returns when each one serves."""
        for name in names or self._rows:
            program = NAME_SERVER_PROGRAM if name == "namesrv" else BROKER_PROGRAM
            self._processes[name] = begun(program, self.home(name), self._rows[name])
        for name in names or self._rows:
            wait_booted(self.home(name))

    def leader(self) -> str | None:
        """Who leads, as the name server says: the broker with the id 0."""
        client = RemotingClient(self.places["namesrv"])
        reply = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        client.close()
        table: Any = decode_document(bytes(reply.body)).get("brokerAddrTable", {})
        leads = table.get(BROKER, {"brokerAddrs": {}})["brokerAddrs"].get("0")
        return next((name for name in self.names if self.places[name] == leads), None)

    def stop(self) -> None:
        """Stop all of it in order: who leads behind the other brokers, and the name server last."""
        leader = self.leader()
        for name in sorted(self._processes, key=lambda name: (name == "namesrv", name == leader)):
            self._processes[name].send_signal(signal.SIGTERM)

            assert self._processes.pop(name).wait(STOP_TIMEOUT_S) in (0, 128 + signal.SIGTERM)

    def end(self) -> None:
        """End what runs, by the kernel."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes = {}

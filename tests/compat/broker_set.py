"""A broker set of RocketMQ 5.5.1 with a controller, which says who of its brokers is the master.

Slaves learn from a name server where the master waits for them.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgermq.remoting.codes import ResponseCode
from tests.compat.rocketmq import START_TIMEOUT_S, STOP_TIMEOUT_S
from tests.compat.rocketmq5 import BROKER_PROGRAM, begun, wait_booted
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient

NAME_SERVER_PROGRAM = "org.apache.rocketmq.namesrv.NamesrvStartup"
CONTROLLER_PROGRAM = "org.apache.rocketmq.controller.ControllerStartup"
GET_REPLICA_INFO = 1_004
NAME = "oracle"


class SetBroker:
    """One of the set; its process is begun and ended by the test."""

    def __init__(self, home: Path, controller: str, rows: dict[str, object]) -> None:
        self.home, self.root = home, home / "store"
        self.port, self.ha_port = free_port(4) + 2, free_port()
        home.mkdir()
        self._rows = {
            "brokerName": NAME,
            "brokerClusterName": NAME,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": self.ha_port,
            "enableControllerMode": "true",
            "controllerAddr": controller,
            "storePathRootDir": self.root,
            "storePathCommitLog": self.root / "commitlog",
            **rows,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ha(self) -> str:
        return f"127.0.0.1:{self.ha_port}"

    def start(self) -> None:
        self._process = begun(BROKER_PROGRAM, self.home, self._rows)
        wait_booted(self.home)

    def pause(self) -> None:
        """It takes nothing any more, and its connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it by the kernel, if it runs."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order, if it runs."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None


class BrokerSet:
    """Two brokers that have not begun, and the controller, which has."""

    def __init__(self, folder: Path, **rows: object) -> None:
        home, self.controller = folder / "controller", f"127.0.0.1:{free_port()}"
        home.mkdir()
        group = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": home / "store",
            "mappedFileSize": 1 << 24,
            "scanNotActiveBrokerInterval": 1_000,
        }
        rows = {"diskMaxUsedSpaceRatio": 95, "brokerHeartbeatInterval": 500, **rows}
        rows = {"controllerHeartBeatTimeoutMills": 3_000, **rows}
        names, names_port = folder / "names", free_port()
        names.mkdir()
        rows["namesrvAddr"] = f"127.0.0.1:{names_port}"
        self.brokers = [SetBroker(folder / name, self.controller, rows) for name in ("a", "b")]
        self._process = begun(CONTROLLER_PROGRAM, home, group)
        self._names = begun(NAME_SERVER_PROGRAM, names, {"listenPort": names_port})

    def master(self) -> SetBroker | None:
        """Who leads, as the controller says."""
        try:
            client = RemotingClient(self.controller)
        except ConnectionError:
            return None
        reply = client.ask(GET_REPLICA_INFO, {"brokerName": NAME})
        client.close()
        address = reply.fields.get("masterAddress") if reply.code == ResponseCode.SUCCESS else ""
        return next((one for one in self.brokers if one.address == address), None)

    def wait_master(self, broker: SetBroker) -> None:
        wait_until(lambda: self.master() is broker, "it is the master", START_TIMEOUT_S)

    def end(self) -> None:
        for broker in self.brokers:
            broker.kill()
        for process in (self._process, self._names):
            process.kill()
            process.wait()


@contextmanager
def broker_set(folder: Path, **rows: object) -> Iterator[BrokerSet]:
    """A set with the settings ``rows``; nothing of it is left at the end."""
    made = BrokerSet(folder, **rows)
    try:
        yield made
    finally:
        made.end()

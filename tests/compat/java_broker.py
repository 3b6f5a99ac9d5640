"""One real broker, that is begun, killed, stopped and begun again in another role."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.compat.rocketmq import BROKER, START_TIMEOUT_S, STOP_TIMEOUT_S, end_all, oracle_program
from tests.compat.rocketmq5 import BROKER_PROGRAM, begun, wait_booted
from tests.compat.test_understudy import SIZES
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port


class JavaBroker:
    """A plain broker of RocketMQ 4 or 5 on a store of its own, in any role.

    Attributes:
        address, ha: where clients and slaves find it.
        store: its directory.
    """

    def __init__(self, product: int, folder: Path, **rows: object) -> None:
        """Nothing runs yet.

        Args:
            rows: of its broker.conf, besides those that each one has.
        """
        self.product = product
        self.store = folder / "java"
        # RocketMQ 4 waits for slaves at the port behind its own, and takes one before it.
        port = free_port(4) + 2
        self.address, self.ha = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
        self._home = folder / "home"
        self._home.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self._rows: dict[str, object] = {
            **SIZES,
            "brokerName": BROKER,
            "brokerClusterName": BROKER,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "haListenPort": port + 1,
            "slaveReadEnable": "true",
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            **rows,
        }

    @property
    def pid(self) -> int:
        """That of its JVM, of RocketMQ 5."""
        assert self._process is not None
        assert self.product == 5
        return self._process.pid

    def start(self, role: str) -> None:
        """Start it as ``SLAVE`` or ``ASYNC_MASTER``; returns when it serves."""
        rows = {**self._rows, "brokerRole": role, "brokerId": int(role == "SLAVE")}
        if self.product == 5:
            self._process = begun(BROKER_PROGRAM, self._home, rows)
            wait_booted(self._home)
            return
        config, said = self._home / "broker.conf", self._home / "said"
        config.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
        words = [sys.executable, str(oracle_program()), "java", BROKER_PROGRAM, "-c", str(config)]
        with said.open("wb") as output:
            self._process = subprocess.Popen(
                words, stdout=output, stderr=output, start_new_session=True
            )
        wait_until(lambda: "The broker[" in said.read_text(), "RocketMQ 4", START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop it in order."""
        assert self._process is not None
        if self.product == 5:
            self._process.send_signal(signal.SIGTERM)
        else:
            # It is a child of the program that knows its jars.
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def kill(self) -> None:
        """End it by the kernel, if it runs."""
        if self._process is None:
            return
        if self.product == 5:
            self._process.kill()
            self._process.wait()
        else:
            end_all(self._process)
        self._process = None

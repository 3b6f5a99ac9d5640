"""The real broker of RocketMQ 5.5.1 on a plain store, without a name server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.compat.other_clients import CACHE, CLIENTS, make_with, need
from tests.compat.rocketmq import START_TIMEOUT_S, STOP_TIMEOUT_S
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port

LIBRARIES = CACHE / "java5broker" / "lib"
BROKER_PROGRAM = "org.apache.rocketmq.broker.BrokerStartup"
_SAID = "said"
_OPEN = ("java.nio", "sun.nio.ch", "jdk.internal.ref")


def fetch() -> None:
    """Have the broker's libraries at hand.

    Raises:
        NotToBeHadError: they are not there, and cannot be fetched.
    """
    need("java", "mvn")
    if not any(LIBRARIES.glob("rocketmq-proxy-*")):
        words = ["-q", "-B", "-f", str(CLIENTS / "java5broker" / "pom.xml")]
        words += ["dependency:copy-dependencies", f"-DoutputDirectory={LIBRARIES}"]
        make_with(["mvn", *words], CLIENTS)


def begun(
    program: str, home: Path, rows: Mapping[str, object], *words: str
) -> subprocess.Popen[bytes]:
    """A program of RocketMQ's with the settings ``rows``, which are written into ``home``.

    Args:
        words: of its command, in the place of those that name the settings.
    """
    conf = home / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPEN]
    with (home / _SAID).open("wb") as output:
        return subprocess.Popen(
            ["java", "-Xmx512m", f"-Duser.home={home}", *opened, "-cp", f"{LIBRARIES}/*",
             program, *(words or ("-c", str(conf)))],
            env={**os.environ, "ROCKETMQ_HOME": str(home)}, stdout=output, stderr=output,
        )  # fmt: skip


def wait_booted(home: Path) -> None:
    """Wait until the program that was begun in ``home`` serves."""
    said = home / _SAID
    wait_until(lambda: "boot success" in said.read_text(), "RocketMQ 5", START_TIMEOUT_S)


@contextmanager
def rocketmq5_serving(
    root: Path, folder: Path, *, is_killed: bool = False, **settings: object
) -> Iterator[str]:
    """A broker on the store ``root``, at the address that is given; it is stopped in order.

    Args:
        folder: where its settings and its logs go.
        is_killed: it is ended by the kernel instead.
    """
    port, home = free_port(4) + 2, folder / "rocketmq5"
    home.mkdir(exist_ok=True)
    rows: dict[str, object] = {
        "brokerName": "oracle",
        "brokerClusterName": "oracle",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "storePathRootDir": root,
        "storePathCommitLog": root / "commitlog",
        "diskMaxUsedSpaceRatio": 95,
        **settings,
    }
    process = begun(BROKER_PROGRAM, home, rows)
    try:
        wait_booted(home)
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)

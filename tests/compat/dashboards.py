"""RocketMQ's own web console (apache/rocketmq-dashboard): how it is had, started and asked.

It is in no registry: it is built of its source, which ``LEDGERMQ_DASHBOARD_SOURCE`` names (anything
that git clones) where the public repository cannot be reached, and its jar is kept in ``~/.cache``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.compat.other_clients import CACHE, make_with, need
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port

SOURCE = "LEDGERMQ_DASHBOARD_SOURCE"
PUBLIC_SOURCE = "https://github.com/apache/rocketmq-dashboard.git"
OLD, NEW = "1.0.0", "2.1.0"
VERSIONS = (OLD, NEW)

BUILD_S = 1_500.0
"""Of the first build on a machine, which fetches some hundred libraries."""

START_S = 240.0
CALL_S = 90.0
"""Longer than any of its own time-outs: what it answers then is what its page would show."""

_SKIPPED = (
    "maven.test.skip", "checkstyle.skip", "rat.skip", "jacoco.skip", "maven.antrun.skip",
    "skip.npm", "skip.installnodenpm",
)  # fmt: skip
"""Plugins that check it, and those that make the pages of 2.1.0, which need node."""

_OPENED = ("java.lang", "java.nio", "sun.nio.ch")
"""Packages of Java 17 into which its libraries look."""

_STARTS_MAX = 4
_LOMBOK = "1.18.30"
"""That of 1.0.0 does not know Java 17."""


class Answer(NamedTuple):
    """What it said: HTTP's 200 comes with all of its answers, so it has a status of its own.

    Attributes:
        refusal: what the page shows in red; empty when all is well.
        data: of an answer in JSON; the bytes themselves of any other one.
    """

    refusal: str
    data: Any


class Dashboard:
    """One that runs."""

    def __init__(
        self, version: str, port: int, process: subprocess.Popen[bytes], folder: Path
    ) -> None:
        self.version = version
        self._folder = folder
        self.address = f"http://127.0.0.1:{port}"
        self._process = process

    def get(self, path: str, parameters: Mapping[str, object] | None = None) -> Answer:
        """Ask for what a page shows."""
        return self._ask("GET", path, parameters or {}, None)

    def post(
        self, path: str, parameters: Mapping[str, object] | None = None, body: object = None
    ) -> Answer:
        """Ask for a change, or for what is described by a ``body``."""
        return self._ask("POST", path, parameters or {}, body)

    def answers(self) -> bool:
        """Whether it has started; one that has ended is a failure."""
        assert self._process.poll() is None, "the dashboard has ended"
        return self.get("login/check.query").refusal == ""

    def knows_brokers(self) -> bool:
        """Whether it asks for the list of brokers again and again.

        2.1.0 does so no more when the first time failed, as on a busy machine: it goes on with a
        dead leader then until it is started anew.
        """
        wait_until(lambda: not self.get("cluster/list.query").refusal, "brokers", START_S)
        logs = [one.read_text(errors="replace") for one in self._folder.glob("logs/*/*.log")]
        return not any("Refresh cluster info failed" in text for text in logs)

    def _ask(
        self, method: str, path: str, parameters: Mapping[str, object], body: object
    ) -> Answer:
        query = urllib.parse.urlencode(parameters)
        request = urllib.request.Request(
            f"{self.address}/{path}?{query}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=CALL_S) as reply:
                content = reply.read()
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            return Answer(str(error), None)
        try:
            told = json.loads(content)
        except ValueError:
            return Answer("", content)
        if not isinstance(told, dict) or "status" not in told:
            return Answer("", told)
        return Answer("" if told["status"] == 0 else str(told.get("errMsg")), told.get("data"))


def dashboard_jar(version: str) -> Path:
    """The executable jar of that version.

    Raises:
        NotToBeHadError: it is not there, and cannot be built here.
    """
    jar = CACHE / f"dashboard-{version}.jar"
    if jar.is_file():
        return jar
    need("java", "mvn", "git")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="dashboard-") as name:
        folder = Path(name)
        source = os.environ.get(SOURCE) or PUBLIC_SOURCE
        tag = f"rocketmq-dashboard-{version}"
        asked = ["git", "-c", "safe.directory=*", "-c", "advice.detachedHead=false", "clone"]
        make_with([*asked, "--quiet", "--depth", "1", "--branch", tag, source, "source"], folder)
        words = ["mvn", "-q", "-B", "package", *(f"-D{one}=true" for one in _SKIPPED)]
        if version == OLD:
            words.append(f"-Dlombok.version={_LOMBOK}")
        make_with(words, folder / "source", timeout_s=BUILD_S)
        (built,) = (folder / "source" / "target").glob("rocketmq-dashboard-*.jar")
        shutil.move(built, jar)
    return jar


@contextmanager
def dashboard(jar: Path, version: str, name_servers: str, folder: Path) -> Iterator[Dashboard]:
    """Run it with the settings that it is shipped with, but for addresses and folders.

    Args:
        folder: gets its data and its logs.
    """
    folder.mkdir()
    for number in range(_STARTS_MAX):
        with _started(jar, version, name_servers, folder / str(number)) as board:
            if board.knows_brokers() or number == _STARTS_MAX - 1:
                yield board
                return


@contextmanager
def _started(jar: Path, version: str, name_servers: str, folder: Path) -> Iterator[Dashboard]:
    port = free_port()
    servers = "namesrvAddr" if version == OLD else "namesrvAddrs[0]"
    words = [
        f"--server.port={port}", "--server.address=127.0.0.1",
        f"--rocketmq.config.{servers}={name_servers}",
        f"--rocketmq.config.dataPath={folder / 'data'}",
    ]  # fmt: skip
    places = [f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}"]
    opened = [f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in _OPENED]
    folder.mkdir()
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            ["java", "-Xmx256m", "-XX:+UseSerialGC", *opened, *places, "-jar", str(jar), *words],
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
    try:
        board = Dashboard(version, port, process, folder)
        wait_until(board.answers, f"the start of dashboard {version}", START_S)
        yield board
    finally:
        process.kill()
        process.wait()

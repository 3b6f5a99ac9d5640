"""A group of our own nodes with ports for RocketMQ's clients, and Java programs that use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.compat.other_clients import Command
from tests.compat.rocketmq import oracle_program
from tests.process.conftest import Node
from tests.process.group_nodes import (
    SIZES,
    Group,
    Member,
    Network,
    add_settings,
    free_port,
    make_group,
)

JAVA_TIMEOUT_S = 300.0
BROKER_NAME = "oracle"
"""That of the real broker in ``rocketmq_serving``, so that both give the same answers."""


def make_remoting_group(
    make_node: Callable[[], Node],
    *,
    ack: str = "majority-memory",
    members: int = 3,
    sizes: Mapping[str, int] = SIZES,
    tables: Mapping[str, Mapping[str, object]] | None = None,
    network: Network | None = None,
) -> tuple[Group, str]:
    """A group that was started, each member with a port; name servers as Java's clients take them.

    Args:
        tables: more settings of each member, by their table.
        network: see ``make_group``.
    """
    ports = {f"n{number}": free_port() for number in range(members)}
    addresses = [f"{name}-127.0.0.1:{port}" for name, port in ports.items()]

    def open_port(member: Member) -> None:
        port = ports[member.name]
        own: dict[str, dict[str, object]] = {
            "remoting": {"addresses": addresses},
            "node": {
                "listen_port": port,
                "broker_name": BROKER_NAME,
                "broker_cluster_name": BROKER_NAME,
            },
            "listen": {"remoting": f"127.0.0.1:{port}"},
        }
        add_settings(member, _merged(own, tables or {}))

    group = make_group(
        make_node, members=members, ack=ack, sizes=sizes, network=network, prepare=open_port
    )
    return group, ";".join(f"127.0.0.1:{port}" for port in ports.values())


def _merged(
    one: Mapping[str, Mapping[str, object]], other: Mapping[str, Mapping[str, object]]
) -> dict[str, dict[str, object]]:
    return {table: {**one.get(table, {}), **other.get(table, {})} for table in {**one, **other}}


class JavaProgram:
    """A Java program of this folder, or of the oracle's, that runs."""

    def __init__(self, process: subprocess.Popen[str], said: Path) -> None:
        self.process = process
        self._said = said

    @property
    def lines(self) -> list[str]:
        """What it has said so far."""
        return self._said.read_text().splitlines()

    def said(self, begin: str) -> list[str]:
        """The rest of all lines that begin so."""
        return [line.removeprefix(begin) for line in self.lines if line.startswith(begin)]

    def has_said(self, begin: str) -> bool:
        """Whether a line begins so; a program that has ended without one is a failure."""
        if self.said(begin):
            return True
        assert self.process.poll() is None, self.lines
        return False

    def tell(self, line: str) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, timeout_s: float = JAVA_TIMEOUT_S) -> list[str]:
        """What it has said, once it has ended well."""
        status = self.process.wait(timeout_s)

        assert status == 0, self.lines[-50:]
        return self.lines


def java_command(
    program: str | Path, *, heap: str = "512m", properties: Mapping[str, str] | None = None
) -> Command:
    """A program of this folder, or of the oracle's, with RocketMQ 4.9.4's libraries."""
    defined = "".join(f" -D{name}={value}" for name, value in (properties or {}).items())
    return (
        [sys.executable, str(oracle_program()), "java", str(program)],
        {"_JAVA_OPTIONS": f"-Xmx{heap} -XX:+UseSerialGC{defined}"},
    )


@contextmanager
def java_program(
    name_servers: str,
    program: str | Path,
    *words: str,
    folder: Path,
    heap: str = "512m",
    properties: Mapping[str, str] | None = None,
) -> Iterator[JavaProgram]:
    """Run a program with ``NAMESRV`` set; nothing of it is left at the end.

    Args:
        program: a class of the oracle's, or a source file.
        folder: where what it says is kept, and what it writes where it is.
        properties: of the JVM.
    """
    command = java_command(program, heap=heap, properties=properties)
    with client_program(name_servers, command, *words, folder=folder) as running:
        yield running


@contextmanager
def client_program(
    name_servers: str, command: Command, *words: str, folder: Path
) -> Iterator[JavaProgram]:
    """Run a client with ``NAMESRV`` set; nothing of it is left at the end.

    Args:
        folder: where what it says is kept, and what it writes where it is.
    """
    program, needed = command
    said = folder / f"{Path(program[-1]).stem}-{os.urandom(4).hex()}.said"
    with said.open("w") as target:
        process = subprocess.Popen(
            [*program, *words],
            env={**os.environ, "NAMESRV": name_servers, **needed},
            # Some sub-commands of mqadmin write files where they are.
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=target,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        yield JavaProgram(process, said)
    finally:
        # No such process: all of its session has ended by itself, as it should.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        # What was not read any more cannot be flushed.
        with suppress(BrokenPipeError):
            process.stdin.close()


def run_java(
    name_servers: str, program: str | Path, *words: str, folder: Path, timeout_s: float = 300.0
) -> list[str]:
    """All lines that a program says, once it has ended well."""
    with java_program(name_servers, program, *words, folder=folder) as running:
        return running.wait(timeout_s)

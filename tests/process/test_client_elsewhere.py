"""The client where Python has none of Linux's own names: it loads and talks to a node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.client_node import start_client_node
from tests.process.conftest import Node
from tests.process.group_nodes import free_port
from tests.suite.patience import PATIENCE_S
from tests.test_distributions import ROOT, libraries, packages_of

pytestmark = pytest.mark.slow

WITHOUT_LINUX = """
import _socket, os, select, sys

GONE = {
    os: "EFD_CLOEXEC EFD_NONBLOCK O_CLOEXEC O_DIRECTORY O_NOFOLLOW eventfd eventfd_read"
        " eventfd_write fork geteuid getuid mkfifo posix_fallocate register_at_fork",
    select: "EPOLLIN EPOLLOUT POLLIN POLLOUT epoll poll",
    _socket: "AF_UNIX EAI_ADDRFAMILY EAI_NODATA SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED socketpair",
}
for module, names in GONE.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
# None: to import it is an ImportError.
sys.modules.update(dict.fromkeys(("fcntl", "grp", "pwd", "readline", "resource", "termios")))
"""

TALK = """
import asyncio, importlib, json

modules, produce, consume, offsets = json.loads(sys.argv[1])
for name in modules:
    importlib.import_module(name)
from ledgermq.client import GroupConsumer, GroupOptions, TransactionalProducer
from ledgermq.client.aio import AsyncConsumer

# By a name, which is looked up in a thread.
address = consume.replace("127.0.0.1", "localhost")
broadcast = GroupOptions(model="broadcasting", offsets_directory=offsets)


def read_group(group, options=None):
    with GroupConsumer(address, group=group, name=group, group_options=options) as consumer:
        consumer.subscribe("orders")
        found = []
        while not found:
            found = [bytes(one.body) for one in consumer.poll(timeout=1)]
        consumer.commit()
        return found


async def read():
    async with AsyncConsumer(address, topic="orders", start="first") as consumer:
        return [bytes(one.body) for one in await consumer.poll(timeout=30)]


with TransactionalProducer(consume, group="payers") as producer:
    with producer.transaction() as transaction:
        transaction.send("orders", b"one")
print(read_group("readers"), read_group("hearers", broadcast), asyncio.run(read()))
"""


def test_a_client_without_linuxs_own_names_loads_and_talks_to_a_node(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    node = make_node()
    places = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    start_client_node(node, listen=dict(zip(("produce", "consume"), places, strict=True)))
    packages = packages_of("client")
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in sorted(packages)
        for path in (ROOT / package.replace(".", "/")).glob("*.py")
        if not path.stem.startswith("__")
    ]
    given = [modules, *places, str(tmp_path)]
    program = f"{WITHOUT_LINUX}\nsys.path += {[str(ROOT), str(libraries())]!r}\n{TALK}"

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, json.dumps(given)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )

    assert done.stderr == ""
    assert done.stdout == "[b'one'] [b'one'] [b'one']\n"

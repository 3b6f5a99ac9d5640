"""The client of the wheel for any machine: plain kernels, and no library but pyzmq."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.process.conftest import Node
from tests.process.other_versions import THIS
from tests.process.rolling import start

pytestmark = pytest.mark.slow

# Programs as the command are imported by their users; the finder refuses what only nodes have.
CONVERSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("Cython", "cython", "isal", "numpy", "psutil"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
from ledgermq.client import Consumer, Producer
from ledgermq.formats.kernels import kernel

address = sys.argv[1]
with Producer(address) as producer:
    producer.send("orders", b"alone").result()
    for future in [producer.send("orders", b"%d" % number) for number in range(100)]:
        future.result()
bodies = []
with Consumer(address, topic="orders") as consumer:
    while len(bodies) < 101:
        bodies += [bytes(message.body) for message in consumer.poll(10)]
print(kernel.compiled, "cython" in sys.modules, sorted(bodies) == sorted(
    [b"alone", *(b"%d" % number for number in range(100))]
))
"""


def test_a_client_without_compiled_kernels_needs_pyzmq_alone(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure()
    start(THIS, node)
    node.wait_ready()

    done = subprocess.run(
        [sys.executable, "-c", CONVERSE, f"ipc://{node.runtime}"],
        env={**os.environ, "LEDGERMQ_PURE": "1"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert done.stdout == "False False True\n", done.stderr

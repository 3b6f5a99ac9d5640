"""A node whose kernels did not compile works, and says so to whoever looks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from ledgermq.client import Producer
from ledgermq.formats.kernels import kernel
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.http_client import get
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def doctor(node: Node) -> dict[str, str]:
    """What the doctor says of the kernels."""
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq.cli.main", "doctor", "--json", "--only", "host",
         "--config", str(node.config)],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S, env={**os.environ},
    )  # fmt: skip
    (found,) = (
        one for one in json.loads(done.stdout)["findings"] if one["check"] == "host.kernels"
    )
    assert isinstance(found, dict)
    return found


def scrape(node: Node) -> list[str]:
    """Lines of the metrics; none while nobody listens yet."""
    with suppress(OSError):
        return get(node.runtime / "http.sock", "/metrics").text.splitlines()
    return []


@pytest.mark.parametrize("is_pure", [True, False])
def test_kernels_that_did_not_compile_are_told_by_doctor_metrics_status_and_log(
    is_pure: bool, make_node: Callable[[], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a forked node would have imported already.
    monkeypatch.setenv("LEDGERMQ_EXEC_NODES", "1")
    if is_pure:
        monkeypatch.setenv("LEDGERMQ_PURE", "1")
    is_plain = is_pure or not kernel.compiled
    node = make_node()
    start_client_node(node, listen={"http": "unix"})
    with Producer(f"ipc://{node.runtime}") as producer:
        stored = producer.send("orders", b"slowly").result()
    metrics = wait_until(lambda: scrape(node), "the observer")

    assert stored.queue_offset == 0
    assert node.logged("kernels are plain Python") == is_plain
    assert f"ledgermq_kernels_compiled {float(not is_plain)}" in metrics
    assert doctor(node)["verdict"] == ("WARN" if is_plain else "OK")
    assert node.status()["kernel"] == ("plain" if is_plain else "compiled")

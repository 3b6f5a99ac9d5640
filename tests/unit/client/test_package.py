"""The loop that the package's docstring shows asks a broker; the package is found from anywhere."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq

import ledgermq
import ledgermq.client
from ledgermq.client.blocking.broker import wait_for_link
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.nodes import broker_link
from ledgermq.client.core.questions import route_of
from ledgermq.client.core.requests import RequestPipeline, call_request, call_result
from tests.suite.docstring_code import shown_code
from tests.unit.client.peer import Peer


def test_the_loop_of_the_docstring_asks_a_broker(peer: Peer) -> None:
    peer.topics["T"] = 3
    names = {
        "RequestPipeline": RequestPipeline,
        "address": peer.address,
        "broker_link": broker_link,
        "call_request": call_request,
        "call_result": call_result,
        "parse_addresses": parse_addresses,
        "time": time,
        "topic": "T",
        "wait_for_link": wait_for_link,
        "zmq": zmq,
    }
    found: dict[str, object] = {}

    exec(shown_code(ledgermq.client), names, found)

    result = found["result"]
    assert isinstance(result, dict)
    assert route_of(result).write_queues == 3


@pytest.mark.slow
def test_a_program_beside_a_clone_imports_the_package_and_not_the_clones_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "ledgermq").symlink_to(Path(__file__).parents[3])

    done = subprocess.run(
        [sys.executable, "-c", "import ledgermq.client; print(ledgermq.__file__)"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stdout == f"{ledgermq.__file__}\n", done.stderr

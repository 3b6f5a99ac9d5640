"""Keys that the product makes for nodes and clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key

DASHED, PLAIN = (b"-" + b"a" * 39, b"s" * 40), (b"b" * 40, b"t" * 40)


def test_no_public_key_looks_like_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Iterator[tuple[bytes, bytes]] = iter([DASHED, PLAIN, DASHED, DASHED, PLAIN])
    monkeypatch.setattr(zmq, "curve_keypair", lambda: next(made))

    assert make_node_key(tmp_path / "node") == "b" * 40
    assert (tmp_path / "node").read_text() == "t" * 40 + "\n"
    assert make_client_keys(tmp_path / "client", server="x") == "b" * 40

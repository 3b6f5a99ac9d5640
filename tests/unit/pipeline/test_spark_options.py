"""What jobs of Spark say of places where a store cannot be."""

from __future__ import annotations

import json
import socket

import pytest

from ledgermq.cli.main import main


@pytest.mark.parametrize(
    "words",
    [
        ("rebuild", "s3a://AKIA:secret@bucket/store"),
        ("audit", "s3a://AKIA:secret@bucket/store", "/mnt/b"),
        ("stats", "gs://secret/store"),
        ("archive", "s3://secret/store", "--to", "/mnt/archive"),
    ],
)
def test_a_store_in_a_bucket_is_refused_by_what_may_be_there(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    status = main(["spark", *words, "--json"])
    printed = capsys.readouterr()
    error = json.loads(printed.err)["error"]

    assert status == 1
    assert error["details"]["value"] == f"{words[1].partition(':')[0]}://..."
    assert "only archives may be in buckets" in error["message"]
    assert "becomes a store by backup restore" in error["message"]
    assert "secret" not in printed.out + printed.err


def test_nodes_of_which_none_is_there_are_named_before_spark_begins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    for words in (["archive", "--to", "/nowhere"], ["stats"]):
        status = main(["spark", *words, "--nodes", address])

        told = capsys.readouterr().err
        assert (status, address in told, "connection refused" in told) == (1, True, True), told

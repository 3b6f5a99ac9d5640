"""``ledgermq store``: what it prints of a real store, and how it refuses what is none."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.store.store_reading import java_address, message_as_json
from ledgermq.formats.records.message import COMPRESSED, Message
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_OK, EXIT_STORAGE

Lines = list[dict[str, Any]]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["store", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def lines_of(text: str) -> Lines:
    return [json.loads(line) for line in text.splitlines()]


def test_dump_prints_every_message_as_the_broker_does(
    capsys: pytest.CaptureFixture[str], golden: Any, golden_json: Any
) -> None:
    status, out, _ = run(capsys, "dump", golden("gs1"), "--json", "--topic", "plain1")
    said = [m for m in golden_json("gs1")["messages"] if m["readTopic"] == "plain1"]

    assert status == EXIT_OK
    assert lines_of(out) == said


def test_dump_takes_one_queue(capsys: pytest.CaptureFixture[str], golden: Any) -> None:
    status, out, _ = run(capsys, "dump", golden("gd0"), "--json", "--topic", "tx", "--queue", 1)
    lines = lines_of(out)

    assert status == EXIT_OK
    assert {line["readQueue"] for line in lines} == {1}
    assert [line["queueOffset"] for line in lines] == list(range(len(lines)))


def test_dump_prints_text_for_people(capsys: pytest.CaptureFixture[str], golden: Any) -> None:
    status, out, _ = run(capsys, "dump", golden("gd0"), "--topic", "tx", "--queue", 1)

    assert status == EXIT_OK
    assert out.startswith("tx/1 0 position=657894 stored=2026-11-21T04:02:14.831+00:00 body=4")


def test_a_key_is_found(capsys: pytest.CaptureFixture[str], golden: Any, golden_json: Any) -> None:
    asked = golden_json("gs1")["keyQueries"][0]
    words = ("query", golden("gs1"), "--topic", asked["topic"], "--key", asked["key"], "--json")
    status, out, _ = run(capsys, *words)

    assert status == EXIT_OK
    assert [line["physicalOffset"] for line in lines_of(out)] == asked["physicalOffsets"]

    # The slots of the golden brokers' index files, told instead of found out.
    assert run(capsys, *words, "--hash-slots", 500)[1] == out


def test_a_unique_id_is_found(capsys: pytest.CaptureFixture[str], golden: Any) -> None:
    _, out, _ = run(capsys, "dump", golden("gs1"), "--json", "--topic", "plain0", "--queue", 0)
    first = lines_of(out)[0]
    _, found, _ = run(
        capsys, "query", golden("gs1"), "--topic", "plain0", "--key", first["msgId"], "--json"
    )

    assert [line["physicalOffset"] for line in lines_of(found)] == [first["physicalOffset"]]


def test_a_time_is_found(capsys: pytest.CaptureFixture[str], golden: Any, golden_json: Any) -> None:
    asked = next(q for q in golden_json("gs1")["timeQueries"] if q["offset"] > 0)
    words = ("--topic", asked["topic"], "--queue", asked["queue"], "--time", asked["timestamp"])
    status, out, _ = run(capsys, "query", golden("gs1"), *words, "--json")

    assert status == EXIT_OK
    assert lines_of(out) == [asked]
    assert run(capsys, "query", golden("gs1"), *words)[1] == f"{asked['offset']}\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["dump", "{store}", "--topic", "nowhere"], "nowhere"),
        (["query", "{store}", "--topic", "tx", "--time", "1"], "--queue"),
        (["query", "{store}", "--topic", "tx"], "--key"),
        (["query", "{store}", "--topic", "tx", "--key", "k", "--hash-slots", "7"], "hash_slots"),
        (["dump", "{store}/config"], "not a store directory"),
    ],
)
def test_what_cannot_be_answered_says_why(
    capsys: pytest.CaptureFixture[str], golden: Any, words: list[str], text: str
) -> None:
    status, out, err = run(capsys, *[word.format(store=golden("gs1")) for word in words])

    assert (status, out) == (EXIT_CONFIG, "")
    assert text in err


def test_a_damaged_store_is_an_error_of_the_store(
    capsys: pytest.CaptureFixture[str], golden_copy: Any
) -> None:
    root: Path = golden_copy("gs1")
    path = root / "consumequeue" / "tx" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:-1])
    status, _, err = run(capsys, "dump", root, "--json")
    error = json.loads(err)["error"]

    assert status == EXIT_STORAGE
    assert error["kind"] == "CorruptLogError"
    assert error["details"]["size"] == 3_999


def test_a_compressed_body_is_shown_as_it_was_sent() -> None:
    body = b"compressible " * 100
    message = Message(topic="t", queue_id=0, body=zlib.compress(body), sys_flag=COMPRESSED)

    assert message_as_json(message)["bodyLength"] == len(body)


def test_a_body_that_cannot_be_decompressed_is_refused() -> None:
    message = Message(topic="t", queue_id=0, body=b"no zlib", sys_flag=COMPRESSED)
    with pytest.raises(CorruptLogError) as caught:
        message_as_json(message)

    assert caught.value.details["field"] == "body"


def test_addresses_are_written_as_java_writes_them() -> None:
    assert java_address(("10.0.0.1", 1)) == "10.0.0.1"
    assert java_address(("fe80::1:0:2", 1)) == "fe80:0:0:0:0:1:0:2"

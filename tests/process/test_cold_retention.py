"""Retention of real nodes waits for pieces that can be read, and for nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.doctor.examination import _same_place
from ledgermq.doctor.finding import Weight
from ledgermq.doctor.settings_checks import settings_checks
from ledgermq.doctor.subject import Subject
from ledgermq.members.peer_addresses import parse_peer
from ledgermq.model.config.settings import ColdSection
from ledgermq.process.settings.settings_loading import load_settings
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Member, free_port
from tests.process.test_cold_reads import (
    EACH,
    KEPT,
    QUEUES,
    WAITS_FOR_NOTHING,
    all_records,
    delete_oldest,
    seal,
    write,
)
from tests.process.test_retention import set_retention

pytestmark = pytest.mark.slow


def begin(node: Node) -> int:
    return min(int(path.name) for path in node.root.glob("dledger-*/data/0*"))


def sealed(node: Node) -> int:
    found: int = node.status()["counters"]["cold"]["sealed_position"]
    return found


def held(node: Node) -> int:
    """How often the log has said that a file is kept."""
    return node.log.read_text().count("has the log up to")


def wait_held_again(node: Node) -> None:
    """Have retention look once more, and keep what it would delete."""
    before = held(node)
    # What it has told it tells again after a minute, and its next life at once.
    os.kill(node.pid("writer"), signal.SIGKILL)
    wait_until(lambda: held(node) > before, "files to be kept")


def waiting_node(node: Node) -> Path:
    """A node that waits for pieces: retention would delete half of what it has."""
    place = node.folder / "pieces"
    start_client_node(node, file_size=262_144, cold={"place": str(place), "refresh_s": 1})
    write(node)
    set_retention(Member(node, "n7"), bytes_max=KEPT)
    wait_until(lambda: held(node), "files to be kept")
    return place


def status_of(node: Node, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["status", "--runtime-dir", str(node.runtime)]) == 0
    return capsys.readouterr().out


def doctor_of(node: Node, verdict: Weight) -> str:
    """What the doctor says of the place of a node that runs."""
    found = list(settings_checks(Subject.of(load_settings(node.config))))
    (told,) = [one for one in found if one.check == "settings.cold"]
    assert told.verdict is verdict, told
    return told.measured


@pytest.mark.long
def test_files_stay_until_they_are_sealed_whoever_dies(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    place = waiting_node(node)
    assert begin(node) == 0
    assert node.logged(f"the place of pieces {place} has the log up to 0")
    assert "pieces      away since" in status_of(node, capsys)
    assert "away since" in doctor_of(node, Weight.WARN)
    # No process says how far pieces are, and the next one has to find out.
    os.kill(node.pid("cold"), signal.SIGKILL)
    wait_held_again(node)
    assert begin(node) == 0
    seal(node, place)
    wait_until(lambda: begin(node) > 0, "files that are sealed to go")
    told = status_of(node, capsys)
    assert "lacks" in doctor_of(node, Weight.OK)

    assert "of the log: ledgermq piece seal" in told
    assert 0 < begin(node) <= sealed(node)
    assert not node.logged("ARCHIVE_PASSED") and not node.logged("deleted before it is archived")
    assert [len(all_records(node, queue)) for queue in range(QUEUES)] == [EACH] * QUEUES


@pytest.mark.long
def test_a_piece_that_is_not_what_was_sealed_keeps_its_files(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    place = waiting_node(node)
    # Sealed aside, so that the node sees no piece before it is damaged.
    aside = node.folder / "aside"
    seal(node, aside)
    (piece, *_) = sorted((aside / "pieces").iterdir())
    content = piece.read_bytes()
    piece.chmod(0o600)
    piece.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    aside.rename(place)
    wait_until(lambda: node.logged("retention of the log waits for pieces"), "it to be named")
    wait_held_again(node)
    assert begin(node) == 0
    assert node.logged("group 0")
    (place / "pieces" / piece.name).write_bytes(content)
    wait_until(lambda: begin(node) > 0, "files to go once it is mended")


@pytest.mark.long
def test_a_place_that_goes_away_keeps_files_and_a_full_disk_does_not(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    place = waiting_node(node)
    seal(node, place)
    wait_until(lambda: begin(node) > 0, "files that are sealed to go")
    place.rename(place.with_name("unmounted"))
    wait_until(lambda: sealed(node) == 0, "it to be known")
    write(node)
    wait_held_again(node)
    before = begin(node)
    write(node)
    wait_held_again(node)
    assert begin(node) == before
    set_retention(Member(node, "n7"), **WAITS_FOR_NOTHING)
    wait_until(lambda: begin(node) > before, "files to go all the same")

    assert node.logged("deleted before it is archived: the place of pieces")


def test_nothing_waits_where_no_place_is_set(make_node: Callable[[], Node]) -> None:
    node = make_node()
    port = free_port()
    start_client_node(node, file_size=262_144, listen={"consume": f"tcp://0.0.0.0:{port}"})
    write(node)
    delete_oldest(node)
    assert begin(node) > 0
    # A member with a place is told that this one has none; both are at addresses of this machine.
    settings = load_settings(node.config)
    for place, verdict in ((None, Weight.OK), ("/srv/pieces", Weight.WARN)):
        member = replace(
            settings,
            cold=ColdSection(place=place),
            listen=replace(settings.listen, consume=f"tcp://127.0.0.1:{port}"),
        )
        found = _same_place(Subject(member, None, None), *parse_peer("n1-127.0.0.2:10920"))
        assert (found.check, found.verdict) == ("peers.n1.cold", verdict)
        assert found.measured.startswith("none")

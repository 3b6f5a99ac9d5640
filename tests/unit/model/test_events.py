"""Numbers of events: as systemd wants them, and used."""

from __future__ import annotations

import re
from pathlib import Path

from ledgermq.model.events import Event

ROOT = Path(__file__).parents[3]
NUMBERS = [event.value for event in Event.__members__.values()]


def test_every_number_is_one_of_128_bits_and_is_given_once() -> None:
    wrong = [number for number in NUMBERS if not re.fullmatch(r"[0-9a-f]{32}", number)]

    assert wrong == []
    assert len(set(NUMBERS)) == len(NUMBERS) == len(Event)


def test_every_event_is_logged_somewhere() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "ledgermq").rglob("*.py"))
    mute = [event.name for event in Event if not re.search(rf"Event\.{event.name}\b", sources)]

    assert mute == []

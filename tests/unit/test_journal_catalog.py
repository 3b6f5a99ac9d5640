"""The message catalog: it explains every event of weight, and systemd can read it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ledgermq.model.config.settings_rules import RULES
from ledgermq.model.events import Event

ROOT = Path(__file__).resolve().parents[2]
CATALOG = ROOT / "packaging" / "systemd" / "ledgermq.catalog"
JOURNALCTL = shutil.which("journalctl")
NUMBERS = {event.value for event in Event}
DOCUMENTS = "file:///usr/share/doc/ledgermq/"


def entries() -> dict[str, str]:
    """Texts by number."""
    parts = re.split(r"^-- ([0-9a-f]{32})\n", CATALOG.read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_catalog_explains_every_event_and_nothing_else() -> None:
    numbers = re.findall(r"^-- (.*)$", CATALOG.read_text(), re.M)

    assert sorted(numbers) == sorted(NUMBERS)


@pytest.mark.parametrize("event", list(Event), ids=lambda event: event.name)
def test_an_entry_says_what_happened_and_what_to_do(event: Event) -> None:
    entry = entries()[event.value]
    head, _, text = entry.partition("\n\n")

    assert re.search(r"^Subject: \S", head, re.M)
    assert "Defined-By: LedgerMQ" in head
    assert re.search(r"^What to do: \S", text, re.M)


def test_the_operators_list_has_every_event_in_the_order_of_the_code() -> None:
    document = (ROOT / "docs" / "operating" / "service.md").read_text()
    told = re.findall(r"^\| `([A-Z_]+)` \| \S", document, re.M)

    assert [name for name in told if name in Event.__members__] == [one.name for one in Event]


def test_the_documents_that_it_leads_to_are_there() -> None:
    links = set(re.findall(rf"^Documentation: {DOCUMENTS}(\S+)$", CATALOG.read_text(), re.M))
    missing = [link for link in links if not (ROOT / "docs" / link).is_file()]

    assert links
    assert missing == []


def test_the_settings_that_it_names_are_settings() -> None:
    tables = "|".join({key.partition(".")[0] for key in RULES})
    named = set(re.findall(rf"\b((?:{tables})\.(?!md)[a-z_]+)\b", CATALOG.read_text()))

    assert named
    assert named - RULES.keys() == set()


@pytest.mark.slow
@pytest.mark.skipif(JOURNALCTL is None, reason="journalctl is not installed")
def test_systemd_compiles_it_and_has_every_entry(tmp_path: Path) -> None:
    assert JOURNALCTL is not None
    folder = tmp_path / "usr" / "lib" / "systemd" / "catalog"
    folder.mkdir(parents=True)
    (tmp_path / "var" / "lib" / "systemd" / "catalog").mkdir(parents=True)
    shutil.copy(CATALOG, folder)
    done = journalctl(tmp_path, "--update-catalog")
    listed = journalctl(tmp_path, "--list-catalog").stdout.splitlines()
    dumped = journalctl(tmp_path, "--dump-catalog", Event.LOG_DAMAGED.value).stdout

    # Lines that it cannot read are told on stderr, and the exit status is 0.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {line.split()[0] for line in listed} == NUMBERS
    assert all(" LedgerMQ: " in line for line in listed)
    assert "What to do:" in dumped


def journalctl(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    assert JOURNALCTL is not None
    command = [JOURNALCTL, f"--root={root}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

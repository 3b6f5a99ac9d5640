"""Purging the package removes what is its nodes', and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "packaging" / "debian" / "ledgermq.postrm"
DEBCONF = "RET=ANSWER\ndb_input() { :; }\ndb_go() { :; }\ndb_get() { :; }\ndb_purge() { :; }\n"


def purged(host: Path, *, answer: str) -> set[str]:
    """What is left below /var/lib and /etc of a host that had a node, two instances and more."""
    for name in ("ledgermq", "ledgermq-n0", "ledgermq-n1", "ledgermq-backups", "other"):
        (host / "var/lib" / name).mkdir(parents=True)
    (host / "etc/ledgermq").mkdir(parents=True)
    for name in ("n0", "n1"):
        (host / f"etc/ledgermq/{name}.toml").write_text("")
    debconf = host / "usr/share/debconf/confmodule"
    debconf.parent.mkdir(parents=True)
    debconf.write_text(DEBCONF.replace("ANSWER", answer))
    text = SCRIPT.read_text().replace("#DEBHELPER#", "")
    for folder in ("/var/lib/", "/etc/ledgermq", "/usr/share/debconf"):
        text = text.replace(folder, f"{host}{folder}")
    subprocess.run(["sh", "-s", "purge"], input=text, text=True, check=True)
    return {path.name for folder in ("var/lib", "etc") for path in (host / folder).iterdir()}


def test_a_purge_leaves_folders_that_only_have_a_name_like_ours(tmp_path: Path) -> None:
    assert purged(tmp_path, answer="true") == {"ledgermq-backups", "other"}


def test_a_purge_that_is_to_keep_messages_keeps_all(tmp_path: Path) -> None:
    everything = {"ledgermq", "ledgermq-n0", "ledgermq-n1", "ledgermq-backups", "other"}

    assert purged(tmp_path, answer="false") == everything

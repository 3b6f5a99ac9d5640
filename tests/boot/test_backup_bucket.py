"""The backup stream into a bucket as a unit: a real S3 server (versitygw) on the same machine."""

from __future__ import annotations

import json
import shutil
from hashlib import md5
from pathlib import Path

import pytest

from tests.boot.conftest import PACKAGES
from tests.boot.machine import Machine
from tests.boot.messages import TOPIC, expected, send, status
from tests.buckets.object_server import BUCKET, KEYS, program

pytestmark = [pytest.mark.slow, pytest.mark.boot]

UNIT = "ledgermq-backup-bucket.service"
SETTINGS = "/etc/ledgermq/backup-bucket.env"
PORT = 7070
REPOSITORY = f"s3://{BUCKET}/streams"
RESTORED = "/srv/restored"


def committed(machine: Machine) -> int:
    """Up to where the node's log is committed."""
    return int(status(machine)["cursors"]["committed"]["position"])


def streamed(machine: Machine) -> int:
    """Up to where the note of the stream goes; -1: there is none."""
    done = machine.run("cat /var/lib/ledgermq/ledgermq/last-stream", check=False)
    # The last line is the checksum.
    text = done.stdout.rstrip().rpartition("\n")[0]
    return int(json.loads(text)["end"]) if done.returncode == 0 else -1


def test_a_unit_streams_into_a_bucket_from_which_a_point_is_restored(
    machine: Machine, packages: Path
) -> None:
    found = program()
    if found is None:
        pytest.skip("no versitygw here (packaging/install-tools.sh s3)")
    shutil.copy(found, packages / "versitygw")
    names = {
        "LEDGERMQ_REPOSITORY": REPOSITORY,
        "AWS_ACCESS_KEY_ID": KEYS["ROOT_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": KEYS["ROOT_SECRET_KEY"],
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{PORT}",
        "AWS_REGION": "us-east-1",
    }
    machine.run(f"mkdir -p /srv/s3/{BUCKET}")
    machine.run(f"install -m 0600 /dev/stdin {SETTINGS}", typed=_lines(names))
    machine.run("install -m 0600 /dev/stdin /root/s3.env", typed=_lines(KEYS))
    server = f"{PACKAGES}/versitygw --port 127.0.0.1:{PORT} --quiet posix /srv/s3"
    send(machine, 1, 100)
    # It waits for a bucket that is not there yet.
    machine.run(f"systemctl enable --now {UNIT}")
    with machine.running(f"sh -c 'set -a; . /root/s3.env; exec {server}'"):
        machine.wait_until(lambda: streamed(machine) >= committed(machine), "the first stream")
        machine.run(f"systemctl kill --signal=KILL {UNIT}")
        send(machine, 101, 100)
        machine.wait_until(lambda: streamed(machine) >= committed(machine), "the stream again")
        machine.run(f"systemctl disable --now {UNIT}")
        asked = f"set -a; . {SETTINGS}; ledgermq backup"
        machine.run(f"{asked} verify {REPOSITORY}")
        machine.run(f"{asked} restore {REPOSITORY} {RESTORED}")

    lines = machine.output(f"ledgermq store dump {RESTORED} --topic {TOPIC} --json").splitlines()
    digests = sorted(json.loads(line)["bodyMd5"] for line in lines)
    assert digests == sorted(md5(body.encode()).hexdigest() for body in expected(200))


def _lines(names: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in names.items())

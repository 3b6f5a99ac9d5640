"""The image of a node: its settings fit one another, and its archive is what its digests say."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

from ledgermq.model.config.settings_file import read_settings
from ledgermq.model.config.settings_rules import member_names

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "packaging" / "image"


def test_the_three_of_the_compose_file_are_a_group() -> None:
    entry = (IMAGE / "entry.sh").read_text()
    written = re.search(r"^ +cat >.*<<SETTINGS\n(?s:.*?)^SETTINGS$", entry, re.M)
    assert written is not None
    write = written[0].replace('>"$config"', "")
    services = yaml.safe_load((IMAGE / "compose.yaml").read_text())["services"]

    for name, service in services.items():
        environment = {**os.environ, **service["environment"], "LEDGERMQ_ADDRESS": "10.0.0.1"}
        text = subprocess.run(
            ["sh", "-c", write], env=environment, capture_output=True, text=True, check=True
        ).stdout
        settings = read_settings(text, name="image")
        assert settings.node.self_id == name
        assert list(member_names(settings.node)) == list(services)
        assert settings.listen.grpc == "*:8081"
        assert [one.partition("=")[0] for one in settings.grpc.members] == list(services)
    alone = subprocess.run(["sh", "-c", write], capture_output=True, text=True, check=True).stdout
    assert read_settings(alone, name="image").listen.grpc is None


def test_the_archive_is_what_its_digests_say_and_the_same_each_time(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w") as archive:
        archive.add(IMAGE / "entry.sh", "usr/bin/ledgermq-image")
    made = []
    for name in ("one.tar", "two.tar"):
        subprocess.run(
            [sys.executable, IMAGE / "oci_archive.py", layer, tmp_path / name, "1.2.3", "amd64"],
            check=True,
        )
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]

    with tarfile.open(tmp_path / "one.tar") as archive:
        held = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    blobs = {name.rpartition("/")[2]: data for name, data in held.items() if "/" in name}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in blobs.items())
    named, latest = json.loads(held["index.json"])["manifests"]
    names = [one.pop("annotations")["org.opencontainers.image.ref.name"] for one in (named, latest)]
    assert names == ["ledgermq:1.2.3", "ledgermq:latest"]
    assert named == latest
    manifest = json.loads(blobs[named["digest"].removeprefix("sha256:")])
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    (packed,) = manifest["layers"]
    whole = gzip.decompress(blobs[packed["digest"].removeprefix("sha256:")])
    assert whole == layer.read_bytes()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(whole).hexdigest()}"]
    (docker,) = json.loads(held["manifest.json"])
    assert [docker["Config"], *docker["Layers"]] == [
        f"blobs/{one['digest'].replace(':', '/')}" for one in (manifest["config"], packed)
    ]

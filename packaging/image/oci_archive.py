"""Image archive of one layer: OCI's layout, which ``docker load`` and ``podman load`` take.

    python3 packaging/image/oci_archive.py LAYER.tar OUTPUT.tar VERSION ARCHITECTURE

The same layer, version and ``SOURCE_DATE_EPOCH`` make the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PORTS = (10911, 9876, 8081, 10920, 10921, 10922, 10923, 10924, 9464)
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def main(layer: Path, output: Path, version: str, architecture: str) -> None:
    """Write the archive."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    with TemporaryDirectory(dir=output.parent) as folder:
        packed = Path(folder, "layer.tar.gz")
        with (
            layer.open("rb") as source,
            packed.open("wb") as target,
            gzip.GzipFile("", "wb", 9, target, mtime=0) as zipped,
        ):
            shutil.copyfileobj(source, zipped, 1 << 20)
        config = _json(
            {
                "created": created,
                "architecture": architecture,
                "os": "linux",
                "config": {
                    "User": "ledgermq",
                    "ExposedPorts": {f"{port}/tcp": {} for port in PORTS},
                    "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
                    "Entrypoint": ["/usr/bin/ledgermq-image"],
                    "Volumes": {"/var/lib/ledgermq": {}},
                    "StopSignal": "SIGTERM",
                    "Labels": {"org.opencontainers.image.version": version},
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
                "history": [{"created": created, "created_by": "packaging/make-image.sh"}],
            }
        )
        config_name, layer_name = hashlib.sha256(config).hexdigest(), _digest(packed)
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _named("config.v1+json", config_name, len(config)),
                "layers": [_named("layer.v1.tar+gzip", layer_name, packed.stat().st_size)],
            }
        )
        manifest_name = hashlib.sha256(manifest).hexdigest()
        index = {"mediaType": MANIFEST, "digest": f"sha256:{manifest_name}", "size": len(manifest)}
        # podman has the names from the index, docker from its own manifest.
        names = [f"ledgermq:{version}", "ledgermq:latest"]
        named = [
            {**index, "annotations": {"org.opencontainers.image.ref.name": name}} for name in names
        ]
        docker = {
            "Config": f"blobs/sha256/{config_name}",
            "RepoTags": names,
            "Layers": [f"blobs/sha256/{layer_name}"],
        }
        texts = {
            "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
            "index.json": _json({"schemaVersion": 2, "manifests": named}),
            "manifest.json": _json([docker]),
            f"blobs/sha256/{config_name}": config,
            f"blobs/sha256/{manifest_name}": manifest,
        }
        with tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as archive:
            for name, text in texts.items():
                archive.addfile(_member(name, len(text), epoch), io.BytesIO(text))
            member = _member(f"blobs/sha256/{layer_name}", packed.stat().st_size, epoch)
            with packed.open("rb") as source:
                archive.addfile(member, source)


def _member(name: str, size: int, epoch: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = size, epoch
    return member


def _named(kind: str, digest: str, size: int) -> dict[str, Any]:
    kind = f"application/vnd.oci.image.{kind}"
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])

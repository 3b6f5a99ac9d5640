#!/usr/bin/env python3
"""Adds what is vendored (vendored.toml) to a list of components in CycloneDX's JSON.

vendored_components.py LIST       changes the file, but where a vendored file is not what it was
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "packaging" / "vendored.toml"


class VendoredError(Exception):
    """A vendored file is not the one that the table names."""


def vendored(table: Path = TABLE, root: Path = ROOT) -> list[dict[str, Any]]:
    """Components as CycloneDX has them, each with its files.

    Raises:
        VendoredError: a file is not there, or has another digest than the table says.
    """
    rows: list[Mapping[str, Any]] = tomllib.loads(table.read_text(encoding="utf-8"))["component"]
    return [_component(row, root) for row in rows]


def add(bom: dict[str, Any], components: Sequence[Mapping[str, Any]]) -> None:
    """Put ``components`` into a list, as what its root needs."""
    bom.setdefault("components", []).extend(components)
    dependencies: list[dict[str, Any]] = bom.setdefault("dependencies", [])
    own = bom["metadata"]["component"]["bom-ref"]
    (needs,) = (one for one in dependencies if one["ref"] == own)
    refs = [str(one["bom-ref"]) for one in components]
    needs["dependsOn"] = sorted({*needs.get("dependsOn", ()), *refs})
    dependencies.extend({"ref": ref} for ref in refs)


def main(words: Sequence[str]) -> int:
    """Change the file that is named."""
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 1
    path = Path(words[0])
    bom = json.loads(path.read_text(encoding="utf-8"))
    try:
        add(bom, vendored())
    except VendoredError as error:
        print(f"vendored_components: {error}", file=sys.stderr)
        return 1
    path.write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    return 0


def _component(row: Mapping[str, Any], root: Path) -> dict[str, Any]:
    ref = f"{row['name']}=={row['version']}"
    return {
        "bom-ref": ref,
        "type": "library",
        "name": row["name"],
        "version": row["version"],
        "copyright": row["copyright"],
        "purl": row["purl"],
        "licenses": [{"license": {"acknowledgement": "declared", "id": row["license"]}}],
        "externalReferences": [{"type": "website", "url": row["url"]}],
        "pedigree": {"notes": row["notes"]},
        "components": [
            _file(ref, name, digest, root) for name, digest in sorted(row["sha256"].items())
        ],
    }


def _file(ref: str, name: str, digest: str, root: Path) -> dict[str, Any]:
    try:
        found = hashlib.sha256((root / name).read_bytes()).hexdigest()
    except OSError as error:
        raise VendoredError(f"{name}: {error.strerror}") from error
    if found != digest:
        raise VendoredError(f"{name} is of SHA-256 {found}, and {TABLE.name} says {digest}")
    return {
        "bom-ref": f"{ref}/{name}",
        "type": "file",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

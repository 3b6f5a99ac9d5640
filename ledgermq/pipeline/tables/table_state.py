"""State of an archive in a table: how far its runs have come, as properties of a snapshot.

docs/formats/iceberg.md describes them. Nothing here knows Iceberg.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.pipeline.archive.archive_layout import (
    ArchiveRun,
    ArchiveState,
    Gap,
    decode_marks,
    encode_marks,
)

PLAIN_VERSION, TYPED_VERSION = 1, 2
"""Versions of a run: with bodies as bytes alone, and with bodies as fields, too.

An earlier program would leave those empty.
"""

PREFIX = "ledgermq."
RUN, ATTEMPT = f"{PREFIX}run", f"{PREFIX}attempt"

PLAIN_TEXT_MAX = 4_096
"""Longer texts are compressed: each snapshot that is kept has them in the table's metadata."""

STATE_BYTES_MAX = 64 << 20
"""Most bytes of a property when it is not compressed any more: some million queues."""

_PACKED = "zlib:"


class FoundState(NamedTuple):
    """What properties say.

    Attributes:
        attempt: random, of the commit that wrote them: no two have the same.
    """

    state: ArchiveState
    attempt: str


def encode_state(before: ArchiveState, run: ArchiveRun, attempt: str) -> dict[str, str]:
    """The properties of the snapshot that adds ``run`` to ``before``."""
    properties = {
        "version": str(TYPED_VERSION if run.subjects else PLAIN_VERSION),
        "run": str(run.number),
        "attempt": attempt,
        "source": run.source,
        "bodies": run.bodies,
        "topics": _packed(run.topics),
        "queues": _packed(encode_marks({**before.marks, **run.marks})),
        "gaps": _packed([list(gap) for gap in run.gaps]),
        "missing": str(sum(gap.end - gap.first for gap in run.gaps)),
        "damaged": str(sum(file.damaged for file in run.files)),
    }
    if run.subjects:
        properties["subjects"] = json.dumps(run.subjects)
        properties["unparsed"] = str(sum(file.unparsed for file in run.files))
    known = [one for one in (before.position, run.position) if one is not None]
    if known:
        properties["position"] = str(max(known))
    return {f"{PREFIX}{name}": text for name, text in properties.items()}


def decode_state(properties: Mapping[str, str], *, table: str) -> FoundState | None:
    """The state behind the run that has written ``properties``; None where no run has.

    Its gaps are those of that run; it has no files.

    Args:
        table: named in errors.

    Raises:
        ConfigError: a later version has written them.
        CorruptLogError: they cannot be read.
    """
    if RUN not in properties:
        return None
    take = _Properties(properties, table)
    version = take.number("version")
    if version > TYPED_VERSION:
        raise ConfigError(
            "table is of a later layout", table=table, version=version, known=TYPED_VERSION
        )
    state = ArchiveState(
        runs=take.number("run"),
        bodies=take.text("bodies"),
        topics=take.table("topics"),
        position=take.number("position") if f"{PREFIX}position" in properties else None,
        marks=decode_marks(take.table("queues"), file=table),
        gaps=take.gaps(),
        subjects=take.texts("subjects") if version == TYPED_VERSION else (),
    )
    return FoundState(state, take.text("attempt"))


def _packed(document: object) -> str:
    text = json.dumps(document, separators=(",", ":"))
    if len(text) <= PLAIN_TEXT_MAX:
        return text
    return _PACKED + base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(text: str) -> object:
    """The document of a text.

    Raises:
        ValueError: it is none, or has more than ``STATE_BYTES_MAX``.
    """
    if not text.startswith(_PACKED):
        return json.loads(text)
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(
            base64.b64decode(text.removeprefix(_PACKED), validate=True), STATE_BYTES_MAX
        )
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof:
        raise ValueError(f"not whole, or larger than {STATE_BYTES_MAX:,} bytes")
    return json.loads(content)


class _Properties:
    """Properties of one snapshot, each of the type that is asked for."""

    def __init__(self, properties: Mapping[str, str], table: str) -> None:
        self._properties = properties
        self._table = table

    def text(self, name: str) -> str:
        """A text."""
        found = self._properties.get(f"{PREFIX}{name}")
        if found is None:
            raise self._corrupt(name, "missing")
        return found

    def number(self, name: str) -> int:
        """A whole number."""
        try:
            return int(self.text(name))
        except ValueError as error:
            raise self._corrupt(name, str(error)) from error

    def table(self, name: str) -> dict[str, object]:
        """An object of JSON."""
        found = self._document(name)
        if not isinstance(found, dict):
            raise self._corrupt(name, "no object")
        return found

    def gaps(self) -> list[Gap]:
        """What the run has not found any more."""
        found = self._document("gaps")
        if not isinstance(found, list):
            raise self._corrupt("gaps", "no list")
        gaps = []
        for item in found:
            match item:
                case [str(topic), int(queue_id), int(generation), int(first), int(end)]:
                    gaps.append(Gap(topic, queue_id, generation, first, end))
                case _:
                    raise self._corrupt("gaps", "no gap")
        return gaps

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        found = self._document(name)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self._corrupt(name, "no list of texts")
        return tuple(found)

    def _document(self, name: str) -> object:
        try:
            return _unpacked(self.text(name))
        except (ValueError, RecursionError) as error:
            raise self._corrupt(name, str(error)) from error

    def _corrupt(self, name: str, why: str) -> CorruptLogError:
        return CorruptLogError(
            "state of the archive not read",
            table=self._table,
            property=f"{PREFIX}{name}",
            reason=why[:200],
        )

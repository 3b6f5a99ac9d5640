"""Places of pieces that a run has left which died before one of its changes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from ledgermq.pipeline.pieces.log_sealing import rebuild_manifest
from ledgermq.pipeline.pieces.piece_manifest import read_manifest
from ledgermq.pipeline.pieces.piece_places import PIECES, SealedFolder
from tests.unit.conversion.streamed_store import exit_status_of

STEPS_MAX = 99


def steps_of(place: SealedFolder, step: Callable[[], None]) -> Iterator[None]:
    """Have ``step`` called before each change of the place."""
    for name in ("put", "replace", "delete"):
        change = getattr(place, name)

        def changing(*arguments: object, change: object = change, **named: object) -> object:
            step()
            return change(*arguments, **named)  # type: ignore[operator]

        setattr(place, name, changing)
    yield


def left_by_deaths(
    sealed: Path, run: Callable[[SealedFolder], object], check: Callable[[SealedFolder], None]
) -> Iterator[SealedFolder]:
    """Copies of a place, each as ``run`` has left it, killed by SIGKILL before its first change,
    its second one and so on, up to that which it does not live to be killed before.

    Each is checked before anybody goes on, and every second time once more when the manifest is
    made anew; behind the caller it has the pieces that its manifest names, and no others.
    """
    for step in range(STEPS_MAX):
        folder = sealed.with_name(f"dying {step}")
        shutil.copytree(sealed, folder)
        if exit_status_of(lambda folder=folder, step=step: _dying(folder, step, run)) == 0:
            return
        place = SealedFolder(folder)
        check(place)
        if step % 2:
            Path(place.as_text("manifest")).unlink()
            rebuild_manifest(place)
            check(place)
        yield place
        files = {f"{PIECES}/{name}" for name in place.names(PIECES)}
        assert files == {row.name for row in read_manifest(place).rows}, step
    raise AssertionError("it changes the place for ever")


def _dying(folder: Path, step: int, run: Callable[[SealedFolder], object]) -> None:
    left, place = step, SealedFolder(folder)

    def die() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    for _ in steps_of(place, die):
        run(place)

"""Whatever comes from a network or a disk, a decoder takes it or refuses it with its own error.

The corpus is kept in ``corpus/NAME``: what a fuzzer that sees coverage has found worth keeping, and
whatever has broken a decoder once. ``make fuzz`` goes on from it for an hour, and adds to it.
"""

from __future__ import annotations

import os
import random

import pytest

from ledgermq.model.errors import LedgerError
from tests.fuzz.decoders import CORPUS, DECODERS
from tests.fuzz.mutations import mutated

COUNT = int(os.environ.get("LEDGERMQ_DECODER_FUZZ") or 200)
SEED = int(os.environ.get("LEDGERMQ_FUZZ_SEED") or random.SystemRandom().randrange(2**32))


def kept(name: str) -> list[bytes]:
    """The corpus of a decoder; file names say nothing."""
    files = sorted((CORPUS / name.replace(" ", "-")).glob("*"))
    return [*DECODERS[name].seeds, *(file.read_bytes() for file in files)]


def is_refused_or_taken(name: str, data: bytes) -> None:
    try:
        DECODERS[name].decode(data)
    except LedgerError:
        return
    except Exception as error:
        raise AssertionError(f"{name} met {data!r} with {error!r}") from error


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_kept_is_taken_or_refused(name: str) -> None:
    corpus = kept(name)
    for data in corpus:
        is_refused_or_taken(name, data)

    assert corpus


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_what_is_nearly_well_formed_is_taken_or_refused(name: str) -> None:
    print(f"LEDGERMQ_FUZZ_SEED={SEED}")
    chance = random.Random(f"{SEED} {name}")
    corpus = kept(name)
    done = 0
    for _ in range(COUNT):
        is_refused_or_taken(name, mutated(chance, corpus))
        done += 1

    assert done == COUNT


def test_each_folder_of_the_corpus_belongs_to_a_decoder() -> None:
    folders = {path.name for path in CORPUS.iterdir()}

    assert folders <= {name.replace(" ", "-") for name in DECODERS}


def test_frames_that_are_plain_are_taken_as_such() -> None:
    decoder = DECODERS["plain frame"]

    assert all(decoder.decode(seed) for seed in decoder.seeds)

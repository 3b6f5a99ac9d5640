"""Bytes that are nearly those of a corpus: what breaks decoders, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

ODD_NUMBERS = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
)
MUTATIONS_MAX = 6
SIZE_MAX = 65_536


def mutated(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One of them, changed in some places."""
    data = bytearray(chance.choice(corpus) if corpus else b"")
    for _ in range(chance.randint(1, MUTATIONS_MAX)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = chance.randrange(256)
        elif kind == 2:
            data[at:at] = chance.randbytes(chance.randint(1, 9))
        elif kind == 3:
            del data[at : at + chance.randint(1, 9)]
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            size = chance.choice((1, 2, 4, 8))
            number = chance.choice(ODD_NUMBERS) % 2 ** (8 * size)
            data[at : at + size] = number.to_bytes(size, chance.choice(("big", "little")))
        elif kind == 6:
            part = data[at : at + chance.randint(1, 40)]
            data[at:at] = part * chance.randint(1, 20)
        elif corpus:
            other = chance.choice(corpus)
            begin = chance.randrange(len(other) + 1)
            data[at:at] = other[begin : begin + chance.randint(1, 64)]
    return bytes(data[:SIZE_MAX])

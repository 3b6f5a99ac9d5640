"""Offset ids of a batch's messages, as one text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ledgermq.formats.records.message_id import ID_SEPARATOR

_FEW = 8
"""Most ids that are written out one by one: arrays cost more to begin with."""

_POSITION = np.dtype(">i8")


def encode_offset_ids(host: bytes, positions: Sequence[int]) -> str:
    """The ids of records at ``positions`` of a broker's log, with commas between them.

    Args:
        host: the broker's, encoded (``formats.records.host_address``); empty when it is not known,
        and the
            ids say the positions alone.
    """
    if len(positions) <= _FEW:
        prefix = host.hex().upper()
        return ID_SEPARATOR.join([f"{prefix}{position:016X}" for position in positions])
    size = len(host) + _POSITION.itemsize
    ids = np.empty((len(positions), size), np.uint8)
    ids[:, : len(host)] = np.frombuffer(host, np.uint8)
    ids[:, len(host) :] = np.array(positions, _POSITION).view(np.uint8).reshape(len(positions), -1)
    return ids.tobytes().hex(ID_SEPARATOR, size).upper()

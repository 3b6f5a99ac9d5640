"""Layout of the answer to most frames, in one piece: a SENT of one span, without duplicates.

Its fields are those of ``wire.send_frame``: the header, the fixed ones, and the only span.
"""

from __future__ import annotations

from struct import Struct

ONE_SENT = Struct("<3sBBBHQqqB3xIIIqq")

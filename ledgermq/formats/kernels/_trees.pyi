import numpy as np
import numpy.typing as npt

def add_leaves(
    data: bytes | memoryview,
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    size: int,
    peaks: bytes,
) -> bytes: ...

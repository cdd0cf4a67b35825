"""Load numpy without the threads of OpenBLAS.

OpenBLAS starts a thread for each core when numpy is imported, which takes 0.1 s of CPU on two
cores. No computation here uses them. The variable is set only during the import, so that programs
that this process starts do not inherit it. If the user sets it, the user's value applies.
"""

import os

_VARIABLE = "OPENBLAS_NUM_THREADS"
_is_unset = _VARIABLE not in os.environ
if _is_unset:
    os.environ[_VARIABLE] = "1"
try:
    import numpy as np
    import numpy.typing as npt
finally:
    if _is_unset:
        del os.environ[_VARIABLE]

__all__ = ["np", "npt"]

"""Load numpy without the threads of OpenBLAS.

OpenBLAS starts a thread for each core when numpy is imported, which takes 0.1 s of CPU on two
cores. No computation here uses them.
"""

from vmrag_link import env

with env.single_threaded_blas():
    import numpy as np
    import numpy.typing as npt

__all__ = ["np", "npt"]

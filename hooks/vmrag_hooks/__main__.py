"""`python -m vmrag_hooks HOOK [ARGUMENT…]`: what a shim starts when there is something to do.

Somebody waits for git meanwhile, so the process comes and goes quickly: it collects no garbage,
which it has none of, and it does not take the interpreter apart when everything is written.
"""

import gc
import os
import sys
from typing import Any

gc.disable()  # before the imports, which would trigger it several times

modules: dict[str, Any] = sys.modules
# msgspec prefers this module to `typing`, which has all of it since Python 3.11; to import it takes
# a tenth of the whole time.
modules["typing_extensions"] = None
import msgspec  # noqa: E402, F401

del modules["typing_extensions"]

from vmrag_hooks import run, shims  # noqa: E402

code = run.main(sys.argv[1:])
sys.stderr.flush()
os._exit(shims.REFUSES if code else 0)

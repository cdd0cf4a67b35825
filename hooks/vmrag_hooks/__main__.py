"""`python -m vmrag_hooks HOOK [ARGUMENT…]`: what a shim starts when something has moved.

Somebody waits for git meanwhile, so the process comes and goes quickly: it collects no garbage, which it has none of, and it does
not take the interpreter apart when everything is written.
"""

import gc
import os
import sys

gc.disable()  # before the imports, which would trigger it several times

from vmrag_hooks import run  # noqa: E402

code = run.main(sys.argv[1:])
sys.stderr.flush()
os._exit(code)

"""`python -m vmrag_hooks HOOK [ARGUMENT…]`: what a shim starts when there is something to do.

Somebody waits for git meanwhile, so the process comes and goes quickly (`startup`).
"""

import sys

from vmrag_link import startup

startup.prepare_start()

from vmrag_hooks import run  # noqa: E402

if run.main(sys.argv[1:]):
    from vmrag_hooks import shims

    startup.exit_process(shims.REFUSES)
startup.exit_process(0)

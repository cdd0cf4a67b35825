"""`python -m vmrag_hooks HOOK [ARGUMENT…]`: run a hook, which its shim found to be necessary.

A user waits for git in the meantime, so the process starts and ends quickly (`startup`).
"""

import sys

from vmrag_link import startup

startup.prepare_start()

from vmrag_hooks import run  # noqa: E402

if run.main(sys.argv[1:]):
    from vmrag_hooks import shims

    startup.exit_process(shims.REFUSAL_EXIT_CODE)
startup.exit_process(0)

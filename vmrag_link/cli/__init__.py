"""The command line, with one module for each command.

It prints reports and maps errors to exit codes. The operations decide everything else.
"""

import sys

from vmrag_link import startup as startup

if sys.platform == "win32":  # locks and processes are POSIX's: importing them would only report the first missing one
    sys.stderr.write("error: vmrag runs on Linux and macOS, not on Windows.\n")
    sys.stderr.write("hint: run 'wsl --install', and in WSL 'pip install vmrag-link', to use it as on Linux\n")
    sys.exit(2)

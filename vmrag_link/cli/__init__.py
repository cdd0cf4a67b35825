"""The command line: one module a command.

Renders reports and maps errors to exit codes; decides nothing about the domain.
"""

import sys

from vmrag_link import startup as startup

if sys.platform == "win32":  # locks and processes are POSIX's: importing them would say only what is missing first
    sys.stderr.write("error: vmrag runs on Linux and macOS, not on Windows.\n")
    sys.stderr.write("hint: It runs in WSL, as on any Linux: wsl --install, and there: pip install vmrag-link\n")
    sys.exit(2)

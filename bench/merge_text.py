"""`python -m bench.merge_text BASE OURS THEIRS`: merge three files as documents merge."""

import sys
from pathlib import Path

from vmrag_link.merging.text import merge_texts

if __name__ == "__main__":
    sys.stdout.write(merge_texts(*(Path(path).read_text() for path in sys.argv[1:])).resolve_text({}))

"""What `vmrag demo` shows: Python's own documentation as a knowledge base, and a walk over two branches that know different things."""

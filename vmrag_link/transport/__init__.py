"""How a knowledge base travels: where to, on whose word, and by which transport."""

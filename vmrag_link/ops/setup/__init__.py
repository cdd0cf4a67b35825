"""How a knowledge base begins: anew, or from another store."""

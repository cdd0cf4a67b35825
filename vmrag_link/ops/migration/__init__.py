"""Moving a knowledge base to another engine, with its history."""

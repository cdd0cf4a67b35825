"""Reading and writing documents and collections."""

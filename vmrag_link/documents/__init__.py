"""Files as documents, and documents as chunks."""

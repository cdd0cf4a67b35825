"""Three-way merges of knowledge, with any base. Engines are known by their contract only."""

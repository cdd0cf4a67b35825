"""Issue logs of projects, and documents about tools: rows of tables of their own."""

"""Read and write the pin, and map git branches to KB branches."""

"""Transfer of a knowledge base: addresses of remotes, trust, and transports."""

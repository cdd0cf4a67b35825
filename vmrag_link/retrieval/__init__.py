"""Retrieval that can be reproduced: equal fingerprints and equal queries give equal answers on every machine."""

"""Bytes, keys, randomness, and what is saved: everything between a party and the network."""

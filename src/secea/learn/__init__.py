"""Representation learning over a federation: `secea train`. The tasks need the extra `learn`."""

"""Engines run a federation: they carry bytes between the state machines of `secea.client` and `secea.server`."""

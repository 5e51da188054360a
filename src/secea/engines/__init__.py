"""Engines run a federation: they carry bytes between the parties (`secea.party.client`, `secea.party.server`)."""

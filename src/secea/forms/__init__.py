"""The forms of the protocol, each readable on its own."""

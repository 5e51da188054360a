"""Forms with one protection taken away: what the claims must object to."""

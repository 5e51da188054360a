"""The claims: each is a function whose docstring says what is claimed."""

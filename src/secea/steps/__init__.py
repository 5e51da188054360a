"""The protocol's steps as pure functions, one file for each section of the specification."""

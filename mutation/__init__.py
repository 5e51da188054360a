"""`python -m mutation`: one small change to the source after another, and whether a test notices it."""

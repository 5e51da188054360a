"""Each form in plain integers on one page: the ground truth that the compiled code must equal."""

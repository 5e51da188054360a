"""`python -m bench`: what the protocol costs, against the paper's own form, what people use instead, and the limit."""

"""Secure embedding aggregation for federated representation learning."""

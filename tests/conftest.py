"""Settings of the whole suite."""

import pytest
from hypothesis import settings

# Machines are shared and slow at times: how long an example takes is no property of the code.
settings.register_profile("quick", deadline=None, print_blob=True, max_examples=15)
settings.register_profile("slow", deadline=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """Few examples in the quick run; many in what is slow anyway."""
    settings.load_profile("quick" if "not slow" in str(config.option.markexpr) else "slow")

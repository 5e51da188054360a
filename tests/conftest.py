"""Settings of the whole suite."""

from hypothesis import settings

# Machines are shared and slow at times: how long an example takes is no property of the code.
settings.register_profile("secea", deadline=None, print_blob=True)
settings.load_profile("secea")

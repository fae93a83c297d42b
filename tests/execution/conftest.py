"""Generated data: the same every time, so that a failure means a change; no deadline, since the first call compiles."""

from hypothesis import settings

settings.register_profile("methods", deadline=None, derandomize=True)
settings.load_profile("methods")

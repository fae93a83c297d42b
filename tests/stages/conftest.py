"""Generated data: the same every time, so that a failure means a change; no deadline, since the first call compiles."""

from hypothesis import settings

settings.register_profile("stages", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("stages")

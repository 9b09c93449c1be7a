"""How many random cases a test tries: few in an ordinary run, as many as one likes in a long one.

``PUNCTUAL_EXAMPLES`` says how many examples a property draws (25 if it is not set). Tests that need more or fewer than most
say their own number at 100, and have that fraction of it.
"""

import os

#: Examples of a property, and of 100 random worlds those that are tried.
N_EXAMPLES = int(os.environ.get("PUNCTUAL_EXAMPLES", "25"))


def examples(n_of_long_run: int) -> int:
    """Return how many of `n_of_long_run` cases this run tries: at least one."""
    return max(1, n_of_long_run * N_EXAMPLES // 100)

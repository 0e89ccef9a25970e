"""A limit on the time that OpenMP's threads spin before they sleep.

Between two parallel operations the threads of PyTorch spin: they check repeatedly whether there is work. This is
faster than sleeping, but on shared cores it takes time from the threads that have work, for which the spinning threads
then wait. So threads spin for a short time only, and then sleep.
"""

from __future__ import annotations

import os

SPINS = 300
"""Number of checks of a waiting thread before it sleeps. The default of GNU's OpenMP library is 300 000."""


def limit_spinning() -> None:
    """Limit the active waiting of OpenMP's threads, unless the user has set it.

    It has an effect on GNU's library only, and only before PyTorch is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))

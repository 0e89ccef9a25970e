"""How long OpenMP's threads wait actively for their next work.

Between two parallel operations the threads of PyTorch spin: they ask again and again whether there is work. This is
faster than sleeping, but on cores that other processes use it takes the time of those who have work, for which the
spinning threads then wait. The remedy is to spin for a short time, and to sleep after it.
"""

from __future__ import annotations

import os

SPINS = 20_000
"""Number of times that a waiting thread asks before it sleeps. The default of GNU's OpenMP library is 300 000."""


def limit_spinning() -> None:
    """Limit the active waiting of OpenMP's threads, unless the user has set it.

    It has an effect on GNU's library only, and only before PyTorch is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))

"""A limit on the time that OpenMP's threads spin before they sleep.

Between two parallel operations the threads of PyTorch spin: they check repeatedly whether there is work. This is
faster than sleeping, but on shared cores it takes time from the threads that have work, for which the spinning threads
then wait. So threads spin for a short time only, and then sleep. If other processes use the cores when fedrun starts,
threads sleep at once.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from fedrun.system.cores import cores

SPINS = 10_000
"""Number of checks of a waiting thread before it sleeps. The default of GNU's OpenMP library is 300 000."""

LOAD = Path("/proc/loadavg")
"""Where Linux shows the number of threads that are running: ``0.20 0.18 0.12 RUNNING/ALL PID``."""


def limit_spinning() -> None:
    """Limit the active waiting of OpenMP's threads, unless the user has set it.

    It has an effect on GNU's library only, and only before PyTorch is loaded.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        is_shared = running_elsewhere() + cores() > (os.cpu_count() or 1)
        os.environ["GOMP_SPINCOUNT"] = str(0 if is_shared else SPINS)


def running_elsewhere(load: Path = LOAD) -> int:
    """How many threads of other processes run on this machine; 0 where this is not known.

    It is the least of three samples within milliseconds, so that threads that run for a moment do not count.
    """
    counts = []
    for number in range(3):
        if number:
            time.sleep(0.002)
        try:
            running = load.read_text().split()[3].partition("/")[0]
        except (OSError, IndexError):
            return 0  # not Linux
        counts.append(int(running) - 1)  # less this thread
    return max(0, min(counts))

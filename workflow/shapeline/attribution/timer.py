"""How long a method took, whatever else the machine did meanwhile."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """A moment on the wall's clock and on that of this process's processors, in seconds."""

    wall: float
    processor: float

    def since(self, waits: bool) -> float:
        """Seconds from this moment on: the processor's where they are fewer, for then others had it in the meantime.

        waits: the numbers come from elsewhere (a GPU, a server behind a function), so that waiting is part of the cost.
        """
        wall = time.perf_counter() - self.wall
        return wall if waits else min(wall, time.process_time() - self.processor)


def now() -> Moment:
    return Moment(time.perf_counter(), time.process_time())

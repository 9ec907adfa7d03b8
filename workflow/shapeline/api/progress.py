"""A bar for calls that take long, where a person looks on: in a terminal or a notebook."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from tqdm import tqdm

AFTER = 2.0  # seconds; shorter calls show none


@contextlib.contextmanager
def bar(label: str, count: int) -> Iterator[Callable[[int], Callable[[int, int], None] | None]]:
    """A bar over so many explanations; for each group of them, by its size, the progress that an attribution tells."""
    if not is_watched():
        yield lambda size: None
        return
    done = 0

    def tell(size: int) -> Callable[[int, int], None]:
        nonlocal done
        before, done = done, done + size

        def report(explained: int, evaluations: int) -> None:
            shown.set_postfix_str(f"{evaluations:,} evaluations", refresh=False)
            shown.update(before + explained - shown.n)

        return report

    with tqdm(total=count, desc=label, unit="", delay=AFTER, leave=False) as shown:
        yield tell


def is_watched() -> bool:
    """Return whether messages go to a terminal or to a notebook's cell."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"

"""HTML that a notebook shows."""

from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class HTML:
    """A fragment of a page; IPython and nbconvert show it by `_repr_html_`, so that neither has to be installed."""

    data: str

    def __repr__(self) -> str:
        return "<HTML>"  # a notebook keeps the text of an output beside its HTML

    def _repr_html_(self) -> str:
        return self.data

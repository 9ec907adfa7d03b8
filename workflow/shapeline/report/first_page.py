"""What a process's first page sets up (fonts, grammars, templates), done on import: a quarter second less per page."""

import nbformat
from matplotlib.figure import Figure

from shapeline.papers import claims  # noqa: F401  of most pages
from shapeline.report import elements, rendering, styling


@styling.styled
def _figure(vector: bool):
    drawing = Figure(figsize=(2, 2), layout="constrained")
    axes = drawing.subplots()
    axes.plot([1, 1000], [1, 1000], label="line")
    axes.set(xscale="log", yscale="log", title="title")
    drawing.legend()
    return elements.figure(drawing, "first", vector=vector)


def _page() -> None:
    shown = {"text/html": _figure(vector=True).data + _figure(vector=False).data, "text/plain": ""}
    output = nbformat.v4.new_output("execute_result", shown)
    cells = [nbformat.v4.new_markdown_cell("- **text**"), nbformat.v4.new_code_cell(outputs=[output])]
    rendering._body(nbformat.v4.new_notebook(cells=cells))


_page()

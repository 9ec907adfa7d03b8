"""The reference of the Python interface as a page, from the docstrings of what is public."""

import importlib
import inspect
import re

PUBLIC = {
    "Explain": ("shapeline.explain", "shapeline.compare", "shapeline.shapley_values", "shapeline.explain_generation"),
    "Results": (
        "shapeline.compare_folders",
        "shapeline.scores.read",
        "shapeline.scores.to_csv",
        "shapeline.scores.to_shap",
    ),
    "Designs": tuple(
        f"shapeline.designs.{name}"
        for name in "shapley banzhaf myerson occlusion l_shapley c_shapley c_shapley_regression kernel_shap "
        "sample_shapley gp_shapley lime".split()
    ),
    "Graphs": tuple(f"shapeline.graphs.{name}" for name in "chain grid neighborhood connected_subsets".split()),
    "Methods without a design": (
        "shapeline.hierarchy.h_shap",
        *(f"shapeline.influence.{name}" for name in "mim parzen data_lime qii counterfactual".split()),
    ),
    "Models and theory": (
        "shapeline.models.build",
        "shapeline.theory.expected_visited_nodes",
        "shapeline.theory.similarity_lower_bound",
    ),
}
SECTION = re.compile(r"\n\n(Parameters|Returns|Yields|Raises|References|Notes|Examples)\n-+\n")
HEAD = """# Python reference

This page is the reference of the public Python interface. [Python](python.md) shows how to use it. The page is
generated from the docstrings by `python -m tools.api_reference > docs/api.md`.
"""


def format_page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD]
    for title, names in PUBLIC.items():
        parts += [f"## {title}\n", *map(format_entry, names)]
    return "\n".join(parts)


def format_entry(path: str) -> str:
    """Return the signature and the docstring of a public function."""
    module, name = path.rsplit(".", 1)
    function = getattr(importlib.import_module(module), name)
    parameters = inspect.signature(function).parameters.values()
    names = [re.sub(r"\s*=\s*", "=", str(one.replace(annotation=inspect.Parameter.empty))) for one in parameters]
    return f"### `{path}`\n\n`{name}({', '.join(names)})`\n\n{format_docstring(inspect.getdoc(function))}\n"


def format_docstring(text: str) -> str:
    """Return a docstring with numpydoc sections as Markdown."""
    first, *rest = SECTION.split(text)
    parts = [escape(first.strip())]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        if title == "Examples":
            parts.append(f"**Examples**\n\n```text\n{body.strip()}\n```")
        elif title in ("References", "Notes"):
            parts.append(f"**{title}**\n\n{escape(inspect.cleandoc(body))}")
        else:
            entries = re.split(r"\n(?=\S)", body.strip())
            parts.append("\n".join([f"**{title}**\n", *map(_format_item, entries)]))
    return "\n\n".join(parts)


def escape(text: str) -> str:
    """Return text without characters that Markdown reads, outside of code."""
    text = text.replace("``", "`")
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if place % 2 else re.sub(r"([*<_|])", r"\\\1", part) for place, part in enumerate(parts))


def _format_item(entry: str) -> str:
    head, _, body = entry.partition("\n")
    name, _, kind = head.partition(" : ")
    words = escape(" ".join(body.split()))
    return f"- `{name}`{f' ({escape(kind)})' if kind else ''}: {words}"


if __name__ == "__main__":  # python -m tools.api_reference > docs/api.md
    print(format_page(), end="")

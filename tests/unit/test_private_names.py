"""No private name of another package is read or assigned, with three exceptions."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "workflow"
# (module, name): the reason. Each falls back where the name is gone.
EXCEPTIONS = {
    (
        "games/torch_execution.py",
        "_version",
    ): "the count of a tensor's changes, by which a prepared copy is known to be old",
    (
        "methods/tree_shap.py",
        "_predictors",
    ): "the trees of scikit-learn's histogram boosting, which it gives in no other way",
    ("models/transformer_models.py", "_attn_implementation"): "the attention to restore after a pass that shows it",
}
# Documented although they begin with an underscore, and documented settings that are assigned.
DOCUMENTED = {"_exit", "_replace", "_asdict", "_fields", "_repr_html_", "_repr_png_"}
SETTINGS = {"sys", "os.environ", "warnings.showwarning", "logging.raiseExceptions", "torch.allow_tf32"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in DOCUMENTED


def own_names(trees) -> set[str]:
    """Private names that the package itself defines or assigns."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return names | {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}


def find_names(tree: ast.AST, own: set[str]) -> set[str]:
    """Private names of other packages, and assignments into them."""
    imported, found = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            dotted = [f"{module}.{alias.name}" if module else alias.name for alias in node.names]
            if not any(name.startswith("shapeline") for name in dotted) and not getattr(node, "level", 0):
                imported |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
                found |= {part for name in dotted for part in name.split(".") if is_private(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if is_private(node.attr) and node.attr not in own:
                found.add(node.attr)
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            name = f"{root.id}.{node.attr}" if isinstance(root, ast.Name) else ""
            if isinstance(node.ctx, ast.Store) and name and root.id in imported and not {root.id, name} & SETTINGS:
                found.add(f"{name} =")
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr"):
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            if is_private(name) and name not in own:
                found.add(name)
    return found


def test_no_private_name_of_another_package():
    files = sorted(PACKAGE.rglob("*.py"))
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    own = own_names(trees.values())
    found = {
        (file.relative_to(PACKAGE).as_posix().removeprefix("shapeline/"), name)
        for file, tree in trees.items()
        for name in find_names(tree, own)
    }
    assert found == set(EXCEPTIONS) and len(EXCEPTIONS) <= 3


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import _thread", {"_thread"}),
        ("from json import _default_decoder", {"_default_decoder"}),
        ("import json\njson.dumps = None", {"json.dumps ="}),
        ("import torch\ntorch._C.f()", {"_C"}),
        ("getattr(model, '_trees')", {"_trees"}),
        ("self._cache = 1", set()),
        ("from __future__ import annotations\nprint(__name__)", set()),
    ],
)
def test_what_counts(code, names):
    assert find_names(ast.parse(code), own_names([ast.parse(code)])) == names

"""The architecture: layers, one direction of imports, short functions (docs/architecture.md has the diagram)."""

import ast
import importlib
import subprocess
import sys
from functools import cache

import networkx
import pytest

from shapeline.workflow.job_code import PACKAGE

MOST_MODULES, MOST_ROOMS = 9, 21
MOST_FLOORS = 11
MOST_FILES, MOST_FILE_LINES = 220, 55_439  # of the package, which is to get smaller
# Modules of `workflow` that the Snakefile imports while it plans a run.
PLANNING = {"job_code", "jobs", "messages", "runs"}
FRAMEWORKS = {"torch", "tensorflow", "keras", "captum", "shap", "lime"}
EAGER = {"shapeline", "shapeline.influence"}
MOST_LINES, MOST_PARAMETERS, MOST_OF_A_SCRIPT = 60, 8, 39
# Public functions, whose parameters are the paper's, and one's own call.
PUBLIC = {
    "api.call.explain",
    "api.comparison.compare",
    "api.call.shapley_values",
    "api.generation.explain_generation",
    "api.generation_comparison.compare_generation",
    "games.retraining.__init__",
    "influence.measures.augmented_mim",
    "influence.local_linear.data_lime",
    "influence.measures.mim",
    "influence.measures.parzen",
}


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each module of the package, by its name; a room's own is that of its `__init__`."""
    files = {file: file.relative_to(PACKAGE.parent).with_suffix("").parts for file in PACKAGE.rglob("*.py")}
    return {
        ".".join(parts[:-1] if parts[-1] == "__init__" else parts): ast.parse(file.read_text())
        for file, parts in files.items()
    }


@cache
def nodes(name: str) -> list[ast.AST]:
    """The imports and functions anywhere in a module: each tree is walked once, which takes the tests' time."""
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(trees()[name]) if isinstance(node, kinds)]


@cache
def imported(name: str) -> frozenset[str]:
    """What a module imports anywhere in it, in functions too: modules of the package, and packages of others."""
    names = set()
    for node in nodes(name):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                names.add(module if module in trees() else node.module)
    return frozenset(module if module in trees() else module.partition(".")[0] for module in names) - {name}


@cache
def house() -> networkx.DiGraph:
    """Return the graph of imports between the modules of the package."""
    return networkx.DiGraph(
        [(name, other) for name in trees() for other in imported(name) if other in trees() and other != "shapeline"]
    )


def room(name: str) -> str:
    """The subpackage of a module, "" of a module at the top."""
    return name.split(".")[1] if name.count(".") > 1 else ""


def test_imports_have_no_cycle():
    assert not list(networkx.simple_cycles(house()))


def diagram() -> str:
    """The imports between subpackages without those that follow from others, for docs/architecture.md."""
    arrows = {(room(name), room(other)) for name, other in house().edges if room(name) and room(other)}
    rooms = networkx.DiGraph([arrow for arrow in arrows if arrow[0] != arrow[1] and arrow != ("report", "papers")])
    assert networkx.is_directed_acyclic_graph(rooms), list(networkx.simple_cycles(rooms))
    lines = sorted(f"    {name} --> {other}" for name, other in networkx.transitive_reduction(rooms).edges)
    return "\n".join(["flowchart TD", *lines])


def test_the_page_shows_the_imports_between_subpackages(root):
    text = (root / "docs/architecture.md").read_text()
    assert diagram() in text, f"put this into docs/architecture.md:\n{diagram()}"


def test_layers_are_few():
    longest = networkx.dag_longest_path(house())
    assert len(longest) <= MOST_FLOORS, " -> ".join(longest)


def test_the_top_level_is_short():
    modules = [file for file in PACKAGE.glob("*.py") if file.name != "__init__.py"]
    rooms = [file.parent for file in PACKAGE.glob("*/__init__.py")]
    assert len(modules) <= MOST_MODULES and len(rooms) <= MOST_ROOMS


def test_the_package_does_not_grow():
    files = list(PACKAGE.rglob("*.py"))
    lines = sum(len(file.read_text().splitlines()) for file in files)
    assert len(files) <= MOST_FILES and lines <= MOST_FILE_LINES, (len(files), lines)


def test_every_init_is_empty_or_lazy():
    for file in PACKAGE.rglob("__init__.py"):
        name = ".".join(file.parent.relative_to(PACKAGE.parent).parts)
        body = trees()[name].body
        rest = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
        assert name in EAGER or not rest or imported(name) == {"shapeline.lazy"}, name


def test_modules_import_modules_and_no_lazy_names():
    """A name behind a lazy `__init__` would be an import that the code's digest does not see."""
    lazy = {name for name in trees() if imported(name) == {"shapeline.lazy"}}
    assert lazy
    for name in trees():
        assert not lazy & imported(name), name


def test_every_lazy_name_exists():
    for name in (module for module in trees() if imported(module) == {"shapeline.lazy"}):
        package = importlib.import_module(name)
        assert dir(package) == package.__all__
        for public in dir(package):
            assert getattr(package, public) is not None, (name, public)


@pytest.mark.parametrize("name", ["designs", "theory"])
def test_no_framework_below(name):
    """Indirect imports count too."""
    own = {module for module in trees() if room(module) == name}
    below = own.union(*(networkx.descendants(house(), module) for module in own if module in house()))
    for module in below:
        assert not FRAMEWORKS & imported(module), module


def test_modules_that_compute_numbers_do_not_import_the_report():
    """The Python interface imports it for plots, inside functions only; no number depends on it."""
    for name in trees():
        if room(name) not in ("api", "papers", "report"):
            assert not any(room(other) == "report" for other in imported(name)), name


# What a process imports one after the other, each with what it must not have imported by then.
STAGES = {
    "a call from Python": (("api.call",), {"matplotlib", "seaborn", "IPython", "torch"}),
    "a page": (
        ("report.index", "report.sections.evidence", "report.sections.localization", "papers.theory_sections"),
        {"seaborn", "scipy.stats", "matplotlib.pyplot", "papermill", "mistune", "torch"},
    ),
}


def list_planning_modules(root) -> list[str]:
    """The modules that the Snakefile imports while it plans."""
    names = [name for name in trees() if name.startswith("shapeline.workflow.") and name.rpartition(".")[2] in PLANNING]
    common = ast.parse((root / "workflow/rules/common.smk").read_text().partition("CONFIG =")[0])
    return sorted(names) + [node.module for node in common.body if isinstance(node, ast.ImportFrom)]


def test_a_dry_run_a_call_and_a_page_import_no_slow_library(root):
    """A dry run must not pay for arrays' algebra, tables or a framework, nor for what makes the report."""
    heavy = [*FRAMEWORKS, "scipy", "pandas", "sklearn", "pyarrow", "matplotlib", "networkx", "shapeline.report"]
    stages = {"a dry run": (list_planning_modules(root), heavy)}
    stages |= {name: ([f"shapeline.{one}" for one in modules], few) for name, (modules, few) in STAGES.items()}
    code = "import sys\n"
    for name, (modules, few) in stages.items():
        code += f"import {', '.join(modules)}\nprint({name!r}, *set({[*few]}) & set(sys.modules))\n"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [*stages]


def test_quantiles_come_from_scipy_special():
    """Importing scipy.stats takes half a second, in every job with standard errors."""
    for name in trees():
        for node in nodes(name):
            if isinstance(node, ast.Import | ast.ImportFrom):
                start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                assert not any(f"{start}{alias.name}.".startswith("scipy.stats.") for alias in node.names), name


@cache
def functions() -> dict[str, tuple[int, int]]:
    """Lines and parameters of every function, by module.function; the larger where a module has two of one name."""
    sizes = {}
    for name in trees():
        for node in nodes(name):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                counted = sum(argument.arg not in ("self", "cls") for argument in given)
                path = f"{name.removeprefix('shapeline.')}.{node.name}"
                # The described parameters of a public function are no length of its code.
                described = "Parameters\n---" in (ast.get_docstring(node) or "")
                first = node.body[1].lineno if described else node.lineno
                lines = node.end_lineno - first + 1
                sizes[path] = max(lines, sizes.get(path, (0, 0))[0]), max(counted, sizes.get(path, (0, 0))[1])
    return sizes


def test_functions_are_short():
    long = {name for name, (lines, _) in functions().items() if lines > MOST_LINES}
    assert not long, f"cut these: {sorted(long)}"


def test_functions_have_few_parameters():
    wide = {name for name, (_, parameters) in functions().items() if parameters > MOST_PARAMETERS} - PUBLIC
    assert not wide, f"give these fewer: {sorted(wide)}"


def test_scripts_are_short(root):
    lines = {path.name: len(path.read_text().splitlines()) for path in (root / "workflow/scripts").glob("*.py")}
    assert lines and max(lines.values()) <= MOST_OF_A_SCRIPT, (
        f"move what is more than its steps to the package: {lines}"
    )

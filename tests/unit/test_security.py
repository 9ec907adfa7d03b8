"""No file is unpickled, no archive escapes, no name of the configuration leaves the repository."""

import ast
import io
import tarfile
import zipfile

import pytest

from shapeline.config import validation
from shapeline.datasets import archive
from shapeline.errors import ShapelineError

LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def code(root):
    """Every file of Python that the workflow runs, parsed."""
    files = [*(root / "workflow").rglob("*.py"), *(root / "benchmarks").glob("*.py"), *(root / "tools").glob("*.py")]
    assert len(files) > 50
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            yield f"{file.relative_to(root)}:{getattr(node, 'lineno', 0)}", node


def refused(node: ast.AST) -> str | None:
    """Return the problem of a call that could run content of a file; None without one."""
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func)
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if name.split(".")[0] in LOADERS or name.endswith(("read_pickle", "unsafe_load", "full_load")):
        return f"{name} unpickles"
    if name == "torch.load" and given.get("weights_only") != "True":
        return "torch.load without weights_only=True"
    if given.get("allow_pickle", "False") != "False":
        return f"{name} with allow_pickle"
    if name == "yaml.load":
        return "yaml.load; use yaml.safe_load"
    if name.endswith("load_model") and given.get("safe_mode", "True") != "True":
        return f"{name} without safe_mode"
    if name.endswith((".extractall", ".unpack_archive")):
        return f"{name} writes where an archive says"
    if name in ("eval", "exec") or given.get("shell") == "True":
        return f"{name} runs text"
    return None


def test_no_content_of_a_file_is_unpickled_or_run(root):
    found = [(where.partition(":")[0], problem) for where, node in code(root) if (problem := refused(node))]
    # Its cells are those of the workflow's notebooks, none of a result.
    assert found == [("workflow/shapeline/report/rendering.py", f"{name} runs text") for name in ("exec", "eval")]


@pytest.mark.parametrize(
    "text",
    [
        "pickle.load(f)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "pd.read_pickle(path)",
        "yaml.load(f, yaml.Loader)",
        "archive.extractall(folder)",
        "subprocess.run(line, shell=True)",
        "eval(text)",
    ],
)
def test_the_search_finds_what_it_looks_for(text):
    assert refused(ast.parse(text).body[0].value)


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/outside.txt", "a/../../outside.txt"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_with_a_path_that_leaves_it_is_refused(tmp_path, kind, name):
    path = tmp_path / "a.tar.gz"
    if kind == "tar":
        with tarfile.open(path, "w:gz") as stored:
            member = tarfile.TarInfo(name)
            member.size = 4
            stored.addfile(member, io.BytesIO(b"text"))
    else:
        with zipfile.ZipFile(path, "w") as stored:
            stored.writestr(name, b"text")
    with pytest.raises(ShapelineError, match="outside"), archive.open_files(path, lambda member: True) as members:
        list(members)


@pytest.mark.parametrize("name", ["../up", "a/b", "a b", "a{b}", "/absolute", "..", "a.b", "a;rm", "a@b"])
@pytest.mark.parametrize("section", ["datasets", "models", "experiments", "methods"])
def test_a_name_that_could_be_a_path_is_refused(default, section, name):
    entries = default["experiments"]["digits"]["methods"] if section == "methods" else default[section]
    entries[name] = next(iter(entries.values()))
    where = f"experiments.digits.methods.{name}" if section == "methods" else f"{section}.{name}"
    with pytest.raises(ShapelineError) as failure:
        validation.load(default)
    assert (
        f"{where}: not a valid name; write a letter, then letters, digits and underscores"
        in str(failure.value).splitlines()
    )


def test_a_notebook_is_one_of_ours(default):
    default["experiments"]["digits"]["report"] = {"notebook": "../../elsewhere"}
    with pytest.raises(ShapelineError, match=r"experiments.digits.report.notebook: unknown value"):
        validation.load(default)


@pytest.mark.parametrize(
    "folder", ["/tmp/x", "../x", "a/../../x", "~/x", ".", "data", "workflow/x", "a b", "a{b}", "-x"]
)
def test_results_stay_inside_the_repository(default, folder):
    with pytest.raises(ShapelineError) as failure:
        validation.load({**default, "results": folder})
    (line,) = str(failure.value).splitlines()
    assert line.startswith(
        f"results: '{folder}' is not a folder of its own inside the repository; give a relative path"
    )


@pytest.mark.parametrize("folder", ["results", "runs/first", "out-2.x"])
def test_any_folder_of_its_own_holds_results(default, folder):
    assert validation.load({**default, "results": folder}).results == folder


def test_foreign_code_is_named_as_file_and_function(default):
    default["models"]["digits_cnn"] = {"dataset": "digits38", "source": "os:system"}
    with pytest.raises(ShapelineError, match=r"models.digits_cnn.source"):
        validation.load(default)

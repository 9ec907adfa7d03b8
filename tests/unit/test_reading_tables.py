"""CSV files of users: separators, missing headers, spaces, words for missing cells; and the remedies."""

import decimal
import gzip

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import shapeline
from shapeline.config import derived, validation
from shapeline.datasets import checks, csv_file, loading, preparation, table_file, tokenizer
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.methods import external
from shapeline.workflow import init_config
from shapeline.workflow import jobs as job_settings
from tests.unit import games

# As the UCI repository has its census: no header, spaces after commas, question marks.
CENSUS = "39, State-gov, 77516, <=50K\n50, ?, 83311, >50K\n38, Private, ?, <=50K \n\n28, Private, 338409, >50K\n" * 5
NAMES = ["age", "work", "weight", "income"]
FORM = {"header": NAMES, "na_values": ["?"], "trim": True}


@pytest.fixture
def prepared(tmp_path):
    """prepare(content, entry) -> the dataset of a CSV file of that content."""

    def prepare(content: str | bytes, **entry) -> loading.Dataset:
        file = tmp_path / "own.csv"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        settings = {"source": "table_file", "path": str(file), "target": "y", **entry}
        entry = checks.read_entry("table_file", settings)  # the configuration sees what the job sees
        seen = checks.find_columns(entry)
        preparation.prepare("table_file", settings, [], tmp_path / "data")
        data = loading.load(tmp_path / "data")
        assert data.card["feature_names"] == list(seen)
        return data

    return prepare


def test_a_census_without_header_with_spaces_and_question_marks(prepared):
    data = prepared(CENSUS, target="income", **FORM)
    assert data.card["feature_names"] == NAMES[:3] and data.card["classes"] == ["<=50K", ">50K"]
    assert data.card["categories"] == {"work": ["Private", "State-gov"]}
    assert data.card["missing"] == {"work": 5, "weight": 5}
    np.testing.assert_array_equal(data.inputs[:4, 0], [39, 50, 38, 28])
    np.testing.assert_array_equal(data.inputs[:4, 2], np.array([77516, 83311, np.nan, 338409], np.float32))
    np.testing.assert_array_equal(data.labels[:4], [0, 1, 0, 1])


ROWS = [(1.5, "a", "no"), (2.5, "é", "yes"), (-999, "c", "no"), (4.5, "a", "yes")] * 5


def written(separator: str = ",", header: str | None = None, encoding: str = "utf-8") -> bytes:
    lines = [separator.join(("x", "kind", "y")) if header is None else header]
    lines += [separator.join(map(str, row)) for row in ROWS]
    return ("\n".join(line for line in lines if line) + "\n").encode(encoding)


@pytest.mark.parametrize(
    ("content", "entry"),
    [
        (written(), {}),
        (written(";"), {"separator": ";"}),
        (written("\t"), {"separator": "tab"}),
        (written("\t"), {"separator": "\t"}),
        (written("   "), {"separator": "spaces"}),
        (b"  " + written("  ").replace(b"\n", b" \n\t"), {"separator": "spaces"}),
        (written(" | "), {"separator": "|", "trim": True}),
        (b"made by a machine;,\nin 2020\n" + written(), {"header": 2}),
        (b"one line\n" + written(), {"header": 1}),
        (b"\n  \n" + written(), {}),
        (written(header=""), {"header": ["x", "kind", "y"]}),
        (written(encoding="cp1252"), {"encoding": "cp1252"}),
        (written(encoding="utf-16"), {"encoding": "utf-16"}),
        (written(encoding="utf-8-sig"), {}),
        (written(encoding="utf-8-sig"), {"trim": True}),
        (written(" ; ", encoding="latin-1"), {"separator": ";", "trim": True, "encoding": "latin-1"}),
        (written().replace(b"\n", b"\r\n"), {"trim": True}),
        (written().replace(b"\n", b"\r"), {}),
    ],
)
def test_a_file_is_the_same_however_it_is_written(prepared, content, entry):
    data = prepared(content, na_values=[-999], **entry)
    assert data.card["feature_names"] == ["x", "kind"] and data.card["categories"] == {"kind": ["a", "c", "é"]}
    np.testing.assert_array_equal(data.inputs[:4, 0], np.array([1.5, 2.5, np.nan, 4.5], np.float32))
    np.testing.assert_array_equal(data.labels[:4], [0, 1, 0, 1])
    assert len(data.labels) == len(ROWS)


def test_init_sees_a_file_without_header(tmp_path):
    file = tmp_path / "own.csv"
    for first, header in (("1.5,2,no", False), ("400.5,401.5,kind", True), ("a,b,no", True)):
        file.write_text(f"{first}\n" + "0.5,3,yes\n2.5,1,no\n" * 9)
        assert csv_file.detect(file)[0].header is header


def test_columns_without_header_are_called_by_number(prepared):
    data = prepared(written(header=""), header=False, target="2", columns=["1", "0"])
    assert data.card["feature_names"] == ["1", "0"]


def test_what_is_read_without_keys_is_what_pandas_reads(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text(',x,"a ""b""",\n0,1,"two\nlines",NA\n1,,c,\n\n2,3,d,4\n')
    pd.testing.assert_frame_equal(table_file.frame(file), pd.read_csv(file))
    assert table_file.header(file) == ["Unnamed: 0", "x", 'a "b"', "Unnamed: 3"] == list(table_file.frame(file))


def test_a_separator_at_the_end_of_each_row_moves_no_column(prepared):
    """By default pandas reads the first cell as the row's name and shifts the others one column to the left."""
    data = prepared("x,y\n" + "1,0,\n2,1,\n" * 9)
    np.testing.assert_array_equal(data.inputs[:2, 0], [1, 2])
    np.testing.assert_array_equal(data.labels[:2], [0, 1])


@pytest.mark.parametrize("trim", [False, True])
def test_a_column_named_twice_is_refused(prepared, trim):
    """pandas calls the second one y.1, which gave the target to the model as a feature."""
    entry = {"trim": True} if trim else {}
    content = "y,a, y\n0,1,0\n1,2,1\n" * 9 if trim else "y,a,y\n0,1,0\n1,2,1\n" * 9
    with pytest.raises(ShapelineError) as failure:
        prepared(content, **entry)
    assert "own.csv, header: the name 'y' occurs twice or more (columns 1 and 3); rename all but one." in str(
        failure.value
    )


@pytest.mark.parametrize("other", ["y ", "\ty", "y\u00a0", "\ufeffy", "y\u200b"])
def test_names_that_look_the_same_are_refused(prepared, other):
    """The copy of the target under such a name was a feature, with all of the score."""
    with pytest.raises(ShapelineError, match=r"'y' occurs twice or more \(columns 1 and 3, but for spaces or"):
        prepared(f"y,a,{other},b\n" + "0,1,0,1\n1,2,1,1\n" * 9)


def test_a_mark_at_the_beginning_and_capitals_are_other_names(prepared):
    assert prepared("\ufeffy,a,A\n" + "0,1,0\n1,2,1\n" * 9).inputs.shape == (18, 2)


def test_a_column_named_twice_is_refused_before_any_job(default, tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("y,a,y,a\n0,1,0,1\n")
    default["datasets"]["own"] = {"source": "table_file", "path": str(file), "target": "y"}
    with pytest.raises(ShapelineError) as failure:
        validation.load(default)
    assert "header: the name 'y' occurs twice or more (columns 1 and 3), and 'a' too; rename all but one" in str(
        failure.value
    )


def test_a_parquet_file_with_a_column_twice_is_refused(tmp_path):
    import pyarrow
    import pyarrow.parquet

    file = tmp_path / "own.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array([1, 2])] * 3, ["y", "a", "y"]), file)
    for read in (table_file.header, table_file.frame):
        with pytest.raises(ShapelineError, match=r"the name 'y' occurs twice or more \(columns 1 and 3\)"):
            read(file)


@pytest.mark.parametrize(
    ("content", "entry", "said"),
    [
        (written(";"), {}, "its first line is one cell, so set separator: ';'."),
        (written("\t"), {}, "its first line is one cell, so set separator: 'tab'."),
        (written(" "), {}, "its first line is one cell, so set separator: 'spaces'."),
        (b"first name,age x,last group\n" + b"1,2,a\n" * 30, {"separator": ";"}, "set separator: ','."),
        (written(header=""), {}, "looks like data, so set header: false, or header: [names]"),
        (b" " + written().replace(b",y", b", y"), {}, "there are spaces around that name, so set trim: true"),
        (written(encoding="cp1252"), {}, "is not written in utf-8, byte 22; set encoding: cp1252"),
        (written(), {"encoding": "utf-16"}, "is not written in utf-16"),
        (b"made,in\n2020,1\n" + written(), {"target": "in"}, "line 3: 3 cells, and the lines above have 2; set sep"),
        (
            written().replace(b"no\n", b"no \n", 1),
            {},
            "the classes 'no' and 'no ', which differ in spaces alone; set trim",
        ),
        ("x,y\n1,\u00e9\n2,e\u0301\n".encode(), {}, "which look the same; rename one"),
        (written().replace(b"-999", b"?"), {}, "set na_values: ['?'] if they stand for missing cells, or list"),
        (written().replace(b"no", b"?"), {"target": "x", "task": "regression", "columns": ["kind"]}, None),
        (written().replace(b"-999", b"?"), {"target": "x", "task": "regression"}, "('?', first in row 2, from 0)"),
        (b"x,y\n1,2,3\n4,5,6\n", {}, "rows have more cells than its header has names, 2; name every column"),
        (b"x,y\n2,3,4,5\n4,5,6,7\n", {}, "rows have more cells than its header has names, 2; name every column"),
        (written(), {"header": ["x", "y"]}, "'header': 2 name(s), and the first line of"),
        (written(), {"header": ["x", "y", "x"]}, "'header': the name 'x' occurs twice or more (columns 1 and 3)"),
        (written(), {"header": 500}, "holds no line below 500 line(s)"),
        (b"", {}, "own.csv: holds no line; it is not a table"),
        (b'x,y\n1,"2\n', {}, "a quote is opened and never closed"),
        (gzip.compress(written()), {}, "own.csv: is an archive or a workbook, no text; unpack it"),
        ("x,y\n\u22121.5,a\n2.5,b\n".encode(), {}, "such as '\u22121.5', whose minus is the sign U+2212; write '-'"),
        pytest.param(
            b"x,y\n36893488147419103233,a\n36893488147419103299,b\n",
            {},
            "holds whole numbers of more than 64 bits; leave",
            marks=pytest.mark.skipif(pd.__version__ < "2.3", reason="pandas 2.2 reads them as texts"),
        ),
        (b"x," * 3_000_000, {}, "a line of more than 4,194,304 characters; it is not a table"),
        (written(), {"separator": "::"}, "'separator': '::' is not a separator; give one character, or tab or spaces"),
        (written(), {"separator": '"'}, "'separator'"),
        (written(), {"encoding": "latin"}, None),
        (written(), {"encoding": "utf8000"}, "'encoding': 'utf8000' is unknown."),
        (written(), {"encoding": "rot13"}, "'encoding': 'rot13' is unknown."),
        (written(), {"header": -1}, "'header': -1 is not valid; input should be greater than or equal to 0"),
        (written(), {"header": [1]}, "'header': 1 is not valid; give a text"),
        (written(), {"na_values": "?"}, "'na_values': '?' is not valid; give a list"),
        (written(), {"trim": 1}, "'trim': 1 is not valid; give true or false"),
        (written(), {"decimal": ";"}, "'decimal': unknown value ';'."),
        (written(), {"thousands": "x"}, "'thousands': 'x' is not a thousands separator"),
        (written(), {"thousands": "."}, "'thousands': '.' is the sign of decimals too"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_what_is_wrong_names_the_key_that_mends_it(prepared, content, entry, said):
    if said is None:
        prepared(content, **entry)
        return
    with pytest.raises(ShapelineError) as failure:
        prepared(content, **entry)
    assert said in str(failure.value) and "\n" not in str(failure.value), str(failure.value)


# ---------------------------------------------------------------------------------------- decimals and thousands

NUMBERS = [0.5, 1234.25, -12.75, 1234567.5, 3.0, 1000.0]
WRITTEN = {  # (decimal, thousands): the numbers as people write them
    (",", None): ["0,5", "1234,25", "-12,75", "1234567,5", "3", "1000,0"],
    (",", "."): ["0,5", "1.234,25", "-12,75", "1.234.567,5", "3", "1.000"],
    (".", ","): ["0.5", "1,234.25", "-12.75", "1,234,567.5", "3", "1,000"],
    (",", " "): ["0,5", "1 234,25", "-12,75", "1 234 567,5", "3", "1 000"],
    (",", "\u00a0"): ["0,5", "1\u00a0234,25", "-12,75", "1\u00a0234\u00a0567,5", "3", "1\u00a0000"],
    (",", "\u202f"): ["0,5", "1\u202f234,25", "-12,75", "1\u202f234\u202f567,5", "3", "1\u202f000"],
    (".", "'"): ["0.5", "1'234.25", "-12.75", "1'234'567.5", "3", "1'000"],
    (".", "\u2019"): ["0.5", "1\u2019234.25", "-12.75", "1\u2019234\u2019567.5", "3", "1\u2019000"],
}


def european(style, separator: str, missing: str = "") -> str:
    rows = [*WRITTEN[style], missing] * 5
    cells = [f'"{cell}"' if separator in cell else cell for cell in rows]
    return f"x{separator}y\n" + "".join(f"{cell}{separator}{'ab'[i % 2]}\n" for i, cell in enumerate(cells))


@pytest.mark.parametrize("separator", [";", ",", "\t"])
@pytest.mark.parametrize("style", WRITTEN)
def test_numbers_are_read_as_they_are_written(prepared, tmp_path, style, separator):
    entry = {"separator": separator} | {k: v for k, v in zip(("decimal", "thousands"), style, strict=True) if v}
    for more in ({}, {"trim": True}):
        data = prepared(european(style, separator), **entry, **more)
        np.testing.assert_array_equal(data.inputs[:7, 0], np.array([*NUMBERS, np.nan], np.float32))
    form, _ = csv_file.detect(tmp_path / "own.csv")
    assert (form.delimiter, form.decimal, form.thousands) == (separator, *style)


@pytest.mark.parametrize("separator", [";", ","])
@pytest.mark.parametrize("style", WRITTEN)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_numbers_that_are_written_otherwise_are_refused_with_the_keys(prepared, style, separator, task):
    entry = {"separator": separator}
    if task == "regression":
        entry |= {"task": task, "target": "x", "columns": ["y"]}
    with pytest.raises(ShapelineError) as failure:
        prepared(european(style, separator), **entry)
    told = str(failure.value)
    assert "own.csv, column 'x': holds numbers such as" in told and "\n" not in told
    for key, sign in zip(("decimal", "thousands"), style, strict=True):
        assert sign == "." or sign is None or f"{key}: {sign!r}" in told, told


def test_keys_that_would_make_other_numbers_are_refused(prepared):
    """With thousands: '.' pandas reads 0.5 as 5."""
    for content, entry in (
        ("x;y\n" + "0.5;a\n1.5;b\n" * 9, {"decimal": ",", "thousands": "."}),
        ("x;y\n" + "2,5;a\n3,25;b\n" * 9, {"thousands": ","}),
        ("x;y\n" + "1.234;a\n1.2.3;b\n0.5;b\n" * 9, {"decimal": ",", "thousands": "."}),
    ):
        with pytest.raises(ShapelineError, match="does not precede three digits; correct the keys"):
            prepared(content, separator=";", **entry)
    with pytest.raises(
        ShapelineError, match=r"such as '0\.5'; the file's key is decimal: ',': replace it by decimal: '\.', or"
    ):
        prepared("x;y\n" + "0.5;a\n1.5;b\n" * 9, separator=";", decimal=",")


def test_a_decimal_comma_beside_words_and_what_is_no_number(prepared):
    content = "x;day;net;y\n" + "1,5;01.02.2020;1.2.3;a\nk.A.;02.02.2020;1.2.4;b\n2,5;03.02.2020;2.0.1;a\n" * 6
    with pytest.raises(ShapelineError, match=r"such as '1,5'; set decimal: ',' for the file"):
        prepared(content, separator=";")
    with pytest.raises(ShapelineError, match=r"12 numbers and 6 texts \('k.A.', first in row 1, from 0\); set na_val"):
        prepared(content, separator=";", decimal=",")
    data = prepared(content, separator=";", decimal=",", na_values=["k.A."])
    np.testing.assert_array_equal(data.inputs[:3, 0], np.array([1.5, np.nan, 2.5], np.float32))
    assert list(data.card["categories"]) == ["day", "net"]
    thousands = prepared(content, separator=";", decimal=",", thousands=".", na_values=["k.A."])
    assert thousands.card["categories"] == data.card["categories"]
    assert prepared(content, separator=";", categorical=["x"]).card["categories"]["x"] == ["1,5", "2,5", "k.A."]


# -------------------------------------------------------------------------------- words that pandas takes for missing


@pytest.mark.parametrize("word", ["None", "NA", "null", "nan", "NULL", "N/A", "n/a", "<NA>", "#N/A", "NaN"])
@pytest.mark.parametrize("more", [{}, {"trim": True}, {"separator": "tab"}])
def test_a_word_is_missing_among_numbers_and_a_value_among_texts(prepared, word, more):
    rows = [("1.5", "mild", "low"), (word, word, word), ("", "", "high"), ("4", "bad", "low")] * 4
    content = "x,kind,y\n" + "".join(",".join(row) + "\n" for row in rows)
    content = content.replace(",", "\t") if "separator" in more else content
    data = prepared(content, **more)
    np.testing.assert_array_equal(data.inputs[:4, 0], np.array([1.5, np.nan, np.nan, 4], np.float32))
    assert data.card["classes"] == sorted(["high", "low", word])
    assert data.card["categories"] == {"kind": sorted(["bad", "mild", word])}
    assert data.card["missing"] == {"x": 8, "kind": 4}  # an empty cell is missing everywhere
    assert any(f"({'na_values makes them so'}): {word!r} in kind" in note for note in data.card["notes"])
    with pytest.raises(ShapelineError, match=r"'y' is missing in 4 row\(s\), first in row 1"):
        prepared(content, **more, na_values=[word])
    filled = content.replace("\t" if "separator" in more else ",", "|").replace(f"|{word}\n", "|low\n")
    data = prepared(filled, **more | {"separator": "|"}, na_values=[word])
    assert data.card["missing"] == {"x": 8, "kind": 8} and not any("words" in note for note in data.card["notes"])


def test_classes_of_nothing_but_such_words(prepared):
    data = prepared("x,y\n" + "1,None\n2,NA\n" * 9)
    assert data.card["classes"] == ["NA", "None"]
    np.testing.assert_array_equal(data.labels[:2], [1, 0])


def test_a_word_among_numbered_classes_is_named(prepared):
    with pytest.raises(ShapelineError, match=r"'y' is missing in 9 row\(s\), first in row 1 .*, as 'None' among"):
        prepared("x,y\n" + "1,1\n2,None\n3,2\n" * 9)


def test_a_word_in_a_column_that_is_otherwise_numeric_is_missing(prepared):
    """Also if a custom word makes its cells texts."""
    content = "x,y\n" + "4,a\n?,b\nNA,a\n5,b\n" * 9
    with pytest.raises(ShapelineError, match=r"18 numbers and 9 texts \('\?', first in row 1, from 0\); set na_values"):
        prepared(content)
    data = prepared(content, na_values=["?"])
    np.testing.assert_array_equal(data.inputs[:4, 0], np.array([4, np.nan, np.nan, 5], np.float32))
    data = prepared(content.replace("4", '"4,5"').replace("?", "1"), decimal=",")
    np.testing.assert_array_equal(data.inputs[:4, 0], np.array([4.5, 1, np.nan, 5], np.float32))


def test_a_column_of_missing_cells_alone_stays_so(prepared):
    with pytest.raises(ShapelineError, match="column 'x': is missing in every row"):
        prepared("x,z,y\n" + "NA,1,a\nNA,2,b\n" * 9)


# ------------------------------------------------------------------------------------------------ digits as texts


@pytest.mark.parametrize("codes", [["02116", "90210", "10001"], ["1.5", "2.5", "0.5"], ["1,5", "2,5", "3"], ["7"] * 3])
@pytest.mark.parametrize("dtype", ["str", "object", "string", "category", "arrow", "large"])
def test_digits_that_are_texts_in_parquet_are_categories(tmp_path, codes, dtype):
    import pyarrow as pa
    import pyarrow.parquet

    kind = {"arrow": pa.string(), "large": pa.large_string()}.get(dtype)
    zips = pd.Series([*codes, None] * 9, dtype=pd.ArrowDtype(kind) if kind else dtype)
    table = pd.DataFrame({"age": np.arange(36), "zip": zips, "y": ["1", "02", "02", "1"] * 9})
    table.to_parquet(tmp_path / "own.parquet")
    entry = {"path": str(tmp_path / "own.parquet"), "target": "y"}
    for more in ({}, {"categorical": ["zip"]}):
        card = preparation.prepare("table_file", entry | more, [], tmp_path / "data")
        assert card["categories"] == {"zip": sorted(set(codes))} and card["classes"] == ["02", "1"]
        assert card["missing"] == {"zip": 9}


def test_decimals_in_parquet_are_numbers(tmp_path):
    prices = [decimal.Decimal("1.50"), None, decimal.Decimal("20.25"), decimal.Decimal("3.00")] * 9
    pd.DataFrame({"price": prices, "y": ["a", "b", "b", "a"] * 9}).to_parquet(tmp_path / "own.parquet")
    entry = {"path": str(tmp_path / "own.parquet"), "target": "y"}
    card = preparation.prepare("table_file", entry, [], tmp_path / "data")
    assert "categories" not in card and card["missing"] == {"price": 9}


def test_numbers_with_texts_among_them_may_be_categories(prepared):
    content = "x,y\n" + "1,a\n2,b\n?,a\n4,b\n" * 5
    data = prepared(content, categorical=["x"])
    assert data.card["categories"] == {"x": ["1", "2", "4", "?"]}


def test_a_parquet_file_is_written_in_one_way(tmp_path):
    file = tmp_path / "own.parquet"
    pd.DataFrame({"x": [1], "y": [2]}).to_parquet(file)
    with pytest.raises(
        ShapelineError, match=r"'separator': is of CSV files, and .*own.parquet is none; remove the key"
    ):
        checks.read_entry("table_file", {"path": str(file), "target": "y", "separator": ";"})


def test_documents_however_they_are_written(tmp_path):
    file = tmp_path / "own.csv"
    file.write_bytes("good food; 1\nsch\u00f6n ;0\n".encode("cp1252") * 9)
    form = {"separator": ";", "encoding": "cp1252", "header": ["said", "stars"], "trim": True}
    entry = {"source": "text_file", "path": str(file), "text": "said", "target": "stars", **form}
    checks.read_entry("text_file", entry)
    card = preparation.prepare("text_file", entry, [], tmp_path / "data")
    assert card["classes"] == ["0", "1"] and tokenizer.read_documents(tmp_path / "data", [1]) == ["sch\u00f6n"]
    with pytest.raises(ShapelineError, match="set separator: ';'"):
        checks.read_entry("text_file", {**entry, "separator": ","} | {"header": True})


def test_keys_that_say_the_usual_are_no_other_setting(default, root, monkeypatch):
    """Otherwise a new key would re-run earlier jobs."""
    monkeypatch.chdir(root)
    entry = {"source": "table_file", "path": "examples/own/loans.csv", "target": "granted"}
    usual = {"separator": ",", "encoding": "utf-8", "trim": False, "header": None, "na_values": None, "limits": None}
    default["datasets"] |= {"one": entry, "two": entry | usual, "three": entry | {"header": 1, "target": "36"}}
    default["datasets"]["three"]["target"] = next(
        iter(csv_file.header(root / entry["path"], csv_file.CsvFormat(header=1)))
    )
    loaded = validation.load(default)
    one, two, three = (job_settings.prepare_settings(loaded, name) for name in ("one", "two", "three"))
    assert one == two == derived.canonical({**entry, "seed": 0}) and three["header"] == 1


def test_other_sources_take_no_such_keys():
    with pytest.raises(ShapelineError, match="dataset key 'separator': source 'digits' does not take it"):
        checks.read_entry("digits", {"source": "digits", "separator": ";"})


def test_a_layout_is_an_option_of_python_too():
    assert checks.read_format(checks.Dataset(source="table_file")) == csv_file.PLAIN
    written = checks.Dataset(source="table_file", header=["a"], na_values=["?"])
    assert checks.read_format(written) == csv_file.CsvFormat(header=("a",), na_values=("?",))


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("seconds", '0".01', "column 'seconds' holds no numbers"),
        ("evaluations", "inf", "'evaluations' holds inf; count"),
    ],
)
def test_columns_beside_scores_are_numbers(tmp_path, column, cell, said):
    file = tmp_path / "scores.csv"
    file.write_text(f"instance,a,b,{column}\n0,1,2,{cell}\n")
    own = Features("column", (2,), np.arange(2, dtype=np.int32), ("a", "b"))
    with pytest.raises(ShapelineError) as failure:
        external.read(np.ones(1, int), [0], own, str(file))
    assert said in str(failure.value)


@pytest.mark.parametrize("parquet", [False, True])
def test_digits_and_words_reach_a_pipeline_of_python_as_they_are(tmp_path, parquet):
    """Against brute force over the background, by the pipeline itself."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=60),
            "zip": rng.choice(["02116", "90210"], 60),
            "word": rng.choice(["None", "NA", "null"], 60),
        }
    )
    if parquet:
        frame.to_parquet(tmp_path / "own.parquet")
        frame = pd.read_parquet(tmp_path / "own.parquet")
    classes = np.where(frame["zip"] == "02116", "None", np.where(frame["word"] == "NA", "NA", "null"))
    encoder = make_column_transformer(("passthrough", ["age"]), (OneHotEncoder(), ["zip", "word"]))
    pipeline = make_pipeline(encoder, LogisticRegression()).fit(frame, classes)
    found = shapeline.explain(pipeline, frame[:2], "shapley", background=frame[40:45], target="NA")
    place = list(pipeline.classes_).index("NA")

    def value(kept):
        rows = frame[40:45].copy()
        for column in kept:
            rows[frame.columns[column]] = frame.iloc[0, column]
        return pipeline.predict_proba(rows)[:, place].mean()

    np.testing.assert_allclose(found.scores[0], games.shapley(games.of_sets(value, 3)), atol=1e-6)
    assert found.target_names == ["NA", "NA"]
    true = shapeline.explain(pipeline, frame[:4], "shapley", background=frame[40:45], target="true", y=classes[:4])
    assert true.target_names == classes[:4].tolist()
    labels = pd.Series(classes[:4], frame.index[:4])
    with pytest.raises(ShapelineError, match="the index of y is that of inputs in another order"):
        shapeline.explain(pipeline, frame[:4], background=frame[40:45], target="true", y=labels[::-1])


@pytest.mark.parametrize("missing", ["None", "np.nan", "pd.NA"])
@pytest.mark.parametrize("container", ["list", "pd.Series", "np.array"])
def test_a_missing_label_is_no_class(tmp_path, missing, container):
    if (missing, container) == ("np.nan", "np.array"):
        pytest.skip("numpy has made the word nan of it before anyone else sees it")
    body = f"    return {{'inputs': np.ones((30, 2)), 'labels': {container}(['x', 'None', {missing}] * 10)}}\n"
    (tmp_path / "own.py").write_text("import numpy as np\nimport pandas as pd\n\ndef read():\n" + body)
    with pytest.raises(ShapelineError, match=r"own.py:read: record 2 has no label; leave the record out"):
        preparation.prepare(f"{tmp_path}/own.py:read", {}, [], tmp_path / "data")
    (tmp_path / "own.py").write_text((tmp_path / "own.py").read_text().replace(f", {missing}]", ", 'NA']"))
    assert preparation.prepare(f"{tmp_path}/own.py:read", {}, [], tmp_path / "data")["classes"] == ["NA", "None", "x"]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_class_of_python_is_refused(missing):
    inputs = np.random.default_rng(0).normal(size=(20, 2))
    model = LogisticRegression().fit(inputs, np.where(inputs[:, 0] > 0, "None", "nan"))
    for more in ({"target": "true", "y": ["None", missing]}, {"target": ["nan", missing]}):
        with pytest.raises(ShapelineError, match="has a missing class"):
            shapeline.explain(model, inputs[:2], "shapley", background=inputs, **more)


def test_digits_that_are_texts_are_no_numbers_of_a_function(tmp_path):
    body = "    return {'inputs': pd.DataFrame({'zip': ['02116', '90210'] * 9, 'a': 1.0}), 'labels': [0, 1] * 9}\n"
    (tmp_path / "own.py").write_text("import pandas as pd\n\ndef read():\n" + body)
    with pytest.raises(ShapelineError, match=r"they hold texts; give codes 0, 1, 2, \.\.\. and say in 'categories'"):
        preparation.prepare(f"{tmp_path}/own.py:read", {}, [], tmp_path / "data")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_the_line_about_an_encoding_names_the_right_one(prepared, encoding):
    content = ("x,y\n" + "1.5,ä\n2.5,b\n" * 9).encode(encoding)
    with pytest.raises(ShapelineError, match=f"is not written in utf-8.*; set encoding: {encoding}, or its own"):
        prepared(content)
    assert prepared(content, encoding=encoding).card["classes"] == ["b", "ä"]


@pytest.mark.parametrize("suffix", [".tsv", ".TSV", ".CSV"])
def test_a_file_of_tabs_and_capitals_in_its_ending(tmp_path, suffix):
    file = tmp_path / f"own{suffix}"
    file.write_text("w\tx\ty\n" + "1.5\t2\ta\n2.5\t4\tb\n" * 15)
    assert 'separator: "tab"' in init_config.build_configuration(file)
    settings = {"source": "table_file", "path": str(file), "target": "y"}
    with pytest.raises(ShapelineError, match="set separator: 'tab'"):
        preparation.prepare("table_file", settings, [], tmp_path / "data")
    preparation.prepare("table_file", settings | {"separator": "tab"}, [], tmp_path / "data")
    assert loading.load(tmp_path / "data").card["feature_names"] == ["w", "x"]


@pytest.mark.parametrize("index", [["b"], ["b", "c"], []])
def test_the_index_of_a_parquet_file_is_named_where_it_is_not_read(tmp_path, index):
    table = pd.DataFrame({"a": range(40), "b": [3, 5] * 20, "c": [*"xyxx"] * 10, "y": [*"pqqp"] * 10}).assign(
        e=[*"uv"] * 20
    )
    file = tmp_path / "own.parquet"
    (table.set_index(index) if index else table.rename_axis(index="b2")).to_parquet(file)
    index = index or ["b2"]
    settings = {"source": "table_file", "path": str(file), "target": "y"}
    preparation.prepare("table_file", settings, [], tmp_path / "data")
    card = loading.load(tmp_path / "data").card
    assert card["feature_names"] == [name for name in ("a", "b", "c", "e") if name not in index]
    assert any(
        note.startswith(f"not read, as it is the index of the file: {', '.join(index)}") for note in card["notes"]
    )
    assert f"# not read, as it is the index of the file: {index!r}".replace(
        "'", '"'
    ) in init_config.build_configuration(file)
    with pytest.raises(
        ShapelineError, match=f"'{index[0]}' is the index of the data frame in .*; write .* reset_index"
    ):
        checks.read_entry("table_file", settings | {"columns": [index[0]]})


def test_init_names_the_other_reading_of_numbers_and_refuses_a_missing_text(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("w;x;y\n" + "1;1,234;a\n2;2,345;b\n" * 20)
    text = init_config.build_configuration(file)
    assert 'decimal: ","\n' in text and "# numbers such as 1,234 are guessed; or write thousands: ','" in text
    file.write_text("w;x;y\n" + "1;1,2;a\n2;2,34;b\n" * 20)
    assert "are guessed; or write" not in init_config.build_configuration(file)
    file.write_text("text,y\n" + "a text of some words,a\n,b\n" * 20)
    with pytest.raises(ShapelineError, match=r"'text' is empty in 20 row\(s\), first in row 1"):
        init_config.build_configuration(file)


def test_lists_and_structures_of_a_parquet_file_reach_a_function(tmp_path):
    table = pd.DataFrame({"a": [[1, 2], [3]] * 20, "b": [{"k": 1}, {"k": 2}] * 20, "y": [*"pqqp"] * 10})
    table.to_parquet(tmp_path / "own.parquet")
    settings = {"source": "table_file", "path": str(tmp_path / "own.parquet"), "target": "y"}
    preparation.prepare("table_file", settings, [], tmp_path / "data")
    data = loading.load(tmp_path / "data").as_given()
    rows = data.own_rows[0].compose(data.inputs)
    assert [len(each) for each in rows["a"]] == [2, 1] * 20 and [each["k"] for each in rows["b"]] == [1, 2] * 20


@pytest.mark.parametrize(("first", "has_header"), [("0.5,148,33.6", False), ("2019,2020,2021", True), ("a,b,c", True)])
def test_a_first_row_of_numbers_with_a_decimal_is_no_header(tmp_path, first, has_header):
    (tmp_path / "own.csv").write_text(f"{first}\n" + "1.5,85,26.6\n2.5,90,27.1\n" * 15)
    assert csv_file.detect(tmp_path / "own.csv")[0].header is has_header

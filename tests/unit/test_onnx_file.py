"""A model in an .onnx file gives the outputs of its graph, and unsupported graphs are one line."""

import numpy as np
import pytest
from scipy.special import softmax

from shapeline.datasets import tokenizer
from shapeline.errors import ShapelineError
from shapeline.models import architectures, onnx_file, registry

WEIGHTS = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], np.float32)


@pytest.fixture
def file(tmp_path):
    """Write rows @ weights, through the named operators, as a file with these inputs, outputs and shapes."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    def write(
        weights=WEIGHTS, *last, shape=("rows", 2), kind=TensorProto.FLOAT, inputs=1, nodes=(), outputs=(), opset=17
    ):
        given = [helper.make_tensor_value_info(f"x{i}", kind, list(shape)) for i in range(inputs)]
        made = list(nodes) or [helper.make_node("MatMul", ["x0", "w"], ["y0"])]
        made += [helper.make_node(name, [f"y{i}"], [f"y{i + 1}"]) for i, name in enumerate(last) if name != "Rounded"]
        if "Rounded" in last:
            small = numpy_helper.from_array(np.float32(1.2e-7), "small")
            made += [helper.make_node("Constant", [], ["small"], value=small)]
            made += [helper.make_node("Sub", [f"y{len(last) - 1}", "small"], [f"y{len(last)}"])]
        said = [*outputs, helper.make_tensor_value_info(f"y{len(last)}", TensorProto.FLOAT, None)]
        said = outputs if any("Zip" in each.op_type for each in made) else said
        graph = helper.make_graph(made, "g", given, said, [numpy_helper.from_array(np.asarray(weights), "w")])
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        path = tmp_path / "own.onnx"
        onnx.save(model, path)
        return path

    return write


CARD = {
    **{"classes": ["a", "b", "c"], "input_shape": [2], "kind": "table", "feature_names": ["x", "y"], "name": "own"},
    "vocabulary_digest": None,
}


def opened(path, **card):
    return architectures.load_ready({"source": str(path)}, {**CARD, **card})


ROWS = np.array([[0.0, 0.0], [1.0, -2.0], [300.0, 100.0]])


def test_logits_and_probabilities_are_distinguished(file):
    logits = ROWS @ WEIGHTS
    expected = np.exp(logits - logits.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    for last, told in (((), "softmax"), (("Softmax",), "")):
        network = opened(file(WEIGHTS, *last)).module
        assert network.last == told
        np.testing.assert_allclose(network(ROWS), expected, rtol=1e-5, atol=1e-7)
    network = opened(file(WEIGHTS, "Softmax", "Rounded")).module  # below 0, as a forest's 1 - 1.0000001 is
    assert network.last == "" and network(ROWS).min() < 0
    np.testing.assert_allclose(network(ROWS), expected, rtol=1e-5, atol=2e-7)
    assert opened(file()).framework == "function" == registry.FRAMEWORKS[".onnx"]


def test_one_number_is_the_second_of_two_classes_or_a_prediction(file):
    logits = ROWS @ WEIGHTS[:, 0]
    for last in ((), ("Sigmoid",)):
        network = opened(file(WEIGHTS[:, :1], *last), classes=["a", "b"]).module
        np.testing.assert_allclose(network(ROWS), 1 / (1 + np.exp(-logits)), rtol=1e-6)
    network = opened(file(WEIGHTS[:, :1]), classes=[], task="regression").module
    np.testing.assert_allclose(network(ROWS), logits, rtol=1e-6)


def test_images_may_have_their_channels_last(file):
    from onnx import helper

    summed = [helper.make_node("ReduceSum", ["x0", "w"], ["y0"], keepdims=0)]
    path = file(np.array([1, 2]), shape=("rows", 4, 5, 3), nodes=summed)
    network = opened(path, input_shape=[3, 4, 5], kind="image").module
    images = np.random.default_rng(0).random((6, 3, 4, 5))
    np.testing.assert_allclose(network.outputs(images), images.sum((2, 3)), rtol=1e-5)
    summed = [helper.make_node("ReduceSum", ["x0", "w"], ["y0"], keepdims=0)]
    network = opened(
        file(np.array([1]), shape=("rows", 4, 3), nodes=summed), input_shape=[1, 4, 3], kind="image"
    ).module
    series = np.random.default_rng(0).random((6, 1, 4, 3))  # (n, time, channels), as the engine has them
    np.testing.assert_allclose(network.outputs(series), series.sum((1, 2)), rtol=1e-5)


def test_a_weights_file_contains_the_complete_model(file):
    classifier = opened(file())
    again = architectures.restore(
        {
            **{name: getattr(classifier, name) for name in ("architecture", "framework", "sizes", "task")},
            "vocabulary_digest": None,
        },
        architectures.collect_arrays(classifier),
    )
    np.testing.assert_array_equal(again.module(ROWS), classifier.module(ROWS))


def test_the_output_that_fits_the_classes_is_taken(file):
    from onnx import helper

    nodes = [helper.make_node("Identity", ["x0"], ["z"]), helper.make_node("MatMul", ["x0", "w"], ["y0"])]
    path = file(nodes=nodes, outputs=[helper.make_tensor_value_info("z", 1, None)])
    np.testing.assert_allclose(opened(path).module.outputs(ROWS), ROWS @ WEIGHTS, rtol=1e-6)


def test_labels_beside_the_scores_show_another_order_of_the_classes(file):
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("Constant", [], ["names"], value=numpy_helper.from_array(np.array([2, 0, 1]), "names")),
        helper.make_node("MatMul", ["x0", "w"], ["y0"]),
        helper.make_node("ArgMax", ["y0"], ["place"], axis=1, keepdims=0),
        helper.make_node("Gather", ["names", "place"], ["label"]),
    ]
    labels = {"nodes": nodes, "outputs": [helper.make_tensor_value_info("label", 7, ["rows"])]}
    path, expected = file(WEIGHTS, "Softmax", **labels), softmax(ROWS @ WEIGHTS, axis=1)
    for same in (["2", "0", "1"], ["low", "middle", "high"]):
        np.testing.assert_allclose(opened(path, classes=same).module(ROWS), expected, rtol=1e-5, atol=1e-7)
    with pytest.raises(ShapelineError, match="has its class 0 at place 1, and the dataset at 0"):
        opened(path, classes=["0", "1", "2"])
    with pytest.raises(ShapelineError, match="gives labels, and scores outside 0 to 1 that are no probabilities"):
        opened(file(**labels))  # as an SVC's
    stated = architectures.load_ready({"source": str(path), "outputs": "logits"}, CARD)
    np.testing.assert_allclose(stated.module(ROWS), expected, rtol=1e-5, atol=1e-7)


def test_a_dictionary_per_row_is_read_by_its_keys(file):
    """As skl2onnx, onnxmltools and CatBoost write it by default."""
    from onnx import TensorProto, helper

    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    nodes = [
        helper.make_node("MatMul", ["x0", "w"], ["y0"]),
        helper.make_node("Softmax", ["y0"], ["s"]),
        helper.make_node("ZipMap", ["s"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
    ]
    path = file(nodes=nodes, outputs=[helper.make_value_info("z", kind)])
    expected = softmax(ROWS @ WEIGHTS, axis=1)
    for classes, order in ((["2", "0", "1"], [2, 0, 1]), (["a", "b", "c"], [0, 1, 2])):
        np.testing.assert_allclose(opened(path, classes=classes).module(ROWS), expected[:, order], rtol=1e-5, atol=1e-7)
    with pytest.raises(ShapelineError, match=r"numbers its classes, .* write classes: \['a', 'b', 'c'\]"):
        opened(path, classes=["b", "a", "c"], source_classes=["a", "b", "c"])


@pytest.mark.parametrize("shape", [("rows",), ("rows", 1)])
def test_a_file_of_texts_is_given_texts(shape, file):
    """Its outputs are told by words of its own: others give it the same output."""
    from onnx import TensorProto, helper, numpy_helper

    counted = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0]}
    nodes = [
        helper.make_node("Constant", [], ["flat"], value=numpy_helper.from_array(np.array([-1]))),
        helper.make_node("Reshape", ["x0", "flat"], ["x"]),
        helper.make_node("StringSplit", ["x"], ["words", "n"], delimiter=" "),
        helper.make_node(
            *("TfIdfVectorizer", ["words"], ["t"]),
            **{"mode": "TF", "ngram_indexes": [0, 1], "pool_strings": ["good", "bad"]},
            **counted,
        ),
        helper.make_node("MatMul", ["t", "w"], ["y0"]),
    ]
    path = file(WEIGHTS, "Softmax", nodes=nodes, shape=shape, kind=TensorProto.STRING, opset=20)
    texts = ["good good film", "bad", "", "a film"]
    known = {"kind": "text", "input_shape": [64], "vocabulary": [str(byte) for byte in range(257)]}
    rows, _ = tokenizer.pad_documents(tokenizer.tokenize(texts, tokenizer.load_tokenizer("text"), 64))
    model = opened(path, tokenizer="text", **known)
    expected = softmax(np.array([[2, 0], [0, 1], [0, 0], [0, 0]]) @ WEIGHTS, axis=1)
    np.testing.assert_allclose(np.exp(model.log_probs(rows)), expected, rtol=1e-5, atol=1e-7)
    with pytest.raises(
        ShapelineError, match=r"takes tensor\(string\); set the dataset's tokenizer: text, or export it"
    ):
        opened(path, feature_names=[])
    with pytest.raises(
        ShapelineError, match=r"takes tensor\(float\) of shape .*; set the tokenizer whose ids it takes"
    ):
        opened(file(), tokenizer="text", **known)


def test_inputs_of_one_column_are_found_by_name(file):
    from onnx import helper

    nodes = [helper.make_node("Concat", ["x0", "x1"], ["c"], axis=1), helper.make_node("MatMul", ["c", "w"], ["y0"])]
    path = file(nodes=nodes, inputs=2, shape=("rows", 1))
    numbers = [{"name": name, "type": "number"} for name in ("x1", "other", "x0")]
    rows = np.column_stack([ROWS[:, 1], np.full(3, np.nan), ROWS[:, 0]])
    network = opened(path, columns=numbers, input_shape=[3]).module
    np.testing.assert_allclose(network.outputs(rows), ROWS @ WEIGHTS, rtol=1e-6)
    coded = [numbers[0], numbers[1], {"name": "x0", "type": "integer", "values": [3, 7]}]
    network = opened(path, columns=coded, input_shape=[3]).module
    expected = np.column_stack([[3, 7], [5, 5]]) @ WEIGHTS
    np.testing.assert_allclose(network.outputs(np.array([[5.0, 0, 0], [5.0, 0, 1]])), expected, rtol=1e-6)
    for wrong, told in (
        ([numbers[0], {"name": "x0", "type": "text", "values": ["u"]}], "column 'x0' holds categories"),
        (numbers[:2], "has an input x0, which the dataset lacks"),
    ):
        with pytest.raises(ShapelineError, match=told):
            opened(path, columns=wrong)


def test_numbers_that_its_type_lacks_are_refused(file):
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Cast", ["x0"], ["c"], to=1), helper.make_node("MatMul", ["c", "w"], ["y0"])]
    network = opened(file(WEIGHTS, kind=TensorProto.FLOAT16, nodes=nodes)).module
    np.testing.assert_allclose(network.outputs(ROWS), ROWS @ WEIGHTS, rtol=1e-6)
    with pytest.raises(ValueError, match=r"it takes float16, which has no numbers of 1e\+06"):
        network(np.full((1, 2), 1e6))


def test_rows_of_whole_numbers_are_not_cut(file):
    from onnx import helper

    nodes = [helper.make_node("Cast", ["x0"], ["c"], to=1), helper.make_node("MatMul", ["c", "w"], ["y0"])]
    network = opened(file(WEIGHTS[:, :1], kind=7, nodes=nodes), classes=[], task="regression").module
    np.testing.assert_allclose(network(ROWS), ROWS @ WEIGHTS[:, 0], rtol=1e-6)
    for odd in (0.5, np.nan):
        with pytest.raises(ValueError, match=f"it takes whole numbers and not {odd}"):
            network(np.array([[1.0, odd]]))


def test_mismatches_are_one_line(file, tmp_path):
    from onnx import TensorProto, helper

    product = helper.make_node("MatMul", ["x0", "w"], ["y0"])
    two = {
        "nodes": [product, helper.make_node("Neg", ["y0"], ["z"])],
        "outputs": [helper.make_tensor_value_info("z", 1, None)],
        "weights": WEIGHTS[:, :1],
    }
    turned = [helper.make_node("MatMul", ["x0", "w"], ["t"]), helper.make_node("Transpose", ["t"], ["y0"])]
    cases = [
        (file, two, {"classes": ["a", "b"]}, r"several outputs \(z, y0\), of which 2 fit the dataset"),
        (file, two, {}, r"several outputs \(z, y0\), of which none fit the dataset"),
        (file, {"weights": np.float32([[1, -1], [2, -2]])}, {"classes": ["a", "b"]}, "gives a score and its negative"),
        (file, {"nodes": turned}, {}, r"fails on 16 rows: its output has shape \(3, 16\), not an entry per row"),
        (file, {"weights": np.ones((5, 3), np.float32), "shape": ("rows", None)}, {}, "fails on 16 rows: .*MatMul"),
        (file, {"shape": ("rows", 3), "weights": np.ones((3, 3), np.float32)}, {}, r"shape \(3,\).*have \(2,\)"),
        (file, {"shape": (1, 2)}, {}, "batches of 1 alone; export it with a dynamic first dimension"),
        (file, {"inputs": 2}, {}, r"takes 2 inputs \(x0, x1\)"),
        (file, {}, {"classes": ["a", "b"]}, "has 3 classes and the dataset 2"),
        (file, {}, {"task": "regression", "classes": []}, "gives 3 numbers a row"),
        (file, {}, {"columns": [{"name": "sex", "type": "text", "values": ["f"]}]}, "column 'sex' holds categories"),
    ]
    for write, how, card, told in cases:
        with pytest.raises(ShapelineError, match=told):
            opened(write(**how), **card)
    assert TensorProto.FLOAT == 1
    (tmp_path / "own.onnx").write_bytes(b"no graph")
    with pytest.raises(ShapelineError, match="cannot be read as an ONNX file"):
        opened(tmp_path / "own.onnx")


@pytest.mark.parametrize("place", ["weights.bin", "../weights.bin", "{here}/weights.bin"])
def test_weights_in_another_file_are_not_read_wherever_it_is(file, tmp_path, monkeypatch, place):
    """Not from beside the model, nor from the working directory: edits of it would be seen by nobody."""
    import onnx

    WEIGHTS.tofile(tmp_path / "weights.bin")
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside" if place.startswith("..") else tmp_path)
    model = onnx.load(file())
    [tensor] = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": place.format(here=tmp_path), "offset": "0", "length": str(WEIGHTS.nbytes)}.items():
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "own.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ShapelineError, match=r"cannot be read as an ONNX file .*; save its weights inside"):
        opened(tmp_path / "own.onnx")


def test_without_the_runtime_a_line_gives_its_installation(tmp_path, monkeypatch):
    (tmp_path / "own.onnx").write_bytes(b"")
    monkeypatch.setattr(onnx_file, "is_installed", lambda package: False)
    with pytest.raises(ShapelineError, match=r"onnxruntime is not installed; pip install 'shapeline\[torch\]'"):
        opened(tmp_path / "own.onnx")


def test_the_file_states_the_shape_of_its_rows(file):
    path = file(shape=("rows", 2))
    assert onnx_file.read_input(str(path), path.read_bytes()) == ((2,), False)

"""Files of prompts: JSON Lines and CSV, their content, and mistakes in one line."""

import json

import pytest

from shapeline.errors import ShapelineError
from shapeline.generation.prompts import check_parts, read_prompts

FERRY = ["The ferry runs every hour. Tickets cost four crowns.", "The library opened in 1931."]


def written(tmp_path, *lines, name="prompts.jsonl"):
    path = tmp_path / name
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_json_lines_and_csv_have_equal_prompts(tmp_path):
    entry = {"question": "How much, or little?", "context": FERRY, "answer": "Four crowns.", "support": [1]}
    lines = written(tmp_path, entry, "", {**entry, "answer": None, "support": ["Tickets cost four crowns."]})
    first, second = read_prompts(lines)
    assert (first.question, first.context, first.answer, first.support) == (*[*entry.values()][:3], (1,))
    assert second.answer is None and second.where.endswith("prompts.jsonl, line 3")
    parts = ["The ferry runs every hour.", "Tickets cost four crowns.", "The library opened in 1931."]
    assert first.number_support(parts) == second.number_support(parts) == [1]
    table = 'question,context,answer,support\n"How much, or little?","' + "\n\n".join(FERRY) + '",Four crowns.,1\n'
    [row] = read_prompts(written(tmp_path, table, name="prompts.csv"))
    assert (row.question, row.context, row.answer, row.support) == (first.question, FERRY, "Four crowns.", (1,))


@pytest.mark.parametrize("inside", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_a_line_ends_only_at_a_line_break(tmp_path, inside):
    entry = {"question": f"How{inside}much?", "context": FERRY, "support": ["²"]}
    lines = written(tmp_path, *[json.dumps(entry, ensure_ascii=False)] * 2, name="PROMPTS.JSONL")
    table = written(tmp_path, f"question,support\nHow{inside}much?,²", name="prompts.csv")
    assert [row.question for row in [*read_prompts(lines), *read_prompts(table)]] == [entry["question"]] * 3


def test_messages_are_a_prompt(tmp_path):
    messages = [{"role": "user", "content": "A fact."}, {"role": "user", "content": "A question?"}]
    rows = read_prompts(written(tmp_path, {"messages": messages}))
    assert rows[0].question == messages
    with pytest.raises(ShapelineError, match=r"line 1: it has 1 parts of kind sentence; choose smaller parts"):
        check_parts(rows, "sentence")
    check_parts(rows, "word")


@pytest.mark.parametrize(
    "line, said",
    [
        ("{", r"line 1: it is not JSON \("),
        ("[1]", "line 1: it is a list; write an object with a question"),
        ({"question": "Why?", "contxt": "A. B."}, "line 1: unknown key 'contxt'. Did you mean 'context'.$"),
        ({"age": 3, "job": "nurse"}, "line 1: unknown key 'age'.* A table is a .csv or .parquet file.$"),
        ({"context": "A. B."}, "line 1: exactly one of question and messages is needed"),
        ({"question": "Why?", "messages": []}, "line 1: exactly one of question and messages is needed"),
        ({"question": ""}, "line 1: the question is ''; give a text"),
        ({"question": "Why?", "answer": 3}, "line 1: answer is 3; give a text, or leave it out"),
        ({"question": "Why?", "contrast": "No."}, "line 1: contrast needs an answer"),
        ({"question": "Why?", "context": ["A.", " "]}, "line 1: context is "),
        ({"question": "Why?", "support": 1.5}, "line 1: support is 1.5; give numbers or texts of parts"),
        ("", "it holds no prompt; write one per line"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, line, said):
    with pytest.raises(ShapelineError, match=said) as told:
        read_prompts(written(tmp_path, line))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("support", [[9], ["Nothing like it."], [-1]])
def test_support_is_a_part(tmp_path, support):
    rows = read_prompts(written(tmp_path, {"question": "Why?", "context": FERRY, "support": support}))
    with pytest.raises(ShapelineError, match=r"line 1: support .* is none of the 3 parts"):
        check_parts(rows, "sentence")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ShapelineError, match=r"prompts are read from .jsonl or .csv files"):
        read_prompts(written(tmp_path, "", name="prompts.txt"))
    with pytest.raises(ShapelineError, match="there is no such file"):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(ShapelineError, match="row 2: it has other cells than the header"):
        read_prompts(written(tmp_path, "question,answer", "a,b,c", name="prompts.csv"))

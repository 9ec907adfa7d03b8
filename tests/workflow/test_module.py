"""The workflow as a module of another Snakefile, as docs/running.md writes it."""

import re

import yaml

from tests.workflow.conftest import TINY, Checkout


def test_as_a_module_it_plans_the_jobs_of_its_own_files(root, tmp_path):
    text = re.search(r"```text\n(configfile:.*?)```", (root / "docs/running.md").read_text(), re.S)[1]
    (tmp_path / "Snakefile").write_text(text.replace("/path/to/shapeline", str(root)))
    (tmp_path / "shapeline.yaml").write_text(yaml.safe_dump(TINY))
    here = Checkout(tmp_path)
    told = here.snakemake("-n", "--cores", "1").stdout
    assert "attribute" in told and "render_theory" in told and "render_index" in told
    # Not only planned: a job starts its script from there, and what it has made is up to date.
    card = "data/prepared/digits38/card.json"
    here.snakemake(card, "--cores", "1")
    assert (tmp_path / card).is_file()
    again = here.snakemake("-n", card)
    assert "Nothing to be done" in again.stdout + again.stderr

# Fetch data, train models, attribute, measure, report. Targets are words, workers are the rules in workflow/rules.
import os
import sys

from snakemake.utils import min_version

min_version("9.27")

# Beside this file; where it is a module that was fetched, the package is the installed one.
sys.path.insert(0, str(workflow.current_basedir.join("workflow").get_path_or_uri(True)))


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/attribute.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    fetch,
    train,
    scores,
    metrics,
    report,
    # On a cluster these stay where Snakemake runs: the first needs the network, the others are seconds.
    fetch_source,
    render_report,
    render_theory,
    measure_accuracy,
    render_accuracy,
    render_index,


# Without a target, `all` is made wherever it stands among the rules.
rule all:
    default_target: True
    input:
        index=f"{RESULTS}/reports/index.html",


rule fetch:
    input:
        raw=[
            file
            for name in CONFIG.run
            for dataset in runs.list_datasets(CONFIG, name)
            for file in runs.list_raw_files(CONFIG, dataset)
        ],
        weights=[
            file
            for name in CONFIG.run
            if CONFIG.experiments[name].model
            for file in runs.find_weights_file(CONFIG, CONFIG.experiments[name].model)
        ],


rule train:
    input:
        weights=[
            runs.name_model_files(CONFIG, CONFIG.experiments[name].model)["weights"]
            for name in CONFIG.run
            if CONFIG.experiments[name].model
        ],


rule scores:
    input:
        scores=[file for name in CONFIG.run for file in all_scores(name)],


rule metrics:
    input:
        metrics=[
            file
            for name in CONFIG.run
            for file in runs.list_compared_files(CONFIG, name)
        ],


rule report:
    input:
        html=[f"{RESULTS}/reports/{name}.html" for name in CONFIG.run],


# Every experiment is a target too, and `smoke` is one that is always defined.
for experiment in CONFIG.experiments:

    rule:
        name:
            experiment
        input:
            html=f"{RESULTS}/reports/{experiment}.html",
        localrule: True

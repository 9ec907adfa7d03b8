# Fetch data, train models, attribute, measure, report. Targets are words, workers are the rules in workflow/rules.
from snakemake.utils import min_version

min_version("9.27")


configfile: "config.yaml"


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
            for file in plan.raw_files(CONFIG, plan.dataset_of(CONFIG, name))
        ],


rule train:
    input:
        weights=[
            plan.model_files(CONFIG, CONFIG.experiments[name].model)["weights"]
            for name in CONFIG.run
            if CONFIG.experiments[name].model
        ],


rule scores:
    input:
        scores=[file for name in CONFIG.run for file in all_scores(name)],


rule metrics:
    input:
        metrics=[
            file for name in CONFIG.run for file in plan.compared_files(CONFIG, name)
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

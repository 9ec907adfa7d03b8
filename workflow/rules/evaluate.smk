# By one metric that asks the model.
rule measure:
    input:
        unpack(measure_inputs),
        script=script_file("measure"),
    output:
        measured=f"{RESULTS}/{{experiment}}/metrics/{{metric}}/{{label}}.parquet",
    log:
        f"{RESULTS}/logs/measure/{{experiment}}/{{metric}}/{{label}}.log",
    wildcard_constraints:
        metric="|".join(metric for metric in METRICS if METRICS[metric].asks_model),
    priority: lambda w: turn(w.experiment)
    conda:
        lambda w: plan.environment(CONFIG, CONFIG.experiments[w.experiment].model)
    threads: 1
    resources:
        gpu=GPU,
        jobs_per_gpu=CONFIG.jobs_per_gpu,
        device=CONFIG.device,
        framework=lambda w: plan.job_libraries(
            CONFIG, CONFIG.experiments[w.experiment].model
        ),
        values_alone=lambda w: int(
            plan.values_alone(CONFIG, w.experiment, w.label, w.metric)
        ),
        asked=lambda w: plan.asked_of_scores(
            CONFIG, w.experiment, w.label, measured_by(w)
        ),
    params:
        settings=measure_settings,
    script:
        "../scripts/measure.py"


# By all metrics that ask none, with the scores of the model's other trainings: less work than to start a job for each.
# A rule's files are fixed, and labels differ in theirs: a rule for the labels of an experiment that have the same.
for experiment in CONFIG.experiments:
    for number, (files, labels) in enumerate(
        plan.measured_together(CONFIG, experiment)
    ):

        rule:
            name:
                f"measure{work.OF}{experiment}-{number}"
            input:
                unpack(measure_inputs),
                script=script_file("measure"),
            output:
                files,
            log:
                f"{RESULTS}/logs/measure/{{experiment}}/{{label}}.log",
            wildcard_constraints:
                experiment=experiment,
                label="|".join(labels),
            priority: turn(experiment)
            conda:
                plan.environment(CONFIG, CONFIG.experiments[experiment].model)
            threads: 1
            resources:
                device="cpu",
                framework=plan.job_libraries(
                    CONFIG, CONFIG.experiments[experiment].model
                ),
                asked=lambda w: plan.asked_of_scores(
                    CONFIG, w.experiment, w.label, measured_by(w)
                ),
            params:
                settings=measure_settings,
            script:
                "../scripts/measure.py"

    if plan.metric_names(CONFIG, experiment):

        rule:
            name:
                f"compare{work.OF}{experiment}"
            input:
                measured=lambda w: [
                    file
                    for metric in plan.metric_names(CONFIG, w.experiment)
                    for file in plan.metric_files(CONFIG, w.experiment, metric)
                ],
                script=script_file("compare"),
            output:
                [
                    f"{RESULTS}/{{experiment}}/metrics/{metric}.parquet"
                    for metric in plan.metric_names(CONFIG, experiment)
                ],
            log:
                f"{RESULTS}/logs/compare/{{experiment}}.log",
            wildcard_constraints:
                experiment=experiment,
            priority: turn(experiment)
            conda:
                "../../envs/report.yaml"
            threads: 1
            resources:
                asked=lambda w: plan.asked_of_measured(CONFIG, w.experiment),
            params:
                settings=lambda w: {
                    metric: plan.compare_job(CONFIG, w.experiment, metric)
                    for metric in plan.metric_names(CONFIG, w.experiment)
                },
            script:
                "../scripts/compare.py"

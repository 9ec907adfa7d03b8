rule measure:
    input:
        unpack(lambda w: measure_inputs(w.experiment, w.metric, w.label)),
        script=script_file("measure"),
    output:
        measured=f"{RESULTS}/{{experiment}}/metrics/{{metric}}/{{label}}.parquet",
    log:
        f"{RESULTS}/logs/measure/{{experiment}}/{{metric}}/{{label}}.log",
    priority: lambda w: turn(w.experiment)
    conda:
        lambda w: plan.environment(CONFIG, CONFIG.experiments[w.experiment].model)
    threads: 1
    resources:
        gpu=lambda w: GPU if METRICS[w.metric].asks_model else 0,
        jobs_per_gpu=CONFIG.jobs_per_gpu,
        device=lambda w: (CONFIG.device if METRICS[w.metric].asks_model else "cpu"),
        framework=lambda w: plan.job_libraries(
            CONFIG, CONFIG.experiments[w.experiment].model
        ),
        values_alone=lambda w: int(
            plan.values_alone(CONFIG, w.experiment, w.label, w.metric)
        ),
        asked=lambda w: plan.asked_of_scores(CONFIG, w.experiment, w.metric, w.label),
    params:
        settings=lambda w: plan.measure_job(CONFIG, w.experiment, w.metric),
    script:
        "../scripts/measure.py"


rule compare:
    input:
        measured=lambda w: plan.metric_files(CONFIG, w.experiment, w.metric),
        script=script_file("compare"),
    output:
        compared=f"{RESULTS}/{{experiment}}/metrics/{{metric}}.parquet",
    log:
        f"{RESULTS}/logs/compare/{{experiment}}/{{metric}}.log",
    priority: lambda w: turn(w.experiment)
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        asked=lambda w: plan.asked_of_measured(CONFIG, w.experiment, w.metric),
    params:
        settings=lambda w: plan.compare_job(CONFIG, w.experiment, w.metric),
    script:
        "../scripts/compare.py"

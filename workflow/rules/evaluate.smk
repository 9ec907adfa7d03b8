# All metrics that evaluate the model, for one method.
rule measure:
    input:
        unpack(lambda w: model_inputs(w.experiment, w.method)),
        scores=lambda w: runs.list_score_files(CONFIG, w.experiment, w.method),
        instances=f"{RESULTS}/{{experiment}}/instances.parquet",
        own=lambda w: metric_files(
            w.experiment, runs.list_model_metrics(CONFIG, w.experiment)
        ),
        script=script_file("measure"),
    output:
        measured=f"{RESULTS}/{{experiment}}/metrics/measured/{{method}}.parquet",
    log:
        f"{RESULTS}/logs/measure/{{experiment}}/{{method}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/measure/{{experiment}}/{{method}}.tsv"
    priority: 2
    conda:
        lambda w: job_code.choose_environment(
            CONFIG, CONFIG.experiments[w.experiment].model
        )
    threads: 1
    resources:
        gpu=lambda w: count_gpus(w.experiment),
        jobs_per_gpu=CONFIG.jobs_per_gpu,
        device=CONFIG.device,
        framework=lambda w: job_code.list_libraries(
            CONFIG, CONFIG.experiments[w.experiment].model
        ),
        values_alone=lambda w: int(
            job_code.needs_values_only(
                CONFIG,
                w.experiment,
                w.method,
                runs.list_model_metrics(CONFIG, w.experiment),
            )
        ),
        store=STORE,
        asked=lambda w: jobs.format_digests(CONFIG, w.experiment, [w.method]),
    params:
        settings=lambda w: jobs.measure_jobs(
            CONFIG, w.experiment, runs.list_model_metrics(CONFIG, w.experiment)
        ),
    script:
        "../scripts/measure.py"


# All metrics that read only scores and data, for all methods.
rule measure_scores:
    input:
        unpack(lambda w: data_inputs(w.experiment)),
        scores=lambda w: all_scores(w.experiment),
        randomised=lambda w: randomised_scores(w.experiment),
        own=lambda w: metric_files(
            w.experiment, runs.list_score_metrics(CONFIG, w.experiment)
        ),
        script=script_file("measure_scores"),
    output:
        measured=f"{RESULTS}/{{experiment}}/metrics/measured.parquet",
    log:
        f"{RESULTS}/logs/measure_scores/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/measure_scores/{{experiment}}.tsv"
    priority: 2
    conda:
        lambda w: job_code.choose_environment(
            CONFIG, CONFIG.experiments[w.experiment].model
        )
    threads: 1
    resources:
        device="cpu",
        store=STORE,
        asked=lambda w: jobs.format_digests(
            CONFIG, w.experiment, runs.list_all_entries(CONFIG, w.experiment)
        ),
    params:
        settings=lambda w: jobs.measure_jobs(
            CONFIG, w.experiment, runs.list_score_metrics(CONFIG, w.experiment)
        ),
    script:
        "../scripts/measure_scores.py"


rule compare:
    input:
        measured=lambda w: runs.list_measured_files(CONFIG, w.experiment),
        script=script_file("compare"),
    output:
        compared=f"{RESULTS}/{{experiment}}/metrics/compared.parquet",
    log:
        f"{RESULTS}/logs/compare/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/compare/{{experiment}}.tsv"
    priority: 3
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        asked=lambda w: jobs.format_measured_digests(CONFIG, w.experiment),
    params:
        settings=lambda w: jobs.compare_job(CONFIG, w.experiment),
    script:
        "../scripts/compare.py"

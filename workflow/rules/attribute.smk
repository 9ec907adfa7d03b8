# Priorities increase towards the report, so that an experiment is finished before the next one starts.
rule select_instances:
    input:
        unpack(lambda w: model_inputs(w.experiment)),
        trained_on=lambda w: runs.list_training_cards(CONFIG, w.experiment),
        own=lambda w: job_code.list_user_modules(
            job_code.select_code(CONFIG, w.experiment)
        ),
        script=script_file("select_instances"),
    output:
        instances=f"{RESULTS}/{{experiment}}/instances.parquet",
    log:
        f"{RESULTS}/logs/select_instances/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/select_instances/{{experiment}}.tsv"
    priority: 1
    conda:
        lambda w: job_code.choose_environment(
            CONFIG, CONFIG.experiments[w.experiment].model
        )
    threads: 1
    resources:
        framework=lambda w: job_code.list_libraries(
            CONFIG, CONFIG.experiments[w.experiment].model
        ),
        gpu=lambda w: (
            count_gpus(w.experiment)
            if CONFIG.experiments[w.experiment].has_no_data
            else 0
        ),
        jobs_per_gpu=CONFIG.jobs_per_gpu,
        device=lambda w: (
            CONFIG.device if CONFIG.experiments[w.experiment].has_no_data else "auto"
        ),
        store=STORE,
    params:
        settings=lambda w: jobs.select_job(CONFIG, w.experiment),
    script:
        "../scripts/select_instances.py"


# A part of the evaluations of an expensive game, which the job of the method's scores reads.
rule evaluate_game:
    input:
        instances=f"{RESULTS}/{{experiment}}/instances.parquet",
        earlier=lambda w: runs.list_value_files(
            CONFIG, w.experiment, w.method, int(w.round)
        ),
        own=lambda w: job_code.list_user_modules(
            job_code.attribute_code(CONFIG, w.experiment, w.method)
        ),
        script=script_file("evaluate_game"),
    output:
        values=f"{RESULTS}/{{experiment}}/values/{{method}}/{{round}}.{{shard}}-of-{{shards}}.parquet",
    log:
        f"{RESULTS}/logs/evaluate_game/{{experiment}}/{{method}}/{{round}}.{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate_game/{{experiment}}/{{method}}/{{round}}.{{shard}}-of-{{shards}}.tsv"
    wildcard_constraints:
        round=r"\d+",
    priority: 1
    conda:
        "../../envs/torch.yaml"
    threads: 1
    resources:
        gpu=lambda w: count_gpus(w.experiment),
        jobs_per_gpu=CONFIG.jobs_per_gpu,
        device=CONFIG.device,
        on_error=lambda w: CONFIG.experiments[w.experiment].on_error,
        store=STORE,
    params:
        settings=lambda w: jobs.attribute_job(CONFIG, w.experiment, w.method),
    script:
        "../scripts/evaluate_game.py"


rule attribute:
    input:
        unpack(lambda w: model_inputs(w.experiment, w.method)),
        instances=f"{RESULTS}/{{experiment}}/instances.parquet",
        values=lambda w: runs.list_value_files(CONFIG, w.experiment, w.method),
        own=lambda w: job_code.list_user_modules(
            job_code.attribute_code(CONFIG, w.experiment, w.method)
        ),
        script=script_file("attribute"),
    output:
        scores=f"{RESULTS}/{{experiment}}/scores/{{method}}/{{shard}}-of-{{shards}}.parquet",
    log:
        f"{RESULTS}/logs/attribute/{{experiment}}/{{method}}/{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/attribute/{{experiment}}/{{method}}/{{shard}}-of-{{shards}}.tsv"
    priority: 1
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
            job_code.needs_values_only(CONFIG, w.experiment, w.method)
        ),
        on_error=lambda w: CONFIG.experiments[w.experiment].on_error,
        store=STORE,
        values=lambda w: int(CONFIG.experiments[w.experiment].cache),
    params:
        settings=lambda w: jobs.attribute_job(CONFIG, w.experiment, w.method),
    script:
        "../scripts/attribute.py"

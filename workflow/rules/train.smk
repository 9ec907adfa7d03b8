rule convert_weights:
    input:
        raw=lambda w: runs.find_weights_file(CONFIG, w.model),
        code=job_code.list_sources("shapeline.models.torch_training"),
        script=script_file("convert_weights"),
    output:
        start=f"{RESULTS}/models/{{model}}/start.safetensors",
    log:
        f"{RESULTS}/logs/convert_weights/{{model}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/convert_weights/{{model}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: 1
    script:
        "../scripts/convert_weights.py"


rule train_model:
    input:
        unpack(lambda w: training_inputs(*runs.split_training(w.model))),
        script=script_file("train_model"),
    output:
        weights=f"{RESULTS}/models/{{model}}/weights.safetensors",
        card=f"{RESULTS}/models/{{model}}/card.json",
    log:
        f"{RESULTS}/logs/train_model/{{model}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train_model/{{model}}.tsv"
    wildcard_constraints:
        model=rf"({'|'.join(CONFIG.models)})(@seed\d+)?",
    priority: 1
    conda:
        lambda w: job_code.choose_environment(CONFIG, runs.split_training(w.model)[0])
    threads: 1  # the number of threads changes the weights
    resources:
        gpu=lambda w: int(
            messages.trains_on_gpu(CONFIG, runs.split_training(w.model)[0])
        ),
        jobs_per_gpu=CONFIG.jobs_per_gpu,
        device=CONFIG.device,
        framework=lambda w: job_code.list_libraries(
            CONFIG, runs.split_training(w.model)[0]
        ),
        experiment=lambda w: largest_count(w.model)[0],
        instances=lambda w: largest_count(w.model)[1],
    params:
        settings=lambda w: jobs.train_job(CONFIG, *runs.split_training(w.model)),
    script:
        "../scripts/train_model.py"


rule randomise_model:
    input:
        weights=f"{RESULTS}/models/{{model}}/weights.safetensors",
        arrays=lambda w: runs.list_prepared_files(CONFIG.models[w.model].dataset)[
            "arrays"
        ],
        own=lambda w: job_code.list_user_modules(
            job_code.randomise_code(CONFIG, w.model)
        ),
        script=script_file("randomise_model"),
    output:
        weights=f"{RESULTS}/models/{{model}}@{{variant}}/weights.safetensors",
        card=f"{RESULTS}/models/{{model}}@{{variant}}/card.json",
    log:
        f"{RESULTS}/logs/randomise_model/{{model}}@{{variant}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/randomise_model/{{model}}@{{variant}}.tsv"
    conda:
        lambda w: job_code.choose_environment(CONFIG, w.model)
    threads: 1
    params:
        settings=lambda w: jobs.randomise_job(CONFIG, w.model, w.variant),
    script:
        "../scripts/randomise_model.py"

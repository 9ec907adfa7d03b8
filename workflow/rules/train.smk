rule convert_weights:
    input:
        raw=lambda w: plan.weights_file(CONFIG, w.model),
        code=plan.sources("shapeline.models.torch_weights"),
        script=script_file("convert_weights"),
    output:
        start=f"{RESULTS}/models/{{model}}/start.safetensors",
    log:
        f"{RESULTS}/logs/convert_weights/{{model}}.log",
    conda:
        "../../envs/torch.yaml"
    threads: 1
    script:
        "../scripts/convert_weights.py"


rule train_model:
    input:
        arrays=lambda w: plan.prepared(CONFIG.models[w.model].dataset)["arrays"],
        card=lambda w: plan.prepared(CONFIG.models[w.model].dataset)["card"],
        start=lambda w: plan.start_file(CONFIG, w.model),
        own=lambda w: plan.own(plan.train_code(CONFIG, w.model)),
        script=script_file("train_model"),
    output:
        weights=f"{RESULTS}/models/{{model}}/weights.safetensors",
        card=f"{RESULTS}/models/{{model}}/card.json",
    log:
        f"{RESULTS}/logs/train_model/{{model}}.log",
    priority: lambda w: EARLY + (w.model == CONFIG.experiments[CONFIG.run[0]].model)
    conda:
        lambda w: plan.environment(CONFIG, w.model)
    threads: 1  # more would give other weights in a run on more cores
    resources:
        gpu=GPU,
        jobs_per_gpu=CONFIG.jobs_per_gpu,
        device=CONFIG.device,
        framework=lambda w: plan.job_libraries(CONFIG, w.model),
    params:
        settings=lambda w: plan.train_job(CONFIG, w.model),
    script:
        "../scripts/train_model.py"


# The same model by another seed, for the share of the variance that a training has.
use rule train_model as train_again with:
    output:
        weights=f"{RESULTS}/models/{{model}}@seed{{number}}/weights.safetensors",
        card=f"{RESULTS}/models/{{model}}@seed{{number}}/card.json",
    log:
        f"{RESULTS}/logs/train_again/{{model}}@seed{{number}}.log",
    params:
        settings=lambda w: plan.train_job(CONFIG, w.model, int(w.number)),


rule randomise_model:
    input:
        weights=f"{RESULTS}/models/{{model}}/weights.safetensors",
        arrays=lambda w: plan.prepared(CONFIG.models[w.model].dataset)["arrays"],
        own=lambda w: plan.own(plan.randomise_code(CONFIG, w.model)),
        script=script_file("randomise_model"),
    output:
        weights=f"{RESULTS}/models/{{model}}@{{variant}}/weights.safetensors",
        card=f"{RESULTS}/models/{{model}}@{{variant}}/card.json",
    log:
        f"{RESULTS}/logs/randomise_model/{{model}}@{{variant}}.log",
    conda:
        lambda w: plan.environment(CONFIG, w.model)
    threads: 1
    params:
        settings=lambda w: plan.randomise_job(CONFIG, w.model, w.variant),
    script:
        "../scripts/randomise_model.py"

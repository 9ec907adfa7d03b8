rule train_model:
    input:
        arrays=lambda w: plan.prepared(CONFIG.models[w.model].dataset)["arrays"],
        card=lambda w: plan.prepared(CONFIG.models[w.model].dataset)["card"],
        code=lambda w: plan.train_code(CONFIG, w.model),
        script=script_file("train_model"),
    output:
        weights=f"{RESULTS}/models/{{model}}/weights.safetensors",
        card=f"{RESULTS}/models/{{model}}/card.json",
    log:
        f"{RESULTS}/logs/train_model/{{model}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train_model/{{model}}.tsv"
    conda:
        lambda w: plan.environment(CONFIG, w.model)
    threads: 2
    resources:
        gpu=GPU,
        device=CONFIG.device,
    params:
        settings=lambda w: plan.train_settings(CONFIG, w.model),
    script:
        "../scripts/train_model.py"

rule fetch_source:
    output:
        file="data/raw/{source}/{file}",
    log:
        f"{RESULTS}/logs/fetch_source/{{source}}/{{file}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch_source/{{source}}/{{file}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: 1
    resources:
        mirror=CONFIG.data.mirror or "",
        offline=int(CONFIG.data.offline),
    params:
        settings=lambda w: jobs.fetch_settings(w.source, w.file),
    script:
        "../scripts/fetch_source.py"


rule prepare_dataset:
    input:
        raw=lambda w: runs.list_raw_files(CONFIG, w.dataset),
        own=lambda w: job_code.list_user_modules(
            job_code.prepare_code(CONFIG, w.dataset)
        ),
        script=script_file("prepare_dataset"),
    output:
        arrays="data/prepared/{dataset}/arrays.npz",
        card="data/prepared/{dataset}/card.json",
    log:
        f"{RESULTS}/logs/prepare_dataset/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/prepare_dataset/{{dataset}}.tsv"
    priority: 1
    conda:
        "../../envs/torch.yaml"
    threads: 1
    params:
        settings=lambda w: jobs.prepare_job(CONFIG, w.dataset),
    script:
        "../scripts/prepare_dataset.py"

rule render_report:
    input:
        scores=lambda w: all_scores(w.experiment),
        metrics=lambda w: runs.list_compared_files(CONFIG, w.experiment),
        measured=lambda w: runs.list_measured_files(CONFIG, w.experiment),
        instances=f"{RESULTS}/{{experiment}}/instances.parquet",
        arrays=lambda w: dataset_files(w.experiment).get("arrays", []),
        dataset_card=lambda w: dataset_files(w.experiment).get("dataset_card", []),
        model_card=lambda w: model_card(w.experiment),
        notebook=lambda w: source_file(
            f"notebooks/{CONFIG.experiments[w.experiment].report.notebook}.ipynb"
        ),
        script=script_file("render_report"),
    output:
        html=report(
            f"{RESULTS}/reports/{{experiment}}.html",
            caption="../report/experiment.rst",
            category="Experiments",
            labels={"page": "{experiment}"},
        ),
        notebook=f"{RESULTS}/reports/{{experiment}}.ipynb",
        parts=directory(f"{RESULTS}/reports/{{experiment}}_files"),
    log:
        f"{RESULTS}/logs/render_report/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/render_report/{{experiment}}.tsv"
    priority: 4
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        asked=lambda w: jobs.format_digests(
            CONFIG, w.experiment, runs.list_entries(CONFIG, w.experiment)
        ),
    params:
        settings=lambda w: jobs.report_job(CONFIG, w.experiment),
    script:
        "../scripts/render_report.py"


rule render_theory:
    input:
        notebook=source_file("notebooks/theory.ipynb"),
        script=script_file("render_standalone"),
    output:
        html=report(
            f"{RESULTS}/reports/theory.html",
            caption="../report/theory.rst",
            category="Theory",
            labels={"page": "statements of the papers"},
        ),
        notebook=f"{RESULTS}/reports/theory.ipynb",
        parts=directory(f"{RESULTS}/reports/theory_files"),
    log:
        f"{RESULTS}/logs/render_theory.log",
    benchmark:
        f"{RESULTS}/benchmarks/render_theory.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    params:
        settings=jobs.theory_job(CONFIG),
    script:
        "../scripts/render_standalone.py"


rule measure_accuracy:
    input:
        script=script_file("measure_accuracy"),
    output:
        f"{RESULTS}/accuracy/errors.parquet",
    log:
        f"{RESULTS}/logs/measure_accuracy.log",
    benchmark:
        f"{RESULTS}/benchmarks/measure_accuracy.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    params:
        settings=jobs.known_games_job(CONFIG),
    script:
        "../scripts/measure_accuracy.py"


rule render_accuracy:
    input:
        measured=f"{RESULTS}/accuracy/errors.parquet",
        notebook=source_file("notebooks/accuracy.ipynb"),
        script=script_file("render_standalone"),
    output:
        html=report(
            f"{RESULTS}/reports/accuracy.html",
            caption="../report/accuracy.rst",
            category="Accuracy",
            labels={"page": "estimators on known games"},
        ),
        notebook=f"{RESULTS}/reports/accuracy.ipynb",
        parts=directory(f"{RESULTS}/reports/accuracy_files"),
    log:
        f"{RESULTS}/logs/render_accuracy.log",
    benchmark:
        f"{RESULTS}/benchmarks/render_accuracy.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    params:
        settings=jobs.accuracy_job(),
    script:
        "../scripts/render_standalone.py"


rule render_index:
    input:
        pages=[f"{RESULTS}/reports/{name}.html" for name in runs.list_pages(CONFIG)],
        notebooks=[f"{RESULTS}/reports/{name}.ipynb" for name in CONFIG.run],
        script=script_file("render_index"),
    output:
        html=report(
            f"{RESULTS}/reports/index.html",
            caption="../report/index.rst",
            category="Overview",
            labels={"page": "recommended methods"},
        ),
        parts=directory(f"{RESULTS}/reports/index_files"),
    log:
        f"{RESULTS}/logs/render_index.log",
    benchmark:
        f"{RESULTS}/benchmarks/render_index.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    params:
        settings=lambda w: jobs.index_job(CONFIG),
    script:
        "../scripts/render_index.py"

rule render_report:
    input:
        scores=lambda w: all_scores(w.experiment),
        metrics=lambda w: plan.compared_files(CONFIG, w.experiment),
        instances=f"{RESULTS}/{{experiment}}/instances.parquet",
        arrays=lambda w: dataset_files(w.experiment)["arrays"],
        dataset_card=lambda w: dataset_files(w.experiment)["card"],
        model_card=lambda w: plan.model_files(
            CONFIG, CONFIG.experiments[w.experiment].model
        )["card"],
        notebook="notebooks/report.ipynb",
        code=plan.sources("shapeline.plots", "shapeline.reports"),
        script=script_file("render_report"),
    output:
        html=f"{RESULTS}/reports/{{experiment}}.html",
        notebook=f"{RESULTS}/reports/{{experiment}}.ipynb",
    log:
        f"{RESULTS}/logs/render_report/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/render_report/{{experiment}}.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    params:
        settings=lambda w: plan.report_settings(CONFIG, w.experiment),
    script:
        "../scripts/render_report.py"


rule render_index:
    input:
        notebooks=[f"{RESULTS}/reports/{name}.ipynb" for name in CONFIG.run],
        code=plan.sources("shapeline.reports"),
        script=script_file("render_index"),
    output:
        html=f"{RESULTS}/reports/index.html",
    log:
        f"{RESULTS}/logs/render_index.log",
    benchmark:
        f"{RESULTS}/benchmarks/render_index.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    params:
        settings={"run": list(CONFIG.run)},
    script:
        "../scripts/render_index.py"

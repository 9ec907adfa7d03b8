# Says what is there and what the run needs; fails with a list when it cannot work.
rule doctor:
    log:
        f"{RESULTS}/logs/doctor.log",
    localrule: True
    conda:
        "../../envs/torch.yaml"
    params:
        settings=lambda w: CONFIG.model_dump(mode="json", exclude_defaults=True),
    message:
        "What is there, and what the run needs"
    script:
        "../scripts/doctor.py"

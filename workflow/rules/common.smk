# Read the configuration once; shapeline/workflow derives from it all that the rules need.
import os
from functools import cache

from shapeline.metrics.registry import METRICS
from shapeline.workflow import command, job_code, job_environment, jobs, messages, runs

job_environment.prepare_process(workflow.is_main_process)

CONFIG = command.read_config(config, workflow)
RULES_FOLDER = workflow.current_basedir
RESULTS = CONFIG.results
# Rows that later jobs reuse, independent of the files of this run.
STORE = f"{RESULTS}/.rows" if CONFIG.row_store_gb else ""
asked_gpus = workflow.global_resources.get("gpu").value
if asked_gpus and workflow.is_main_process:
    workflow.register_resource("gpu", asked_gpus * CONFIG.jobs_per_gpu)


wildcard_constraints:
    dataset="|".join(CONFIG.datasets),
    model="|".join(CONFIG.models),
    experiment="|".join(CONFIG.experiments),  # excludes the page `index` beside the reports
    method=r"\w+(@randomised)?",
    variant=r"full|top\d+",
    source=r"\w+",
    shard=r"\d+",
    shards=r"\d+",


onstart:
    if prefix := command.start_run(CONFIG, workflow, asked_gpus):
        shell.prefix(prefix)


onsuccess:
    command.finish_run(CONFIG)
    messages.show_success(
        CONFIG,
        f"{RESULTS}/reports/index.html",
        {str(file) for job in workflow.dag.jobs for file in job.output},
        {job.wildcards.get("experiment") for job in workflow.dag.jobs},
    )


onerror:
    command.finish_run(CONFIG)


@cache
def count_gpus(experiment):
    """Return the GPUs of each job that evaluates an experiment's model, 0 or 1."""
    return int(messages.uses_gpu(CONFIG, experiment))


def all_scores(experiment):
    return [
        file
        for entry in runs.list_entries(CONFIG, experiment)
        for file in runs.list_score_files(CONFIG, experiment, entry)
    ]


def source_file(path):
    """Return a file of the workflow as an input: relative to its root, or absolute if the workflow is a module."""
    # Snakemake's function would copy local files to a new path in every run; it is meant for remote modules.
    file = RULES_FOLDER.join(f"../../{path}").get_path_or_uri(True)
    if "://" in file:
        return str(workflow.source_path(f"../../{path}"))
    near = os.path.relpath(file)
    return os.path.abspath(file) if near.startswith(os.pardir) else near


def script_file(name):
    return source_file(f"workflow/scripts/{name}.py")


def dataset_files(experiment):
    """Return the prepared data of an experiment; none for a game or prompts."""
    if CONFIG.experiments[experiment].has_no_data:
        return {}
    files = runs.list_prepared_files(runs.find_dataset(CONFIG, experiment))
    return {"arrays": files["arrays"], "dataset_card": files["card"]}


def model_inputs(experiment, entry=None):
    """Return the files of an experiment's model, if it has one, and data; for an entry of all models it explains."""
    model = CONFIG.experiments[experiment].model
    if model is None:
        return dataset_files(experiment)
    return {
        **dataset_files(experiment),
        **(
            runs.list_explained_files(CONFIG, experiment, entry)
            if entry
            else runs.name_model_files(CONFIG, model)
        ),
        "user": job_code.list_user_files(CONFIG, experiment),
        "reference": job_code.find_reference_file(CONFIG, experiment),
    }


def training_inputs(model, training_seed):
    """Return the inputs of a model's training with any seed."""
    files = runs.list_prepared_files(CONFIG.models[model].dataset)
    return {
        **files,
        "start": runs.start_file(CONFIG, model),
        "own": job_code.list_user_modules(job_code.train_code(CONFIG, model)),
    }


def largest_count(model):
    """Return the experiment that needs most instances of a model's data, and their number."""
    return runs.find_largest_count(CONFIG, runs.split_training(model)[0])


def model_card(experiment):
    model = CONFIG.experiments[experiment].model
    return runs.name_model_files(CONFIG, model)["card"] if model else []


def metric_files(experiment, metrics):
    """Return the user's files of custom metrics."""
    return [
        file
        for metric in metrics
        for file in job_code.list_user_modules(
            job_code.measure_code(CONFIG, experiment, metric)
        )
    ]


def data_inputs(experiment):
    """Return the data and the instances, if a metric that evaluates no model reads them."""
    if not any(
        METRICS[metric].reads_data
        for metric in runs.list_score_metrics(CONFIG, experiment)
    ):
        return {}
    return {
        **dataset_files(experiment),
        "instances": f"{RESULTS}/{experiment}/instances.parquet",
    }


def randomised_scores(experiment):
    return [
        file
        for entry in runs.list_all_entries(CONFIG, experiment)
        if runs.split_entry(entry)[1]
        for file in runs.list_score_files(CONFIG, experiment, entry)
    ]

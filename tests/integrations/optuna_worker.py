"""A process that plays trials of a shared study until there are enough: URL, name, results wanted, log file, patience.

Every evaluation writes "begin NUMBER" and "end NUMBER VALUE"; with patience, it waits that long in between.
"""

import os
import sys
import time
import warnings

import optuna

from misspec.integrations.optuna import MisspecSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


def storage_of(url):
    if url.startswith("journal:"):
        backend = optuna.storages.journal.JournalFileBackend(url.removeprefix("journal:"))
        return optuna.storages.JournalStorage(backend)
    patience = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    return optuna.storages.RDBStorage(url, engine_kwargs=patience)


def value(params):
    return -((params["x"] - 0.3) ** 2) - abs(params["n"] - 4) - (params["kind"] == "b")


def main(url, name, wanted, log, patience):
    study = optuna.load_study(study_name=name, storage=storage_of(url), sampler=MisspecSampler(seed=os.getpid()))

    def write(line):
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{line}\n".encode())
        os.close(handle)

    def objective(trial):
        params = {
            "x": trial.suggest_float("x", 0, 1),
            "n": trial.suggest_int("n", 1, 9),
            "kind": trial.suggest_categorical("kind", ["a", "b"]),
        }
        write(f"begin {trial.number} {os.getpid()}")
        time.sleep(float(patience))
        write(f"end {trial.number} {value(params)!r}")
        return value(params)

    def enough():
        return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False)) >= int(wanted)

    while not enough():
        study.optimize(objective, n_trials=1)


if __name__ == "__main__":
    main(*sys.argv[1:])

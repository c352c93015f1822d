"""A noisy function of a number, an integer and a choice, minimised in 40 trials."""

import random

import optuna
import optunahub


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -5, 5)
    n = trial.suggest_int("n", 1, 10)
    kind = trial.suggest_categorical("kind", ["smooth", "rough"])
    return (x - 1) ** 2 + 0.3 * abs(n - 4) + (kind == "rough") + random.gauss(0, 0.1)


if __name__ == "__main__":
    random.seed(0)
    sampler = optunahub.load_module(package="samplers/misspec").MisspecSampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=40)
    print(study.best_trial.value, study.best_trial.params)

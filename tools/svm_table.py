"""Computes the table behind `problems.svm_digits`: accuracies of an SVM on scikit-learn's digits over a grid.

    python tools/svm_table.py        # some twenty minutes on one core; writes src/misspec/problems/svm_digits.npz

Every cell of the grid holds the number of digits that each of 30 held-out folds (ten times three-fold cross-validation,
the same folds for every cell) got right, and the file the size of each fold.
"""

from __future__ import annotations

import pathlib
import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.svm import SVC

LOG_C = np.linspace(-2.0, 3.0, 20)
LOG_GAMMA = np.linspace(-4.0, 1.0, 20)
TARGET = pathlib.Path(__file__).parents[1] / "src" / "misspec" / "problems" / "svm_digits.npz"


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    folds = list(RepeatedStratifiedKFold(n_splits=3, n_repeats=10, random_state=0).split(images, labels))
    right = np.zeros((len(LOG_C), len(LOG_GAMMA), len(folds)), dtype=np.int16)
    started = time.monotonic()
    for i, log_c in enumerate(LOG_C):
        for j, log_gamma in enumerate(LOG_GAMMA):
            classifier = SVC(C=10.0**log_c, gamma=10.0**log_gamma)
            for k, (train, test) in enumerate(folds):
                classifier.fit(images[train], labels[train])
                right[i, j, k] = int((classifier.predict(images[test]) == labels[test]).sum())
        print(f"{i + 1} of {len(LOG_C)} rows, {time.monotonic() - started:.0f} s", flush=True)
    sizes = np.array([len(test) for _, test in folds], dtype=np.int16)
    np.savez_compressed(TARGET, right=right, sizes=sizes, log_c=LOG_C, log_gamma=LOG_GAMMA)


if __name__ == "__main__":
    main()

"""A training script like any other: parameters in, the accuracy out. It knows nothing of misspec.

    misspec optimize examples/space.toml --evaluations 40 --jobs 2 -- \\
        python examples/train.py --rate {rate} --depth {depth} --share {share} --loss {loss}
"""

import argparse
import json

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import cross_val_score

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.1, help="the learning rate")
parser.add_argument("--depth", type=int, default=3, help="of each tree")
parser.add_argument("--share", type=float, default=1.0, help="of the rows that each tree sees")
parser.add_argument("--loss", choices=["log_loss", "exponential"], default="log_loss")
parser.add_argument("--log", help="a file to which a line per start and per end is appended")
parser.add_argument("--trial", type=int, help="written into that line")
given, _ = parser.parse_known_args()


def note(what):
    if given.log:
        with open(given.log, "a") as file:  # noqa: PTH123  # as scripts do
            file.write(json.dumps({"what": what, "trial": given.trial, **vars(given)}) + "\n")


note("start")
X, y = load_breast_cancer(return_X_y=True)
model = GradientBoostingClassifier(
    learning_rate=given.rate,
    max_depth=given.depth,
    subsample=given.share,
    loss=given.loss,
    n_estimators=20,
    max_features=5,
    random_state=0,
)
accuracy = float(cross_val_score(model, X, y, cv=3).mean())
note("end")
print(f"accuracy: {accuracy:.4f}")

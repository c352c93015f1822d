"""Maximise a noisy function over a box: no grid, batches of four, and a pause in the middle."""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import Matern

import misspec as ms

rng = np.random.default_rng(0)
box = ms.Box([(-5, 10), (0, 15)])


def branin(x):
    """Branin's function, turned over and scaled; its best value is 0.992, at three places."""
    a, b = x
    hollow = (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10
    return 1 - hollow / 50


def experiment(x):
    return branin(x) + 0.02 * rng.standard_normal()


# some points at random to fit a model by, then a policy that does not quite trust it
first = box.cover(16).points
results = [experiment(x) for x in first]
model = ms.Model.from_data(first, results, kernel=Matern([0.3, 0.3], nu=2.5), domain=box, noise=0.02)
policy = ms.ECGPUCB(box, model, epsilon=0.02, width=2.0)
policy.observe(first, results)

for _ in range(8):
    batch = policy.ask(4)
    policy.tell(batch, [experiment(query.x) for query in batch])

with tempfile.TemporaryDirectory() as folder:
    policy.save(Path(folder) / "branin.misspec")
    policy = ms.load(Path(folder) / "branin.misspec")  # continues to the bit

ms.optimize(policy, experiment, n=20)
best = policy.recommend()
print(f"{policy.t} evaluations: recommends {np.round(best.x, 3)}, true value {branin(best.x):.3f} (the best is 0.992)")

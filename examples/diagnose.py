"""How wrong is my model? A certificate from data that were gathered by looking at earlier results."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF

import misspec as ms

domain = ms.Box([(0, 10)]).grid(80)
model = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)  # smooth over a third of the range
rng = np.random.default_rng(0)


def experiment(x):
    """A step that the model does not know of."""
    return np.sin(x[0] / 3) + 0.8 * (x[0] > 6) + 0.1 * rng.standard_normal()


policy = ms.PhasedUncertaintySampling(domain, model, horizon=1023)
run = ms.optimize(policy, experiment, n=1023, batch=1023)  # whole episodes at a time
found = ms.diagnose(run.x, run.y, model, domain=domain)
print(f"the model is wrong by at least {found.epsilon_lower:.3f}, at x = {found.worst_point[0]:.2f} most of all")
print(found)

true = ms.best_in_class(domain, model, np.sin(domain.points[:, 0] / 3) + 0.8 * (domain.points[:, 0] > 6))
print(f"(its true distance from the class is {true.epsilon:.3f}, which the data above do not know)")

"""Optimise a noisy function over candidates with a model that is wrong: the paper's three algorithms beside GP-UCB."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF

import misspec as ms

domain = ms.Box([(-5, 5)]).grid(200)
x = domain.points[:, 0]
truth = np.sin(x) + 0.1 * x + 0.2 * np.sign(np.sin(30 * x))  # the square wave is what no smooth model explains
model = ms.Model(RBF(0.1), norm_bound=3.0, noise=0.2)
problem = ms.problems.from_values(domain, model, truth)  # knows how wrong the model is

policies = {
    "GP-UCB, as in the literature": ms.GPUCB.as_in_paper(domain, model),
    "EC-GP-UCB, ε known": ms.ECGPUCB(domain, model, epsilon=problem.epsilon),
    "phased, ε unknown": ms.PhasedUncertaintySampling(domain, model, horizon=2000),
    "balancing, ε unknown": ms.RegretBalancing(domain, model, horizon=2000),
}
print(f"best value {truth.max():.3f} at x = {x[truth.argmax()]:+.2f}; 2,000 evaluations each, noise {model.noise}")
print(f"the model is wrong by ε = {problem.epsilon:.3f}")
for name, policy in policies.items():
    trace = ms.simulate(policy, problem, n=2000)
    best = policy.recommend()
    print(
        f"{name:30s} regret per round {trace.regret.mean():.3f}; "
        f"recommends x = {best.x[0]:+.2f}, true value {truth[best.index]:.3f}"
    )

"""A contextual problem f(x, c): the joint setting of the paper's footnote, with misspecification unknown.

Actions are rows of [x, c]: each round brings a context c, and the learner picks x. The contexts are drawn i.i.d., as
regret bound balancing needs them to be.
"""

import numpy as np
from sklearn.gaussian_process.kernels import RBF

import misspec as ms

rng = np.random.default_rng(0)
settings = np.linspace(0, 1, 21)  # the x that can be chosen


def truth(x, c):
    """Best at x = c; the square wave on top is what no smooth model explains."""
    return np.exp(-8 * (x - c) ** 2) + 0.1 * np.sign(np.sin(40 * x))


model = ms.Model(RBF(0.3), norm_bound=3.0, noise=0.1)
policy = ms.RegretBalancing(
    ms.Box([(0, 1), (0, 1)]),
    model,
    horizon=1000,
    epsilon_max=0.5,
    reward_range=1.2,
    enlargement="exact",  # sharper than the default at new points, and affordable for a thousand rounds
)

lost, lost_at_random = 0.0, 0.0
for _ in range(1000):
    c = rng.random()
    actions = np.stack([settings, np.full(21, c)], axis=1)
    query = policy.ask(actions=actions)
    x = settings[query.position]
    policy.tell(query, truth(x, c) + model.noise * rng.standard_normal())
    lost += truth(settings, c).max() - truth(x, c)
    lost_at_random += truth(settings, c).max() - truth(settings, c).mean()

print(f"regret per round: {lost / 1000:.3f}; choosing at random: {lost_at_random / 1000:.3f}")
for epsilon, count, active in zip(policy.epsilons, policy.counts, range(len(policy.epsilons)), strict=True):
    print(
        f"  base with ε̂ = {epsilon:.3f} played {count:4d} rounds" + ("" if active in policy.active else ", eliminated")
    )

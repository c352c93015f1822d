"""A contextual problem f(x, c): the joint setting of the paper's footnote, with misspecification unknown.

Each round brings a context c, and the learner picks x. The contexts are drawn i.i.d., as regret bound balancing needs
them to be.
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
domain = ms.Joint(ms.Finite(settings[:, None]), ms.Box([(0, 1)]))  # actions x, contexts c; the kernel sees [x, c]
policy = ms.RegretBalancing(domain, model, horizon=1000, epsilon_max=0.5, reward_range=1.2)

lost, lost_at_random = 0.0, 0.0
for _ in range(1000):
    c = rng.random()
    query = policy.ask(context=c)
    policy.tell(query, truth(query.x[0], c) + model.noise * rng.standard_normal())
    lost += truth(settings, c).max() - truth(query.x[0], c)
    lost_at_random += truth(settings, c).max() - truth(settings, c).mean()

print(f"regret per round: {lost / 1000:.3f}; choosing at random: {lost_at_random / 1000:.3f}")
for base, (epsilon, count) in enumerate(zip(policy.epsilons, policy.counts, strict=True)):
    gone = "" if base in policy.active else ", eliminated"
    print(f"  base with ε̂ = {epsilon:.3f} played {count:4d} rounds{gone}")
best = policy.recommend(context=0.3)
print(f"at c = 0.3: x = {best.x[0]:.2f}, worth {truth(best.x[0], 0.3):.3f} of {truth(settings, 0.3).max():.3f}")

"""Classification as a contextual bandit: one image per round, ten classes to choose from, right or wrong the reward."""

import misspec as ms

ROUNDS = 1000
problem = ms.problems.digits_bandit(300, solve=False)
domain, model = problem.domain, problem.model
# 1,000 rounds in 26 dimensions are too few for the theory's widths, which would only explore: a number instead
policies = {
    "balancing, ε unknown": ms.RegretBalancing(
        domain, model, horizon=ROUNDS, epsilon_max=1.0, reward_range=1.0, width=0.5
    ),
    "EC-GP-UCB, ε = 1": ms.ECGPUCB(domain, model, epsilon=1.0, width=0.5),
    "uniform": ms.UniformSampling(domain, model),
}
print("accuracy by round       " + "".join(f"{t:>7d}" for t in range(200, ROUNDS + 1, 200)))
for name, policy in policies.items():
    right = 1.0 - ms.simulate(policy, problem, ROUNDS).regret
    print(f"{name:24s}" + "".join(f"{part.mean():7.2f}" for part in right.reshape(-1, 200)))

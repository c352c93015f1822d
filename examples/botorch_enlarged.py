"""In a loop of BoTorch's own: the enlarged upper confidence bound in optimize_acqf, then the same model in a policy."""

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

import misspec as ms
from misspec.integrations.botorch import EnlargedUpperConfidenceBound, model_of

torch.manual_seed(0)
bounds = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)
EPSILON = 2.0  # the ripple, which no smooth model explains


def branin(X):
    """Branin's function, turned over, with a fine ripple: without that its best value is −0.4, at three places."""
    a, b = X[..., 0], X[..., 1]
    smooth = (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * torch.cos(a) + 10
    return -smooth + EPSILON * torch.sin(9 * a) * torch.sin(9 * b)


def experiment(X):
    return branin(X)[..., None] + 0.5 * torch.randn(*X.shape[:-1], 1, dtype=X.dtype)


X = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(10, 2, dtype=torch.float64)
Y = experiment(X)
for _ in range(10):
    model = SingleTaskGP(X, Y, input_transform=Normalize(2, bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    score = EnlargedUpperConfidenceBound(model, multiplier=1.0, epsilon=EPSILON)  # ε in units of Y
    x, _ = optimize_acqf(score, bounds, q=1, num_restarts=3, raw_samples=64)
    X, Y = torch.cat([X, x]), torch.cat([Y, experiment(x)])
best = X[Y.argmax()]
print(f"{len(Y)} evaluations, best at {best.numpy().round(2)}: {branin(best):.2f}")

# the same model goes on in a policy of this library, with pending queries, own bands and a stopping rule
box = ms.Box(bounds.T.tolist())
policy = ms.ECGPUCB(box, model_of(model, domain=box), epsilon=EPSILON, width=1.0)
policy.observe(X.numpy(), Y[:, 0].numpy())
batch = policy.ask(4)
policy.tell(batch, [experiment(torch.tensor(query.x)).item() for query in batch])
answer = policy.recommend()
print(f"recommends {answer.x.round(2)}: between {answer.lower:.1f} and {answer.upper:.1f} by the model's bands")

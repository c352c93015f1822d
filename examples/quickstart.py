"""Track a Gaussian-process posterior over candidates while an upper confidence bound chooses what to observe."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF

import misspec as ms

rng = np.random.default_rng(0)
domain = ms.Box([(-5, 5)]).grid(200)
truth = np.sin(domain.points[:, 0]) + 0.1 * domain.points[:, 0]
model = ms.Model(RBF(0.1), norm_bound=3.0, noise=0.2)

posterior = ms.Tracked(model, domain)
for _ in range(300):
    multiplier = ms.confidence.multiplier("mixture", model, posterior.log_det, model.delta)
    i = int((posterior.mean + multiplier * posterior.std).argmax())
    posterior.observe_index(i, truth[i] + model.noise * rng.standard_normal())

best = int(posterior.mean.argmax())
print(f"after {posterior.t} noisy observations of {posterior.distinct} distinct points (rank {posterior.rank}):")
print(f"  best mean at x = {domain.points[best, 0]:+.2f}: {posterior.mean[best]:.3f} ± {posterior.std[best]:.3f}")
print(f"  the truth is   x = {domain.points[truth.argmax(), 0]:+.2f}: {truth.max():.3f}")
print(f"  information gathered {posterior.information:.1f} nats, {ms.information_gain(domain, model, 300)}")

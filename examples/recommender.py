"""A recommender that saves itself: visitors come one by one, clicks come later or never, and the process may die.

Its lines are the class; the rest plays visitors. The chance of a click is no linear function of the vectors, and the
policy is not told by how much.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import DotProduct

import misspec as ms

VISITORS, ITEMS, PATIENCE = 4000, 8, 100  # patience: visitors after which an answer is not waited for any more
MODEL = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.5, offset=0.2)  # a click is 0 or 1, so that σ ≤ ½


class Recommender:
    """Which of the items that suit a visitor to show: vectors of at most unit length, one per item."""

    def __init__(self, path):
        domain, options = ms.Open(5, radius=1.0), {"horizon": VISITORS, "reward_range": 1.0, "width": 0.5}
        self.path, self.policy = path, ms.load(path) if path.exists() else ms.RegretBalancing(domain, MODEL, **options)

    def show(self, vectors):
        query = self.policy.ask(actions=vectors)
        if query.id % 200 == 0:
            self.policy.drop([old for old in self.policy.pending if old.id < query.id - PATIENCE])
            self.policy.save(self.path)  # whole or not at all, with what pends
        return query  # its position is the item to show

    def answer(self, query, click):
        try:
            self.policy.tell(query, float(click))
        except ms.InvalidInput:  # given up, or asked after the last save before a crash: still worth knowing
            self.policy.observe([query.x], [float(click)])


def play(folder):
    """Visitors who click or leave some time after they were shown an item; one in ten never answers. One crash."""
    rng = np.random.default_rng(0)
    taste = np.array([0.5, -0.4, 0.3, 0.2, 0.1])
    service = Recommender(folder / "recommender.misspec")
    due = {}  # answers by when they come
    clicks, at_random = np.zeros(VISITORS), np.zeros(VISITORS)
    for visitor in range(VISITORS):
        vectors = rng.standard_normal((ITEMS, 5))
        vectors *= rng.random((ITEMS, 1)) ** 0.2 / np.linalg.norm(vectors, axis=1, keepdims=True)
        chance = np.clip(0.2 + vectors @ taste + 0.05 * np.sign(np.sin(9 * vectors[:, 0])), 0.0, 1.0)
        query = service.show(vectors)
        clicks[visitor], at_random[visitor] = chance[query.position], chance.mean()
        if rng.random() < 0.9:
            due.setdefault(visitor + int(rng.exponential(20)), []).append((query, rng.random() < clicks[visitor]))
        if visitor == VISITORS // 2 + 60:
            service = Recommender(service.path)  # what came since the last save is lost, and nothing else
        for asked, click in due.pop(visitor, []):
            service.answer(asked, click)
    return service.policy, clicks, at_random


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        policy, clicks, at_random = play(Path(folder))
    print(f"{policy.t} answers, {len(policy.pending)} pending")
    for part in np.split(np.arange(VISITORS), 4):
        print(f"to {part[-1] + 1}: {clicks[part].mean():.3f} clicks per visit, {at_random[part].mean():.3f} at random")

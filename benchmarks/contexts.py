"""Contextual rounds: what they cost beside plain NumPy, MABWiser and contextualbandits, and what they lose.

    python benchmarks/contexts.py [--quick] [--only speed | budget | regret | pending] [--picture]

    speed     20 or 100 fresh actions of the unit ball per round, linear kernel, d = 8 and 50:
              a round of GP-UCB against LinUCB in plain NumPy                                    at most 5
              a round of balancing with its default bases against the same                       at most 15
              a round at t = 100,000 against one at t = 1,000                                    at most 1.3
              rounds per second on classification tables against MABWiser's LinUCB               above 1
    budget    Matérn 5/2, d = 10, 50 fresh actions of the unit cube per round, at most 500 features:
              a round at t = 20,000 against one at t = 1,000                                     at most 1.5
              regret over 3,000 rounds against that without a budget                             at most 1.2
              share of runs of 500 rounds, 100 features, whose bands miss f*                     at most δ
    regret    over 5,000 rounds, against LinUCB: GP-UCB where the truth is linear                at most 1.05
              balancing there, and on the contextual trap                                        at most 1.25 and 0.2
              balancing on classification tables, in the mean                                    at most 1
    pending   an ask with 10,000 queries pending against one with none                           at most 1.5
              posterior and bands after tells in any order                                       apart by at most 1e-9

--picture draws docs/images/contexts.png and stops. One BLAS thread, one process, whose CPU time is what counts. What is
compared is timed in turns of some rounds each; ratios are medians over turns. MABWiser and contextualbandits are
optional: pip install mabwiser contextualbandits.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import copy
from importlib import metadata
from pathlib import Path
from time import perf_counter
from time import process_time as clock  # of one thread: waiting for a core does not count

import numpy as np
from record import Figure, Record, around, slug
from sklearn.gaussian_process.kernels import DotProduct, Matern

import misspec as ms

NOISE = 0.1
BLOCK = 500  # rounds whose actions are drawn at a time
TURN, TURNS = 25, 24  # rounds per turn, and turns
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "contexts.png"
TABLES = ("digits", "wine", "breast_cancer")


FIGURES = {}  # of the part that is played


def said(what, measured, most=None, *, text="{:.2f}", least=None, key=None):
    """One line: what, measured, target. key: of the figure, where `what` has numbers that were measured."""
    figure = measured if isinstance(measured, Figure) else Figure(float(measured), form=text[2:-1])
    value, target, missed = figure.value, "-", False
    if most is not None:
        target, missed = f"at most {most:g}", not value <= most
    if least is not None:
        target, missed = f"at least {least:g}", not value >= least
    FIGURES[slug(key or what)] = figure
    print(f"{what:<96} {text.format(value):>12}   {target}{'   MISSED' if missed else ''}", flush=True)


def ratio(slow, fast):
    """Over turns."""
    return around(np.asarray(slow) / np.asarray(fast))


# -- loops ---------------------------------------------------------------------------------------------------


class Plain:
    """LinUCB as one writes it in NumPy: C = (λI + Σxxᵀ)⁻¹ by Sherman and Morrison, w = CΣxy."""

    def __init__(self, d, ridge=NOISE**2, alpha=1.0):
        self.C, self.w, self.alpha, self.t = np.eye(d) / ridge, np.zeros(d), alpha, 0

    def play(self, A, values, noise):
        P = A @ self.C
        i = int((A @ self.w + self.alpha * np.sqrt(np.einsum("ij,ij->i", P, A))).argmax())
        x, p, y = A[i], P[i], values[i] + noise
        scale = 1.0 / (1.0 + p @ x)
        self.w += (scale * (y - x @ self.w)) * p
        self.C -= p[:, None] * (scale * p)
        self.t += 1


class Player:
    """A policy that is handed a round's vectors."""

    def __init__(self, policy):
        self.policy = policy

    @property
    def t(self):
        return self.policy.t

    def play(self, A, values, noise):
        query = self.policy.ask(actions=A)
        self.policy.tell(query, float(values[query.position] + noise))


class World:
    """Fresh vectors of the unit ball or cube, block by block, and what they are worth."""

    def __init__(self, d, k, seed=0, shape="ball", worth=None):
        self.d, self.k, self.shape, self.rng = d, k, shape, np.random.default_rng(seed)
        theta = self.rng.standard_normal(d)
        theta /= np.linalg.norm(theta)
        self.worth = worth or (lambda A: A @ theta)

    def block(self, rounds=BLOCK):
        n, k, d, rng = rounds, self.k, self.d, self.rng
        if self.shape == "cube":
            A = rng.random((n, k, d))
        else:
            A = rng.standard_normal((n, k, d))
            A *= rng.random((n, k, 1)) ** (1.0 / d) / np.linalg.norm(A, axis=2, keepdims=True)
        return A, self.worth(A), NOISE * rng.standard_normal(n)

    def advance(self, loops, t):
        """All of them through the same rounds, until each has played t."""
        while any(loop.t < t for loop in loops):
            A, values, noise = self.block()
            for loop in loops:
                for r in range(min(BLOCK, t - loop.t)):
                    loop.play(A[r], values[r], noise[r])

    def timed(self, loops, turns=TURNS, turn=TURN):
        """Seconds per round: (loops, turns), each turn the same rounds for all, who goes first changing."""
        A, values, noise = self.block(turns * turn)
        found = np.empty((len(loops), turns))
        for n in range(turns):
            rounds = range(n * turn, (n + 1) * turn)
            A[rounds.start : rounds.stop].sum()  # whoever goes first would fetch them for all
            for i in np.roll(np.arange(len(loops)), n):
                play = loops[i].play
                start = clock()
                for r in rounds:
                    play(A[r], values[r], noise[r])
                found[i, n] = (clock() - start) / turn
        return found


def linear(bound=1.0):
    return ms.Model(DotProduct(sigma_0=0), norm_bound=bound, noise=NOISE)


def policies(domain, model, horizon=100_000, **options):
    return {
        "GP-UCB": ms.GPUCB(domain, model, **options),
        "EC-GP-UCB": ms.ECGPUCB(domain, model, epsilon=0.1, **options),
        "balancing": ms.RegretBalancing(domain, model, horizon=horizon, **options),
    }


# -- speed ---------------------------------------------------------------------------------------------------

MOST = {"GP-UCB": 5, "EC-GP-UCB": None, "balancing": 15}


def speed(quick):
    early, *later = (300, 3_000) if quick else (1_000, 10_000, 100_000)
    turns = 8 if quick else TURNS
    for d in (8, 50):
        for k in (20, 100):
            world, model = World(d, k), linear()
            names = list(policies(ms.Open(d), model))
            loops = [Player(p) for p in policies(ms.Open(d), model).values()]
            plain = Plain(d)
            for t in (early, *later):
                world.advance([*loops, plain], t - turns * TURN // 2)
                took = world.timed([*loops, plain], turns)
                where = f"d = {d}, {k} actions, t = {t:,}"
                said(f"{where}: NumPy, rounds per second", 1 / np.median(took[-1]), text="{:,.0f}")
                for name, seconds in zip(names, took, strict=False):
                    said(f"{where}: {name}, rounds per second", 1 / np.median(seconds), text="{:,.0f}")
                    said(f"{where}: {name} / NumPy, a round", ratio(seconds, took[-1]), MOST[name])
            fresh = [Player(p) for p in policies(ms.Open(d), model).values()]
            world.advance(fresh, early - turns * TURN // 2)
            took = world.timed([*loops, *fresh], turns)
            for name, late, soon in zip(names, took, took[len(loops) :], strict=False):
                said(f"d = {d}, {k} actions: {name}, t = {later[-1]:,} / t = {early:,}", ratio(late, soon), 1.3)
    tables(quick)


class MabWiser:
    """Its LinUCB: a model per arm, on the row's features."""

    def __init__(self, arms, features):
        from mabwiser.mab import MAB, LearningPolicy

        self.mab = MAB(list(range(arms)), LearningPolicy.LinUCB(alpha=1.0))
        self.mab.fit([0], [0.0], np.zeros((1, features)))  # it wants some data first; these say nothing

    def play(self, row, _, rewards):
        arm = self.mab.predict(row)
        self.mab.partial_fit([arm], [rewards[arm]], row)


class ContextualBandits:
    """Its LinUCB, which updates by Sherman and Morrison too."""

    def __init__(self, arms, _):
        from contextualbandits.online import LinUCB

        self.bandit = LinUCB(arms, alpha=1.0, random_state=1)

    def play(self, row, _, rewards):
        arm = self.bandit.predict(row)
        self.bandit.partial_fit(row, arm, rewards[arm])


class OnTable(Player):
    """A policy that is handed the vectors of a row's classes."""

    def play(self, _, A, rewards):
        query = self.policy.ask(actions=A)
        self.policy.tell(query, float(rewards[query.position]))


def tables(quick):
    for table in ("digits", "wine"):
        problem = ms.problems.sklearn_bandit(table)
        rows, points = problem.offers.rows, problem.domain.points
        K = rows.shape[1]
        features = points.shape[1] // K
        loops = {
            "GP-UCB": OnTable(ms.GPUCB(problem.arena, problem.model)),
            "balancing": OnTable(ms.RegretBalancing(problem.arena, problem.model, horizon=5_000)),
        }
        for package, make in {"mabwiser": MabWiser, "contextualbandits": ContextualBandits}.items():
            try:
                loops[f"{package} {metadata.version(package)}"] = make(K, features)
            except ImportError as error:
                print(f"{table}: {package} not installed ({error})")
        turn, turns = (20, 6) if quick else (50, 40)
        order = np.random.default_rng(0).integers(len(rows), size=turn * turns)
        took = {name: [] for name in loops}
        for n in range(turns):
            rounds = [
                (points[offer[0], :features][None, :].copy(), points[offer], problem.values[offer])
                for offer in rows[order[n * turn : (n + 1) * turn]]
            ]
            for name in np.roll(list(loops), n):
                start = clock()
                for each in rounds:
                    loops[name].play(*each)
                took[name].append((clock() - start) / turn)
        for name, seconds in took.items():
            said(
                f"{table}, {K} classes, d = {points.shape[1]}: {name}, rounds/s", 1 / np.median(seconds), text="{:,.0f}"
            )
        for theirs in list(loops)[2:]:
            for ours in ("GP-UCB", "balancing"):
                least = 1 if theirs.startswith("mabwiser") else None
                said(f"{table}: {ours} / {theirs}, rounds per second", ratio(took[theirs], took[ours]), least=least)


# -- budget --------------------------------------------------------------------------------------------------

SCALES = {"1": 1.0, "√10": 10**0.5}


def matern(scale):
    return ms.Model(Matern(scale, nu=2.5), norm_bound=1.0, noise=NOISE)


def budget(quick):
    budgeted_speed(quick)
    budgeted_regret(quick)
    coverage(quick)


def budgeted_speed(quick):
    early, late, size = (300, 1_000, 100) if quick else (1_000, 20_000, 500)
    turns = 6 if quick else 12
    for label, scale in SCALES.items():
        for width in ("mixture", 2.0):
            world = World(10, 50, shape="cube", worth=lambda A: np.sin(3 * A[..., 0]) * np.cos(2 * A[..., 1]))
            old, new = (Player(ms.GPUCB(ms.Open(10), matern(scale), width=width, budget=size)) for _ in range(2))
            world.advance([new], early - turns * TURN // 2)
            world.advance([old], late - turns * TURN // 2)
            ranks = f"{new.policy.posterior.rank} and {old.policy.posterior.rank} features"
            took = world.timed([old, new], turns)
            where = f"Matérn, scale {label}, width {width}"
            said(f"{where}: rounds per second at t = {late:,}", 1 / np.median(took[0]), text="{:,.0f}")
            said(f"{where}: t = {late:,} / t = {early:,} ({ranks})", ratio(*took), 1.5, key=f"{where}, late")


def budgeted_regret(quick):
    rounds, size, seeds = (400, 50, 1) if quick else (3_000, 500, 2)
    for label, scale in SCALES.items():
        for width in ("mixture", 2.0):
            found = []
            for seed in range(seeds if width == "mixture" else 1):  # 110 s per run without a budget
                problem = ms.problems.fresh_actions(
                    matern(scale), 10, 50, epsilon=0.0, misfit="none", seed=seed, rounds=rounds, shape="cube"
                )
                runs = [
                    ms.simulate(ms.GPUCB(problem.arena, problem.model, width=width, budget=b), problem, rounds, seed)
                    for b in (size, None)
                ]
                found.append([run.regret.sum() for run in runs])
            with_budget, without = np.mean(found, axis=0)
            what = (
                f"Matérn, scale {label}, width {width}: regret {with_budget:.0f} with a budget / {without:.0f} without"
            )
            said(f"{what} ({len(found)} seed(s))", with_budget / without, 1.2, key=f"{scale}, {width}, regret")


def coverage(quick):
    """Bands are cut to what the class allows, ±(B + ε), which f* cannot leave: those that say no more than that (cut)
    prove nothing. So a longer scale is added, at which hardly any is."""
    runs, rounds, checked = (15, 100, (50, 100)) if quick else (300, 500, (25, 50, 100, 200, 300, 400, 500))
    size = 20 if quick else 100
    for label, scale in {**SCALES, "10": 10.0}.items():
        for name, epsilon in (("GP-UCB", 0.0), ("EC-GP-UCB", 0.1)):
            found = [_covered(matern(scale), epsilon, seed, rounds, checked, size) for seed in range(runs)]
            missed, capped = np.mean(found, axis=0)
            what = f"Matérn, scale {label}: {name}, ε = {epsilon:g}, {size} features: share of {runs} runs that miss f*"
            said(f"{what} (cut: {capped:.0%})", missed, 0.1, text="{:.3f}", key=what)


def _covered(model, epsilon, seed, rounds, checked, size):
    """Whether the band misses f* at 50 points that are never offered, or at the round's actions, in any checked round;
    and the share of these bands that are all that the class allows."""
    problem = ms.problems.fresh_actions(
        model, 10, 50, epsilon=epsilon, misfit="random" if epsilon else "none", seed=seed, rounds=rounds + 1,
        shape="cube",
    )  # fmt: skip
    rows, points, f = problem.offers.rows, problem.domain.points, problem.values
    if epsilon:
        policy = ms.ECGPUCB(problem.arena, model, epsilon=epsilon, budget=size)
    else:
        policy = ms.GPUCB(problem.arena, model, budget=size)
    noise = NOISE * np.random.default_rng([seed, 101]).standard_normal(rounds)
    missed, capped, most = False, [], 2 * (model.norm_bound + epsilon)
    for t in range(rounds):
        query = policy.ask(actions=points[rows[t]])
        policy.tell(query, float(f[rows[t, query.position]] + noise[t]))
        if t + 1 in checked:
            looked = np.concatenate([rows[t], rows[-1]])
            band = policy.band(points[looked])
            missed |= bool(((f[looked] < band.lower - 1e-9) | (f[looked] > band.upper + 1e-9)).any())
            capped.append(np.mean(band.upper - band.lower >= 0.999 * most))
    return missed, float(np.mean(capped))


# -- regret --------------------------------------------------------------------------------------------------


def played(makers, problem_of, seeds, rounds):
    """Regret of each policy, (seeds,), and the eliminations of those that have any."""
    found, dropped = {name: [] for name in makers}, dict.fromkeys(makers, 0)
    for seed in range(seeds):
        problem = problem_of(seed)
        for name, make in makers.items():
            trace = ms.simulate(make(problem), problem, rounds, seed)
            found[name].append(float(trace.regret.sum()))
            dropped[name] += bool(trace.facts.get("eliminated"))
    return {name: np.array(each) for name, each in found.items()}, dropped


def compared(where, found, base, targets):
    for name, regrets in found.items():
        spread = f"{regrets.mean():.1f} ± {regrets.std(ddof=1) if len(regrets) > 1 else 0.0:.1f}"
        if name == base:
            print(f"{where}: {name}, regret {spread}", flush=True)
        else:
            each = regrets / found[base]
            what = f"{where}: {name}, regret {spread}, by seed {each.min():.2f} to {each.max():.2f} times; / {base}"
            said(what, regrets.mean() / found[base].mean(), targets.get(name), text="{:.3f}", key=f"{where}, {name}")


def regret(quick):
    rounds, seeds = (1_000, 2) if quick else (5_000, 5)

    makers = {
        "LinUCB": lambda p: ms.comparators.LinUCB(p.arena, p.model),
        "GP-UCB": lambda p: ms.GPUCB(p.arena, p.model),
        "EC-GP-UCB, ε = 0": lambda p: ms.ECGPUCB(p.arena, p.model, epsilon=0.0),
        "balancing": lambda p: ms.RegretBalancing(p.arena, p.model, horizon=rounds),
    }

    def true_model(seed):
        return ms.problems.fresh_actions(linear(), 8, 20, epsilon=0.0, misfit="none", seed=seed, rounds=rounds)

    found, _ = played(makers, true_model, seeds, rounds)
    compared("linear truth", found, "LinUCB", {"GP-UCB": 1.05, "EC-GP-UCB, ε = 0": 1.05, "balancing": 1.25})

    makers = {
        "LinUCB": lambda p: ms.comparators.LinUCB(p.arena, p.model),
        "linear Thompson": lambda p: ms.comparators.LinearThompson(p.arena, p.model, seed=1),
        "balancing": lambda p: ms.RegretBalancing(p.arena, p.model, horizon=rounds),
        "balancing, Open": lambda p: ms.RegretBalancing(ms.Open(p.domain.dimension), p.model, horizon=rounds),
    }
    for where, make, most in (
        ("trap", ms.problems.contextual_trap, 0.2),
        ("needle", ms.problems.contextual_needle, None),
    ):
        found, dropped = played(makers, lambda seed, make=make: make(seed=seed), seeds, rounds)
        compared(where, found, "LinUCB", {"balancing": most, "balancing, Open": most})
        for name in ("balancing", "balancing, Open"):
            said(f"{where}: {name}, runs of {seeds} in which a base was eliminated", dropped[name], text="{:.0f}")

    on_tables(rounds, seeds)


def on_tables(rounds, seeds):
    kinds = {"defaults": {}, "width 1": {"width": 1.0}}
    ratios = {kind: [] for kind in kinds}
    for table in TABLES:
        problem = ms.problems.sklearn_bandit(table)
        for kind, options in kinds.items():

            def balancing(p, options=options):
                return ms.RegretBalancing(
                    p.arena, p.model, horizon=rounds, reward_range=1.0, epsilon_max=1.0, **options
                )

            makers = {
                "LinUCB": lambda p, o=options: ms.comparators.LinUCB(p.arena, p.model, **o),
                "balancing": balancing,
            }
            found, _ = played(makers, lambda _, p=problem: p, seeds, rounds)
            compared(f"{table}, {kind}", found, "LinUCB", {})
            ratios[kind].append(found["balancing"].mean() / found["LinUCB"].mean())
    for kind, each in ratios.items():
        said(f"tables, {kind}: balancing / LinUCB, mean over {len(each)} tables", np.mean(each), 1.0, text="{:.3f}")


# -- pending -------------------------------------------------------------------------------------------------


def pending(quick):
    count, before = (1_000, 100) if quick else (10_000, 1_000)
    trap = ms.problems.contextual_trap()
    for where in ("Open(8), 20 actions", "trap, Finite"):
        world, rng = World(8, 20), np.random.default_rng(1)
        on_open = where.startswith("Open")
        domain, model = (ms.Open(8), linear()) if on_open else (trap.domain, trap.model)
        for name in policies(domain, model):
            if on_open:
                A, values, _ = world.block(before + count + 600)
                rounds = list(zip(A, values, strict=True))
            else:
                offers = trap.offers.draw(rng, before + count + 600)
                rounds = [(offer, trap.values[offer]) for offer in offers]
            waiting, idle = (policies(domain, model, count)[name] for _ in range(2))
            for policy in (waiting, idle):
                for actions, value in rounds[:before]:
                    query = policy.ask(actions=actions)
                    policy.tell(query, float(value[query.position]))
            y = {}  # results by id
            for actions, value in rounds[before : before + count]:
                query = waiting.ask(actions=actions)
                y[query.id] = float(value[query.position] + NOISE * rng.standard_normal())
            said(f"{where}: {name}, queries pending", len(waiting.pending), text="{:,.0f}")
            _asking(where, name, waiting, idle, rounds[before + count :], y, rng)
            _ordered(where, name, waiting, domain, y, rng)
    _eliminating(4 * count if quick else count)
    logged(quick)


def _asking(where, name, waiting, idle, rounds, y, rng):
    """An ask while many are pending and while none is; in between the query is dropped, or the oldest one told."""
    for between in ("drop", "tell"):
        took = np.empty((4, 300))  # an ask of both, then what comes between
        for n, (actions, value) in enumerate(rounds[:300]):
            for which, policy in enumerate((waiting, idle)):
                start = clock()
                query = policy.ask(actions=actions)
                took[which, n] = clock() - start
                result = float(value[query.position] + NOISE * rng.standard_normal())
                if policy is waiting and between == "tell":
                    y[query.id] = result
                    query = min(y)
                    result = y.pop(query)
                start = clock()
                if between == "drop":
                    policy.drop(query)
                else:
                    policy.tell(query, result)
                took[2 + which, n] = clock() - start
        of = np.median(took.reshape(4, -1, 10), axis=2)  # turns of ten
        with_many = f"with {len(y):,} pending / none"
        said(f"{where}: {name}, an ask, {between}s in between: {with_many}", ratio(of[0], of[1]), 1.5)
        said(f"{where}: {name}, a {between}: {with_many}", ratio(of[2], of[3]))


def _ordered(where, name, policy, domain, y, rng):
    """All that pends, told as asked and told in a random order."""
    twin = copy.deepcopy(policy)
    ids = np.array(sorted(y))
    start = clock()
    for id_ in ids:
        twin.tell(int(id_), y[id_])
    in_order = clock() - start
    start = clock()
    for id_ in rng.permutation(ids):
        policy.tell(int(id_), y[id_])
    anyhow = clock() - start
    X = World(domain.dimension, 100, seed=5).block(1)[0][0] if isinstance(domain, ms.Open) else domain.points
    both = [(p.posterior.at(X)[0], *p.band(X)) for p in (policy, twin)]
    means, bands = (max(float(np.abs(a - b).max()) for a, b in zip(*[o[s] for o in both], strict=True)) for s in _PARTS)
    said(f"{where}: {name}, {len(ids):,} tells in any order, posterior means apart", means, 1e-9, text="{:.1e}")
    said(f"{where}: {name}, {len(ids):,} tells in any order, bands apart", bands, 1e-9, text="{:.1e}")
    said(f"{where}: {name}, a tell in random order / as asked", anyhow / in_order)
    if name == "balancing":
        same = (policy.counts, policy.active, policy.eliminated) == (twin.counts, twin.active, twin.eliminated)
        apart = np.abs(np.subtract(policy.candidate_bounds, twin.candidate_bounds)).max()
        said(f"{where}: balancing, candidate bounds apart", apart, 1e-9, text="{:.1e}")
        said(
            f"{where}: balancing, counts and eliminations equal ({len(twin.eliminated)})",
            int(same),
            least=1,
            text="{:.0f}",
            key=f"{where}: balancing, equal",
        )


class Blind:
    """A linear kernel that does not see the first coordinate."""

    def __call__(self, X, Z=None):
        return X[:, 1:] @ (X if Z is None else Z)[:, 1:].T

    def diag(self, X):
        return np.einsum("nd,nd->n", X[:, 1:], X[:, 1:])


def _eliminating(count):
    """A base whose ε̂ = 0 is wrong, since its model is blind to what matters: dropped, whatever the order of tells."""
    world, rng = World(8, 20, worth=lambda A: A[..., 0]), np.random.default_rng(4)
    blind = ms.Model(Blind(), norm_bound=1.0, noise=NOISE)
    bases = [(linear(), 0.0), (blind, 0.0)]
    policy = ms.RegretBalancing(ms.Open(8), linear(), horizon=count, bases=bases, reward_range=2.0)
    played = ms.RegretBalancing(ms.Open(8), linear(), horizon=count, bases=bases, reward_range=2.0)
    y, told = {}, count // 20  # the first results come at once, so that bounds are of some use
    for t, (actions, value, e) in enumerate(zip(*world.block(count + told), strict=True)):
        query = policy.ask(actions=actions)
        y[query.id] = float(value[query.position] + e)
        if t < told:
            policy.tell(query, y.pop(query.id))
        query = played.ask(actions=actions)
        played.tell(query, float(value[query.position] + e))
    first = played.eliminated[0].round if played.eliminated else 0
    said(
        f"a blind base, told at once: eliminations (the first in round {first:,})",
        len(played.eliminated),
        least=1,
        text="{:.0f}",
    )
    _ordered("a blind base", "balancing", policy, policy.domain, y, rng)


_PARTS = (slice(0, 1), slice(1, 3))


def logged(quick):
    n = 10_000 if quick else 100_000
    rng = np.random.default_rng(2)
    for what, domain, model, options, X in (
        ("linear kernel, d = 8", ms.Open(8), linear(), {}, World(8, n, seed=3).block(1)[0][0]),
        ("Matérn, d = 10, budget 500", ms.Open(10), matern(1.0), {"budget": 500}, rng.random((n, 10))),
    ):
        y = 0.5 * X[:, 0] + NOISE * rng.standard_normal(n)
        for name, policy in policies(domain, model, **options).items():
            start = clock()
            policy.observe(X, y)
            said(f"{what}: {name}, observe of {n:,} rows, seconds", clock() - start)


# -- the picture ---------------------------------------------------------------------------------------------


def picture(quick):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from misspec.reports.style import COLOURS

    colours = dict(zip(("balancing", "GP-UCB", "EC-GP-UCB", "NumPy", "Thompson"), COLOURS, strict=False))
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")

    marks = (100, 300, 1_000, 3_000) if quick else (300, 1_000, 3_000, 10_000, 30_000, 100_000)
    world, model = World(8, 20), linear()
    players = {name: Player(p) for name, p in policies(ms.Open(8), model).items()}
    loops = {"NumPy": Plain(8), **players}
    rates = []
    turns = 6 if quick else 12  # up to half of them before the first mark
    for t in marks:
        world.advance(list(loops.values()), max(0, t - turns * TURN // 2))
        rates.append(1 / np.median(world.timed(list(loops.values()), turns), axis=1))
    for name, rate in zip(loops, np.array(rates).T, strict=True):
        label = "LinUCB in plain NumPy" if name == "NumPy" else name
        left.plot(marks, rate, "o-", color=colours[name], label=label, lw=2, ms=4)
    left.set(xscale="log", yscale="log", xlabel="round t", ylabel="rounds per second")
    left.set_ylim(1_000, 200_000)
    left.set_title("20 fresh actions per round, linear kernel, d = 8", fontsize=11)
    left.legend(frameon=False, ncols=2, loc="upper left", fontsize=9)

    rounds, seeds = (1_000, 2) if quick else (5_000, 10)
    makers = {
        "LinUCB": ("NumPy", lambda p: ms.comparators.LinUCB(p.arena, p.model)),
        "linear Thompson": ("Thompson", lambda p: ms.comparators.LinearThompson(p.arena, p.model, seed=1)),
        "balancing, ε unknown": ("balancing", lambda p: ms.RegretBalancing(p.arena, p.model, horizon=rounds)),
    }
    ends = []
    for name, (colour, make) in makers.items():
        curves = []
        for seed in range(seeds):
            problem = ms.problems.contextual_trap(seed=seed)
            curves.append(ms.simulate(make(problem), problem, rounds, seed).cumulative_regret)
        mean, spread, t = np.mean(curves, axis=0), np.std(curves, axis=0), np.arange(1, rounds + 1)
        right.plot(t, mean, color=colours[colour], lw=2)
        right.fill_between(t, mean - spread, mean + spread, color=colours[colour], alpha=0.18, lw=0)
        ends.append((mean[-1], name, colours[colour]))
    least = 0.06 * max(end for end, _, _ in ends)  # labels that do not touch
    place = -least
    for end, name, colour in sorted(ends):
        place = max(end, place + least)
        right.text(rounds * 1.02, place, name, va="center", color=colour, fontsize=9)
    right.set(xlabel="round t", ylabel="cumulative regret", ylim=(0, None), xlim=(0, rounds * 1.3))
    right.set_xticks(np.arange(0, rounds + 1, rounds // 5))
    right.set_title(f"the contextual trap: mean and spread of {seeds} seeds", fontsize=11)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, lw=0.6)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(PICTURE, dpi=130)
    print(f"drawn: {PICTURE}")


PARTS = {"speed": speed, "budget": budget, "regret": regret, "pending": pending}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, to see that it runs")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--picture", action="store_true", help=f"draw {PICTURE.name} and stop")
    given = parser.parse_args()
    if given.picture:
        picture(given.quick)
        return
    record = Record("contexts", protocol="quick" if given.quick else "whole", quick=given.quick)
    for name, part in PARTS.items():
        if given.only in (None, name):
            record.measure(name, lambda part=part: figures(part, given.quick))


def figures(part, quick):
    FIGURES.clear()
    start = perf_counter()
    print(f"-- {part.__name__}", flush=True)
    part(quick)
    print(f"-- {part.__name__}: {perf_counter() - start:.0f} s", flush=True)
    return dict(FIGURES)


if __name__ == "__main__":
    main()

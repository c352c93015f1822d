"""Policies that are not told ε, from benign to hostile: what each costs without misfit, and its worst case.

    python benchmarks/regret.py --part development       plays what is not played yet, then reports
    python benchmarks/regret.py --report                 reports only
    python benchmarks/regret.py --search                 seeks the misfits that are still missing
    python benchmarks/regret.py --search --against recommended

Instances come from `regret_worlds.py`; a third of them is held out, to be looked at once. Runs are stored under --out
(one experiment of this library per horizon and kind of world), so that a stopped command goes on where it was. The
report is markdown with one picture. Regret is divided by the best in hindsight: the least mean over seeds among the
policies that are not told ε, both at least 0.001 of the range per round.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import regret_worlds as worlds

import misspec as ms
from misspec import experiments
from misspec.experiments import construct

RECOMMENDED = "insured"
POLICIES = {
    "GP-UCB": {"kind": "GPUCB"},
    "grounded GP-UCB": {"kind": "GPUCB", "grounded": True},
    "GP-UCB width 2": {"kind": "GPUCB", "width": 2.0},
    "Thompson": {"kind": "ThompsonSampling", "width": 1.0},
    RECOMMENDED: {"kind": "InsuredUCB"},
    "uninsured": {"kind": "InsuredUCB", "premium": 0.0},
    "balancing": {"kind": "RegretBalancing"},
    "balancing price 8": {"kind": "RegretBalancing", "price": 8.0, "caution": "price"},
    "balancing price 32": {"kind": "RegretBalancing", "price": 32.0, "caution": "price"},
    "balancing rounds": {"kind": "RegretBalancing", "caution": "rounds"},
    "phased": {"kind": "PhasedUncertaintySampling"},
    "phased elimination": {"kind": "PhasedElimination"},
    "RIPS": {"kind": "RIPS"},
    "Corral": {"kind": "Corral"},
    "LB-GP-UCB": {"kind": "LBGPUCB"},
    "IGP-UCB": {"kind": "IGPUCB"},
    "GP-TS": {"kind": "GPTS"},
    "LinUCB": {"kind": "LinUCB"},
    "uniform": {"kind": "UniformSampling"},
    "EC-GP-UCB told ε": {"kind": "ECGPUCB", "epsilon": construct.KNOWN},
}
POLICIES = {name: table for name, table in POLICIES.items() if table["kind"] in construct.POLICIES}
SLOW = ("balancing price 32", "RIPS", "Corral", "LB-GP-UCB", "IGP-UCB", "GP-TS")
MOST_ROUNDS = dict.fromkeys(SLOW, 3_000)  # of policies too slow for the longer instances, which they sit out
FLOOR = 0.001  # of the range per round: less than this nobody is asked for
RESAMPLES = 2_000
PREFIX = 3_000  # rounds, beside all of them, where misfits were sought against grounded GP-UCB
OUT = Path(__file__).parents[1] / "build" / "regret"


def told(policy):
    """Whether it is told ε, or what follows from it."""
    table = POLICIES[policy]
    wanted = construct.arguments(construct.policy_class(table["kind"]))
    return any(
        name in wanted and table.get(name, construct.KNOWN) == construct.KNOWN for name in ("epsilon", "corruption")
    )


def plays(policy, instance):
    """Whether it can play the instance, and is meant to."""
    kind, longest = POLICIES[policy]["kind"], MOST_ROUNDS.get(policy, math.inf)
    able = construct.policy_class(kind).abilities.takes_actions or not instance.contextual
    able &= instance.linear or not kind.startswith("Lin")
    able &= kind != "LBGPUCB" or not instance.linear  # there is no length scale
    return able and instance.horizon <= longest


# -- the search for misfits --------------------------------------------------------------------------------------------

BUDGET = {"starts": worlds.STARTS, "misfits per start": 40, "worlds": 2, "rounds": 1_000}


def search(against, at_most, redo):
    """Seek the misfits that are still missing, one after the other; each is written down when it is found."""
    attacked = [e for e in worlds.everything() if e.against]
    chosen = [e for e in attacked if (e.against == against if against else e.group != worlds.RECOMMENDED)]
    if redo:
        write({name: each for name, each in worlds.found().items() if name not in {e.name for e in chosen}})
    for each in [e for e in chosen if e.name not in worlds.found()][:at_most]:
        start = time.perf_counter()
        found = sought(each)
        write(worlds.found() | {each.name: found})
        print(f"{each.name}: {found['before']} → {found['judged']}, {time.perf_counter() - start:.0f} s", flush=True)


def write(found):
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(found.items()))
    text = f'{{\n "budget": {json.dumps(BUDGET)},\n "found": {{\n{lines}\n }}\n}}\n'
    worlds.ADVERSARIES.write_text(text, encoding="utf-8")


def sought(instance):
    """Of the misfits tried, with each of a few f̃, the one with the most regret in the worlds of the search.

    before, judged: regret per round of the policy attacked, with random signs and with those found, in other worlds.
    """
    rounds = BUDGET["rounds"]
    table = {"as_in_paper": False, **POLICIES[RECOMMENDED if instance.against == "recommended" else instance.against]}

    def make(p):
        return construct.make_policy(table, p.arena, p.model, p.epsilon, rounds, seed=0)

    attacks = []
    for start in range(BUDGET["starts"]):
        problem = worlds.problem(**instance.recipe, start=start)
        attacks.append(
            ms.adversary.worst_misfit(
                make, problem, rounds, tries=BUDGET["misfits per start"], worlds=BUDGET["worlds"], seed=start
            )
        )
    start = max(range(len(attacks)), key=lambda k: attacks[k].path[-1])
    best = attacks[start]
    return {
        "start": start,
        "signs": "".join("+" if m > 0 else "-" for m in best.problem.misfit),
        "before": round(best.before, 4),
        "searched": round(float(best.path[-1]), 4),
        "judged": round(best.regret, 4),
    }


# -- running -----------------------------------------------------------------------------------------------------------


class Part:
    """Instances of one horizon and one kind of world: an experiment, and the folder of its runs."""

    def __init__(self, out, instances, rounds, seeds):
        first, self.instances, self.seeds = instances[0], instances, seeds
        self.horizon = min(first.horizon, rounds or first.horizon)
        kind = "-contextual" * first.contextual + "-linear" * first.linear
        self.folder = experiments.Folder(out / f"{self.horizon}{kind}")
        self.policies = [name for name in POLICIES if plays(name, first)]

    def toml(self, policies):
        ready = worlds.recipes()
        text = [f"horizon = {self.horizon}\nseeds = {list(range(self.seeds))}"]
        for each in self.instances:
            kind = "regret_worlds:contextual_problem" if each.contextual else "regret_worlds:problem"
            text.append(table("problems", {"kind": kind, "name": each.name, **ready[each.name]}))
        text += [table("policies", {"name": name, **POLICIES[name]}) for name in self.policies if name in policies]
        return "\n".join(text).encode()

    def runs(self, policies):
        """Those asked for, each with its file where it is done."""
        with experiments.allow("regret_worlds"):
            files, found = self.folder.files(), experiments.parse(self.toml(policies), "regret.toml").runs()
        return [(run, files.get(run.key)) for run in found]


def table(name, entries):
    """A TOML table; its values are written as in JSON."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items()]
    return "\n".join([f"[[{name}]]", *lines])


def parts_of(instances, given):
    """Short horizons first. Instances whose misfit is not yet sought are left out."""
    ready, found = worlds.recipes(), {}
    for each in instances:
        if each.name in ready:
            found.setdefault((each.horizon, each.contextual, each.linear), []).append(each)
    return [Part(given.out, group, given.rounds, given.seeds) for _, group in sorted(found.items())]


def play(parts, policies, cores):
    """What is not played yet."""
    for part in parts:
        if not set(policies) & set(part.policies):
            continue
        start = time.perf_counter()
        done = experiments.go(
            part.toml(policies), part.folder.path, name="regret.toml", cores=cores, allow=["regret_worlds"]
        )
        took = f"{time.perf_counter() - start:.0f} s"
        print(f"{part.folder.path.name}: {done.runs} runs, {done.before} before, {took}", flush=True)
        for run, why in done.failed.items():
            print(f"  failed: {run}: {why}", flush=True)


def forget(parts, policies):
    """Remove the runs of these policies: their code has changed."""
    for part in parts:
        for run, file in part.runs(POLICIES):
            if file is not None and run.policy in policies:
                file.unlink()


# -- what came out -----------------------------------------------------------------------------------------------------


class Outcome:
    """Regret per round by instance, policy and seed, in units of the range; NaN where there is no run."""

    def __init__(self, parts, seeds):
        self.instances = [each for part in parts for each in part.instances]
        self.policies = list(POLICIES)
        shape = len(self.instances), len(self.policies), seeds
        self.regret, self.early, self.seconds = (np.full(shape, np.nan) for _ in range(3))
        self.of = self.done = 0
        self.horizons = np.array([part.horizon for part in parts for _ in part.instances])
        ready = worlds.recipes()
        problems = [worlds.problem(**ready[each.name]) for each in self.instances]
        self.epsilons, spans = [p.epsilon for p in problems], [float(np.ptp(p.values)) for p in problems]
        rows = {each.name: i for i, each in enumerate(self.instances)}
        for part in parts:
            for run, file in part.runs(POLICIES):
                self.of += 1
                if file is not None:
                    finished = part.folder.read(run, file)
                    i, j = rows[run.problem], self.policies.index(run.policy)
                    self.regret[i, j, run.seed] = finished.regret.mean() / spans[i]
                    self.early[i, j, run.seed] = finished.regret[:PREFIX].mean() / spans[i]
                    self.seconds[i, j, run.seed] = finished.facts["seconds"]
                    self.done += 1
        self.rivals = np.array([not told(name) for name in self.policies])

    def rows(self, *groups, contextual=None):
        """The places of the instances of these groups."""
        return [
            i for i, each in enumerate(self.instances) if each.group in groups and contextual in (None, each.contextual)
        ]

    def to_best(self, regret):
        """(instances, policies): divided by the best in hindsight among those not told ε."""
        means = floored(regret)
        best = np.where(np.isnan(means), np.inf, means)[:, self.rivals].min(axis=1, keepdims=True)
        return means / np.where(np.isinf(best), np.nan, best)

    def to_gp_ucb(self, regret):
        """(instances, policies): divided by the regret of GP-UCB."""
        means = floored(regret)
        return means / means[:, [self.policies.index("GP-UCB")]]

    def summary(self, rows, ratio):
        """Geometric mean and worst ratio of every policy over these instances, (policies,) each, and 95 % intervals of
        both, (2, policies) each, from resampled instances and seeds."""
        regret, rng = self.regret[rows], np.random.default_rng(0)
        geometric, worst = summed(ratio(regret))
        samples = []
        for _ in range(RESAMPLES):
            some = rng.integers(len(rows), size=len(rows))
            seeds = rng.integers(regret.shape[2], size=(len(rows), 1, regret.shape[2]))
            samples.append(summed(ratio(np.take_along_axis(regret[some], seeds, axis=2))))
        ends, there = np.full((2, 2, len(worst)), np.nan), ~np.isnan(worst)  # ends, geometric or worst, policies
        ends[:, :, there] = np.nanpercentile(np.array(samples)[:, :, there], [2.5, 97.5], axis=0)
        return geometric, worst, ends[:, 0], ends[:, 1]


def floored(regret):
    """The mean over seeds, at least the floor."""
    return np.maximum(regret.mean(axis=2), FLOOR)


def summed(ratios):
    """Geometric mean and largest of each column, over what there is."""
    missing = np.isnan(ratios)
    count = np.maximum(1, (~missing).sum(axis=0))
    none = missing.all(axis=0)
    geometric = np.exp(np.where(missing, 0.0, np.log(ratios)).sum(axis=0) / count)
    worst = np.where(missing, 0.0, ratios).max(axis=0, initial=0.0)
    return np.where(none, np.nan, geometric), np.where(none, np.nan, worst)


# -- the report --------------------------------------------------------------------------------------------------------


def report(outcome, out, part):
    """A markdown file and a picture, named after the part, in the folder."""
    well, misfit, adversarial = common = (worlds.WELL, worlds.MISFIT, worlds.ADVERSARIAL)
    everything, apart = outcome.rows(*common), outcome.rows(worlds.RECOMMENDED)
    grounded = [i for i in everything if outcome.instances[i].against == "grounded GP-UCB"]
    text = [heading(outcome, part), f"![price without misfit against worst case](regret-{part}.png)"]
    for name, groups in {"all": common, well: (well,), misfit: (misfit,), adversarial: (adversarial,)}.items():
        title = f"Relative to the best in hindsight: {name}"
        text.append(summary_table(outcome, title, outcome.rows(*groups), outcome.to_best))
    text.append(price_table(outcome))
    for name, groups in {"all with misfits": common[1:], misfit: (misfit,), adversarial: (adversarial,)}.items():
        text.append(summary_table(outcome, f"Relative to GP-UCB: {name}", outcome.rows(*groups), outcome.to_gp_ucb))
    for what, values in ((f"the first {PREFIX:,} rounds", outcome.early), ("all rounds", outcome.regret)):
        text.append(regret_table(outcome, f"Sought against grounded GP-UCB, {what}", grounded, values))
    text.append(regret_table(outcome, f"Sought against the recommended ({RECOMMENDED})", apart, outcome.regret))
    text += [instance_table(outcome, everything + apart), search_table(outcome), time_table(outcome)]
    out.mkdir(parents=True, exist_ok=True)
    picture(outcome, everything, out / f"regret-{part}.png")
    (out / f"report-{part}.md").write_text("\n\n".join(each for each in text if each) + "\n", encoding="utf-8")
    print(f"{out / f'report-{part}.md'}: {outcome.done} of {outcome.of} runs")


def heading(outcome, part):
    b = BUDGET
    searched = f"{b['starts']} f̃ × {b['misfits per start']} misfits × {b['worlds']} worlds × {b['rounds']:,} rounds"
    limits = "".join(f", {name} up to T = {most:,}" for name, most in MOST_ROUNDS.items() if name in POLICIES)
    return f"""# Policies that are not told ε

Instances: {len(outcome.instances)} ({part}); {outcome.done} of {outcome.of} runs. Regret per round is a mean over
seeds, at least {FLOOR:g} of the range; the best in hindsight is the least of those who are not told ε. Intervals are
95 %, from {RESAMPLES:,} resamples of instances and seeds. The adversary's search, per instance: {searched}.
Instances sought against the recommended policy stand apart and enter no mean. Not everybody plays everything (n says
how much): phased policies no contextual instances, LinUCB linear kernels only, LB-GP-UCB no linear ones{limits}."""


def summary_table(outcome, title, rows, ratio):
    if not rows:
        return ""
    geometric, worst, around, around_worst = outcome.summary(rows, ratio)
    ratios, lines = ratio(outcome.regret[rows]), []
    for j in np.argsort(np.where(np.isnan(worst), np.inf, worst), kind="stable"):
        if np.isnan(worst[j]):
            continue
        where = outcome.instances[rows[int(np.nanargmax(ratios[:, j]))]].name
        lines.append(
            [
                outcome.policies[j],
                f"{shown(geometric[j])} ({shown(around[0, j])}–{shown(around[1, j])})",
                f"{shown(worst[j])} ({shown(around_worst[0, j])}–{shown(around_worst[1, j])})",
                where,
                int((~np.isnan(ratios[:, j])).sum()),
            ]
        )
    return markdown(title, ["policy", "geometric mean", "worst", "worst at", "n"], lines)


def price_table(outcome):
    """Without misfit, relative to GP-UCB, by dimension."""
    fixed, ratios = outcome.rows(worlds.WELL, contextual=False), outcome.to_gp_ucb(outcome.regret)
    columns = {
        f"d = {d}": [i for i in fixed if outcome.instances[i].dimension == d]
        for d in sorted({outcome.instances[i].dimension for i in fixed})
    }
    columns |= {"contextual": outcome.rows(worlds.WELL, contextual=True)}
    columns = {"all": outcome.rows(worlds.WELL)} | {name: rows for name, rows in columns.items() if rows}
    means = [summed(ratios[rows])[0] for rows in columns.values()]
    played = [j for j in range(len(outcome.policies)) if not np.isnan(means[0][j])]
    lines = [[outcome.policies[j], *(shown(each[j]) for each in means)] for j in played]
    return markdown("Price without misfit: regret relative to GP-UCB's", ["policy", *columns], lines)


def regret_table(outcome, title, rows, values):
    """Regret per round in thousandths of the range."""
    means = 1000 * values.mean(axis=2)
    played = [j for j in range(len(outcome.policies)) if rows and not np.isnan(means[rows, j]).all()]
    lines = [
        [outcome.instances[i].name, f"{outcome.horizons[i]:,}", f"{outcome.epsilons[i]:.2g}"]
        + [shown(means[i, j]) for j in played]
        for i in rows
    ]
    names = ["instance", "T", "ε", *(outcome.policies[j] for j in played)]
    return markdown(f"{title}: regret per round in thousandths of the range", names, lines)


def instance_table(outcome, rows):
    ratios, means = outcome.to_best(outcome.regret), floored(outcome.regret)
    lines = []
    for i in rows:
        each, best = outcome.instances[i], np.nanmin(np.append(means[i, outcome.rivals], np.inf))
        r = each.recipe
        lines.append(
            [
                *(each.name, r["covariance"], each.dimension, f"{outcome.horizons[i]:,}", r["sigma"]),
                *(f"{outcome.epsilons[i]:.2g}", shown(1000 * best), *(shown(ratio) for ratio in ratios[i])),
            ]
        )
    names = ["instance", "kernel", "d", "T", "σ / range", "ε", "best, ‰ of the range", *outcome.policies]
    return markdown("Every instance, relative to the best in hindsight", names, lines)


def search_table(outcome):
    found = worlds.found()
    lines = [
        [each.name, each.against, found[each.name]["before"], found[each.name]["judged"]]
        for each in outcome.instances
        if each.name in found
    ]
    names = ["instance", "against", "random signs", "signs found"]
    return markdown("What the searches reached: regret per round of the policy attacked, in other worlds", names, lines)


def time_table(outcome):
    seconds, rounds = outcome.seconds, np.broadcast_to(outcome.horizons[:, None, None], outcome.seconds.shape)
    lines = []
    for j, name in enumerate(outcome.policies):
        done = ~np.isnan(seconds[:, j])
        if done.any():
            spent = seconds[:, j][done].sum()
            lines.append([name, f"{1000 * spent / rounds[:, j][done].sum():.2f}", f"{spent / 60:.1f}"])
    lines.append(["all", "", f"{np.nansum(seconds) / 60:.1f}"])
    return markdown("Time", ["policy", "ms per round", "minutes of one core"], lines)


def shown(number):
    """A ratio, short; nothing where there is none."""
    if not np.isfinite(number):
        return ""
    return f"{number:.2f}" if number < 10 else f"{number:.0f}" if number < 1000 else f"{number:,.0f}"


def markdown(title, names, lines):
    if not lines:
        return ""
    rows = [names, ["---"] * len(names), *lines]
    return "\n".join([f"## {title}", "", *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)])


def picture(outcome, rows, path):
    """Price without misfit against the worst case, one point per policy."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from misspec.reports.style import COLOURS

    ratios = outcome.to_best(outcome.regret)
    price = summed(ratios[outcome.rows(worlds.WELL)])[0]
    worst = summed(ratios[rows])[1]
    count = (~np.isnan(ratios[rows])).sum(axis=0)
    most = count.max(initial=1)
    drawn = [j for j in range(len(outcome.policies)) if np.isfinite(price[j]) and 2 * count[j] >= most]
    drawn = [
        j for j in drawn if outcome.policies[j] not in ("balancing price 8", "balancing price 32")
    ]  # beside another
    if not drawn:
        return
    fig, axis = plt.subplots(figsize=(8.5, 6.2), layout="constrained")
    axis.set(xscale="log", yscale="log")
    for j in drawn:
        name = outcome.policies[j]
        colour = COLOURS[1] if name == RECOMMENDED else COLOURS[6] if told(name) else COLOURS[0]
        fill = colour if count[j] == most else "white"
        axis.plot(price[j], worst[j], "o", color=colour, mfc=fill, ms=7, mew=1.6, zorder=3)
    x, y = price[drawn], worst[drawn]
    axis.set_xlim(min(0.8, 0.8 * x.min()), 1.8 * x.max())
    axis.set_ylim(min(0.8, 0.8 * y.min()), 1.8 * y.max())
    axis.plot(1, 1, "*", color="black", ms=13, zorder=3)
    axis.set_xlabel("price without misfit (geometric mean of regret / best in hindsight)")
    axis.set_ylabel("worst case over all instances (regret / best in hindsight)")
    axis.grid(alpha=0.25, lw=0.6, which="both")
    axis.spines[["top", "right"]].set_visible(False)
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if value in (1.5, 2, 3, 5, 20, 50) else "")
    ideal = (1.0, 1.0, "the best in hindsight everywhere")
    place_labels(axis, [ideal, *((price[j], worst[j], label(outcome, j)) for j in drawn)])
    axis.set_title("Policies that are not told ε; hollow: sits out some of the instances; grey: told ε", fontsize=10)
    fig.savefig(path, dpi=130)
    plt.close(fig)


def label(outcome, j):
    name = outcome.policies[j]
    return f"{name} (recommended)" if name == RECOMMENDED else name


def place_labels(axis, points):
    """Text beside each point, in the first of many places where it meets no point and no other text."""
    figure = axis.figure
    figure.canvas.draw()
    spots = [axis.transData.transform((x, y)) for x, y, _ in points]
    limits, taken = axis.get_window_extent(), []
    angles = np.deg2rad([0, 180, 90, 270, 45, 315, 135, 225, 20, 340, 160, 200, 70, 110, 250, 290])
    for (x, y, text), _ in sorted(zip(points, spots, strict=True), key=lambda each: each[1][1]):
        best = None
        for distance in (9, 16, 26, 38, 52, 70, 90, 120):
            for angle in angles:
                across, up = distance * np.cos(angle), distance * np.sin(angle)
                side = "left" if across > 1 else "right" if across < -1 else "center"
                note = axis.annotate(
                    text, (x, y), (across, up), textcoords="offset points", ha=side, va="center", fontsize=9,
                    arrowprops={"arrowstyle": "-", "lw": 0.6, "color": "0.5", "shrinkB": 4} if distance > 16 else None,
                )  # fmt: skip
                box = note.get_window_extent().padded(2) if distance <= 16 else text_box(note).padded(2)
                free = not any(box.overlaps(other) for other in taken) and not any(box.contains(*s) for s in spots)
                inside = limits.x0 <= box.x0 and box.x1 <= limits.x1 and limits.y0 <= box.y0 and box.y1 <= limits.y1
                if free and inside:
                    best = note
                    taken.append(box)
                    break
                note.remove()
            if best is not None:
                break


def text_box(note):
    """The box of a note's text alone, without its line."""
    from matplotlib.text import Text

    return Text.get_window_extent(note)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("development", "held-out", "all", *worlds.FRESH), default="development")
    parser.add_argument("--policies", help="some of them, names separated by commas; all by default")
    parser.add_argument("--horizon-at-most", type=int, default=10**9, metavar="T", help="instances no longer than that")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="play every instance no longer than that, to see that it runs")
    parser.add_argument(
        "--redo", action="store_true", help="forget the runs of --policies (or misfits) first: code has changed"
    )
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--report", action="store_true", help="report what there is, play nothing")
    parser.add_argument("--search", action="store_true", help="seek the misfits that are missing, and stop")
    parser.add_argument("--against", help="with --search: the policy to seek against, or 'recommended'")
    parser.add_argument("--at-most", type=int, metavar="N", help="with --search: so many misfits")
    given = parser.parse_args()
    if given.search:
        search(given.against, given.at_most, given.redo)
        return
    names = list(POLICIES) if given.policies is None else [each.strip() for each in given.policies.split(",")]
    unknown = set(names) - set(POLICIES)
    if unknown:
        parser.error(f"no policy {sorted(unknown)[0]!r}; there are {', '.join(POLICIES)}")
    wanted = {"development": (False,), "held-out": (True,), "all": (False, True)}.get(given.part, (True,))
    there = worlds.fresh(given.part) if given.part in worlds.FRESH else worlds.instances()
    chosen = [e for e in there if e.held_out in wanted and e.horizon <= given.horizon_at_most]
    parts = parts_of(chosen, given)
    if given.redo and not given.report:
        forget(parts, names)
    if not given.report:
        play(parts, names, given.cores)
    report(Outcome(parts, given.seeds), given.out, given.part)


if __name__ == "__main__":
    main()

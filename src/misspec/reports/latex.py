"""Tables of an experiment for LaTeX, and the papers of its policies for BibTeX."""

from __future__ import annotations

import re
import unicodedata
from importlib import resources

import numpy as np

from misspec.experiments.schema import PolicySpec
from misspec.experiments.store import Finished, Results, version
from misspec.policies.auto import learnt
from misspec.reports import tables
from misspec.reports.style import labels, slug
from misspec.reports.tables import LEVEL, Group, MeanInterval

THIS = "misspec"  # the entry of this software
PAPERS = {  # the keys in papers.bib of each policy; those that are none of a paper's cite the software
    "Auto": THIS,
    "CorruptionTolerantGPUCB": "bogunovic2020corruption",
    "Corral": "agarwal2017corralling",
    "DomainSplitting": "janz2020bandit,maran2026sharper",
    "ECGPUCB": "bogunovic2021misspecified",
    "GPTS": "chowdhury2017kernelized",
    "GPUCB": "srinivas2010gaussian",
    "IGPUCB": "chowdhury2017kernelized",
    "InsuredUCB": THIS,
    "LBGPUCB": "ziomek2024bayesian",
    "LinUCB": "abbasiyadkori2011improved",
    "LinearThompson": "abbasiyadkori2011improved",
    "PhasedElimination": "lattimore2020learning",
    "PhasedUncertaintySampling": "bogunovic2021misspecified",
    "PriorElimination": "ziomek2025time",
    "RIPS": "camilleri2021high",
    "RegretBalancing": "bogunovic2021misspecified,pacchiano2020regret",
    "ThompsonSampling": "chowdhury2017kernelized",
    "UniformSampling": "",
}
SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "−": "$-$", "×": r"$\times$",
    "±": r"$\pm$", "√": r"$\surd$", "≤": r"$\leq$", "≥": r"$\geq$", "∞": r"$\infty$", "→": r"$\to$", "–": "--",
    "—": "---", "…": r"\ldots{}", "ε": r"$\varepsilon$", "²": "$^2$", "³": "$^3$", "`": r"\textasciigrave{}",
} | {each: f"\\{each}" for each in "&%$#_{}"}  # fmt: skip
SPECIAL |= {each: f"{{{each}}}" for each in "[]*"}  # the end of a line takes what follows for its options
SPECIAL |= dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))  # which have no commands
SPECIAL |= dict.fromkeys("ĦħĸĿŀŉŦŧſ", "?")  # which T1 does not have
GREEK = "αβγδζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"  # letters that are commands
HEAD = """% Written by misspec {version}. In the preamble: \\usepackage[T1]{{fontenc}} \\usepackage{{booktabs}}
% and before the end: \\bibliographystyle{{plain}} \\bibliography{{references}}
"""
TABLE = r"""\begin{{table}}
  \centering
  \footnotesize
  \setlength{{\tabcolsep}}{{3pt}}
  \caption{{{caption}}}
  \label{{tab:{label}}}
  \begin{{tabular}}{{lrrr}}
    \toprule
    Policy & Regret per round & More than {other} & Final loss \\
{rows}
    \bottomrule
  \end{{tabular}}
\end{{table}}
"""


def escaped_latex(text: str) -> str:
    """Text as LaTeX prints it; letters that it does not have by default are question marks."""
    return "".join(map(_letter, unicodedata.normalize("NFC", text)))


def _letter(letter: str) -> str:
    if letter in SPECIAL:
        return SPECIAL[letter]
    name = unicodedata.name(letter, "")
    if letter in GREEK:
        command = name.split()[-1].lower().replace("lamda", "lambda")
        return f"$\\{command.capitalize() if letter.isupper() else command}$"
    digit = re.fullmatch(r"(SUBSCRIPT|SUPERSCRIPT) (?:ZERO|ONE|TWO|THREE|FOUR|FIVE|SIX|SEVEN|EIGHT|NINE)", name)
    if digit:
        return f"${'_' if digit[1] == 'SUBSCRIPT' else '^'}{unicodedata.digit(letter)}$"
    if letter.isspace():
        return " "
    return letter if letter.isprintable() and ord(letter) < 0x180 else "?"


def in_latex(results: Results, against: str | None = None) -> str:
    """A table for each problem, with a part for each ε. against: as in `tables.summary`."""
    found, taken, cited = [HEAD.format(version=version())], set[str](), _keys(results)
    other = "the best" if against is None else escaped_latex(against)
    policies = {each.name: cited[each.name] for each in results.experiment.policies}
    for problem, groups in tables.by_problem(results).items():
        label, rows = labels(groups), list[str]()
        for epsilon, group in groups.items():
            rows += [r"    \midrule", rf"    \multicolumn{{4}}{{l}}{{$\varepsilon = {label[epsilon]}$}} \\"]
            rows += _rows(group, against, policies)
        seeds = sorted({len(runs) for group in groups.values() for runs in group.values()})
        caption = (
            f"{escaped_latex(problem)}: means over {' to '.join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1])))} "
            f"seed{'s' * (seeds[-1] > 1)} and {results.experiment.horizon} rounds, $\\pm$ half of the "
            f"{100 * LEVEL:g}\\,\\% interval of Student's $t$; the smallest in bold. More than {other}: "
            "the difference over the same seeds (paired $t$). Final loss: the regret of what is recommended at the end."
        )
        found.append(TABLE.format(caption=caption, label=slug(problem, taken), other=other, rows="\n".join(rows)))
    return "\n".join(found)


def _rows(group: Group, against: str | None, cited: dict[str, str]) -> list[str]:
    """The lines of one part of a table, a policy each."""
    other = tables.reference(group, against)
    regret = {name: tables.mean_interval([each.regret.mean() for each in runs]) for name, runs in group.items()}
    loss = {name: tables.mean_interval([_loss(each) for each in runs]) for name, runs in group.items()}
    lines = []
    for name, runs in group.items():
        cells = [escaped_latex(name) + (f"~\\cite{{{cited[name]}}}" if cited[name] else "")]
        cells.append(_measured(regret[name], best=regret[name].mean == min(each.mean for each in regret.values())))
        apart = None if name == other else tables.paired(runs, group.get(other, []))
        cells.append("--" if apart is None else _measured(apart, sign="+"))
        cells.append(_measured(loss[name], best=loss[name].mean == min(each.mean for each in loss.values())))
        lines.append(f"    {' & '.join(cells)} \\\\")
    return lines


def _loss(each: Finished) -> float:
    return float(each.facts["recommended_regret"])


def _measured(found: MeanInterval, *, best: bool = False, sign: str = "") -> str:
    """A mean ± half of its interval."""
    text = _number(found.mean, _half(found), sign)
    if found.high is not None:
        text += rf" \pm {_number(found.high - found.mean, _half(found))}"
    return f"$\\mathbf{{{text}}}$" if best else f"${text}$"


def _half(found: MeanInterval) -> float:
    """What digits are rounded to: half of the interval, or a hundredth where there is none."""
    half = 0.0 if found.high is None else found.high - found.mean
    return half or 0.01 * abs(found.mean)


def _number(value: float, step: float, sign: str = "") -> str:
    text = learnt.rounded(value, step)
    mantissa, _, power = text.partition("e")
    mantissa = f"+{mantissa}" if sign and np.sign(value) >= 0 else mantissa
    return rf"{mantissa} \cdot 10^{{{int(power)}}}" if power else mantissa


# -- papers ------------------------------------------------------------------------------------------------------------


def _keys(results: Results) -> dict[str, str]:
    """By the policy's name what it cites."""
    return {each.name: _key(each) for each in results.experiment.policies}


def _key(policy: PolicySpec) -> str:
    if policy.kind == "PhasedUncertaintySampling" and policy.settings.get("schedule") == "few":
        return "li2022gaussian"
    if policy.kind == "RegretBalancing" and policy.settings.get("bounds") == "learnt":
        return "dann2024data"
    return PAPERS.get(policy.kind, "")


def references(results: Results) -> str:
    """BibTeX entries of this software, and of the papers of the policies that were played."""
    played = {each.run.policy for each in results.runs}
    keys = {key for name, some in _keys(results).items() if name in played for key in some.split(",")}
    text = resources.files("misspec.reports").joinpath("papers.bib").read_text(encoding="ascii")
    entries = {each.partition("{")[2].partition(",")[0]: f"@{each.strip()}" for each in text.split("\n@")[1:]}
    software = (
        f"@misc{{{THIS},\n"
        "  title = {{misspec: Gaussian-process bandits that keep working when the model is wrong}},\n"
        f"  author = {{{{The misspec developers}}}},\n  note = {{Version {version()}}},\n}}"
    )
    return "\n\n".join([software, *(entry for key, entry in entries.items() if key in keys)]) + "\n"

"""Journals that were damaged: refused, unless they were cut short inside their last record, which is then left out and
said so; with right checksums and wrong content, an error of the project's, or a policy that answers."""

import functools
import json
import random
import tempfile
import warnings
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms
from damage import HOW, damaged
from hostile import attempt, fuzz
from misspec.files import records

MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
LINEAR = ms.Model(DotProduct(sigma_0=0.0), norm_bound=2.0, noise=0.1)
LIST = ms.Finite(np.random.default_rng(0).random((6, 2)))
MAKE = {
    "list": lambda: ms.ThompsonSampling(LIST, MODEL),
    "phased": lambda: ms.PhasedUncertaintySampling(LIST, MODEL, horizon=30),
    "balancing": lambda: ms.RegretBalancing(LIST, MODEL, horizon=100),
    "space": lambda: ms.UniformSampling(ms.Space({"n": ms.Int(1, 5), "r": ms.Float(0, 1)}), MODEL),
    "open": lambda: ms.comparators.LinUCB(ms.Open(2), LINEAR),
    "joint": lambda: ms.GPUCB(ms.Joint(LIST, ms.Box([(0, 1)])), MODEL),
}
ROUND = {"open": {"actions": np.eye(2)}, "joint": {"context": [0.3]}}


def text(policy):
    return json.dumps(policy.state())


@functools.cache
def written(name):
    """A journal, and the policy's state after each of its records."""
    with tempfile.TemporaryDirectory() as folder:
        path, policy, rng = Path(folder) / "a", MAKE[name](), np.random.default_rng(2)
        policy.journal(path)
        states = [text(policy)]
        for _ in range(4):
            query = policy.ask(**ROUND.get(name, {}))
            states.append(text(policy))
            policy.tell(query, float(rng.normal()))
            states.append(text(policy))
        if policy.abilities.takes_data and name not in ROUND:
            policy.observe(policy.field.draw(rng).points[:1], [0.25])
            states.append(text(policy))
        policy.journal(None)
        return path.read_bytes(), states


def loaded(content):
    """The policy, or None where it is refused, and whether something was said."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        path = Path(folder) / "a"
        path.write_bytes(content)
        policy = attempt(lambda: ms.load(path))
        assert path.read_bytes() == content
        return policy, any("cut short" in str(each.message) for each in said)


@fuzz(500, name=st.sampled_from(sorted(MAKE)), how=st.sampled_from(HOW), seed=st.integers(0, 2**40))
def test_a_damaged_journal_is_refused(name, how, seed):
    whole, states = written(name)
    content = damaged(whole, how, random.Random(seed))
    policy, said = loaded(content)
    if policy is None:
        return
    # unless what is left is the beginning of the same file: all of it, cut between records, or inside the last one
    kept = content.rstrip(b"\0")
    assert whole.startswith(kept)
    assert said == (content != whole and not (content == kept and kept.endswith(b"\n")))
    assert text(policy) == states[kept.count(b"\n") - 2]


@fuzz(150, name=st.sampled_from(sorted(MAKE)), where=st.floats(0, 1))
def test_a_journal_cut_short_is_the_policy_before(name, where):
    whole, states = written(name)
    head = whole.index(b"\n", whole.index(b"\n") + 1) + 1  # without its header it is nothing
    end = head + round(where * (len(whole) - head))
    policy, said = loaded(whole[:end])
    assert policy is not None
    assert text(policy) == states[whole[:end].count(b"\n") - 2]
    assert said == (whole[end - 1 : end] != b"\n")


@fuzz(350, name=st.sampled_from(sorted(MAKE)), how=st.sampled_from(HOW), seed=st.integers(0, 2**40))
def test_right_checksums_and_wrong_content(name, how, seed):
    whole, _ = written(name)
    payloads = [line.split(b" ", 2)[2] for line in whole.splitlines()[1:]]
    chance = random.Random(seed)
    for _ in range(chance.choice([1, 1, 2])):
        i = chance.randrange(len(payloads))
        if chance.random() < 0.3:
            payloads[i : i + 2] = chance.choice([[], payloads[i : i + 2][::-1], payloads[i : i + 1] * 3])
        elif payloads[i]:
            payloads[i] = damaged(payloads[i], how, chance).replace(b"\n", b" ")
        if not payloads:
            return
    content, checksum = records.FIRST, 0
    for payload in payloads:
        line, checksum = records.frame(payload, checksum)
        content += line
    policy, said = loaded(content)
    if policy is not None:
        assert not said
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numbers that overflow
            query = attempt(lambda: policy.ask(**ROUND.get(name, {})))
            attempt(lambda: policy.tell(query, 0.5))
            attempt(lambda: policy.recommend(**ROUND.get(name, {})))
            json.dumps(attempt(policy.state))

"""Laws of spaces: integers and choices come back exactly, and everything that a search makes is legal."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.domains.parameters import decode_parameter, encode_parameter

MODEL = ms.Model(RBF(0.6), norm_bound=1.0, noise=0.1)
POSITIVE = st.floats(1e-150, 1e150)
FLOATS = st.one_of(
    st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6)).map(lambda p: ms.Float(p[0], p[0] + p[1])),
    st.tuples(POSITIVE, POSITIVE).map(lambda p: ms.Float(min(p), max(p), log=True)),
)
STEPPED = st.one_of(
    st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.sampled_from([0.1, 0.25, 1 / 3, 1e-3, 7.0])).map(
        lambda p: ms.Float(p[0], p[0] + p[1], step=p[2])
    ),
    st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 10**6), st.integers(1, 1000)).map(
        lambda p: ms.Int(p[0], p[0] + p[1], step=p[2])
    ),
)
INTS = st.one_of(
    st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 10**6)).map(lambda p: ms.Int(p[0], p[0] + p[1])),
    st.tuples(st.integers(1, 10**9), st.integers(0, 10**6)).map(lambda p: ms.Int(p[0], p[0] + p[1], log=True)),
)
OPTIONS = st.one_of(
    st.text(), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)
)
CHOICES = st.lists(OPTIONS, min_size=1, max_size=6, unique_by=lambda o: (isinstance(o, bool), o)).map(ms.Choice)
PARAMETERS = st.one_of(FLOATS, INTS, STEPPED, CHOICES)
SPACES = st.dictionaries(st.text(), PARAMETERS, min_size=1, max_size=5).map(ms.Space)


def legal(space, seed, count=16):
    rng = np.random.default_rng(seed)
    return np.concatenate([space.draw(rng) for _ in range(count)])


@given(SPACES, st.integers(0, 2**32))
def test_what_is_encoded_comes_back(space, seed):
    points = legal(space, seed)
    assert space.contains(points).all()
    codes = space.encode(points)
    assert (codes >= 0).all()
    assert (codes <= 1 + 1e-12).all()
    back = space.decode(codes)
    assert space.contains(back).all()
    for i, parameter in enumerate(space.parameters.values()):
        if parameter.count is None:
            np.testing.assert_allclose(parameter.encode(back[:, i]), parameter.encode(points[:, i]), atol=1e-9)
        else:
            np.testing.assert_array_equal(back[:, i], points[:, i])


@given(SPACES, st.integers(0, 2**32))
def test_params_come_back_with_their_types(space, seed):
    for x in legal(space, seed, 4):
        params = space.params(x)
        np.testing.assert_array_equal(space.points_of(params)[0], x)
        for name, parameter in space.parameters.items():
            if parameter.kind == "Choice":
                assert any(params[name] is option for option in parameter.options)
            else:
                assert type(params[name]) is {"Int": int, "Float": float}[parameter.kind]


@given(PARAMETERS)
def test_a_parameter_survives_json(parameter):
    back = decode_parameter(json.loads(json.dumps(encode_parameter(parameter))))
    assert repr(back) == repr(parameter)


@given(SPACES, st.integers(0, 2**32))
def test_everything_that_a_search_makes_is_legal(space, seed):
    rng = np.random.default_rng(seed)
    start = space.encode(legal(space, seed, 3))
    moved, inside = space.moved(start, 0.3 * rng.standard_normal(start.shape), rng)
    near, rows = space.neighbours(start)
    made = [space.spread(16, [seed]), space.uniform(16, [seed]), space.around(start, rng, 8), moved[inside], near]
    for codes in made:
        points = space.decode(codes)
        assert space.contains(points).all()
        np.testing.assert_allclose(space.encode(points), codes, atol=1e-9)
    X, Z = space.decode(near), space.decode(start)[rows]
    assert ((X != Z).sum(axis=1) == 1).all()
    free = space.free
    np.testing.assert_array_equal(near[:, free], start[rows][:, free])


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.booleans(), st.floats(-1, 2))
def test_decoding_takes_the_nearest_integer_as_the_kernel_sees_it(a, b, log, code):
    parameter = ms.Int(min(a, b), max(a, b), log=log)
    found = float(parameter.decode(np.array([[code]]))[0])
    inside = np.clip(code, 0, 1) if parameter.count > 1 else 0.0
    others = np.clip(found + np.array([-1.0, 0.0, 1.0]), parameter.low, parameter.high)
    apart = np.abs(parameter.encode(others)[:, 0] - inside)
    assert apart[1] <= apart.min() + 1e-12


@given(st.floats(1e-6, 1e3), st.floats(1.01, 1e6))
def test_a_logarithmic_scale_takes_equal_ratios_to_equal_steps(low, ratio):
    parameter = ms.Float(low, low * ratio * ratio, log=True)
    np.testing.assert_allclose(
        parameter.encode(np.array([low, low * ratio, parameter.high]))[:, 0], [0, 0.5, 1], atol=1e-9
    )
    ends = parameter.from_unit(np.array([0.0, 1.0]))
    assert ends.tolist() == [parameter.low, parameter.high]


@given(st.dictionaries(st.text(), st.one_of(INTS, CHOICES), min_size=1, max_size=3), st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_policies_ask_legal_points_only(parameters, seed):
    space = ms.Space({**parameters, "x": ms.Float(-1.0, 2.0)})
    policy = ms.ECGPUCB(space, MODEL, epsilon=0.1, seed=seed)
    for _ in range(3):
        query = policy.ask()
        assert space.contains(query.x[None, :]).all()
        np.testing.assert_array_equal(space.points_of(query.params)[0], query.x)
        policy.tell(query.params, float(query.params["x"]))
    assert space.contains(policy.recommend().x[None, :]).all()

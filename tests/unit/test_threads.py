"""Answers do not depend on how many threads BLAS has, and nobody else's limit is lost."""

import concurrent.futures

import numpy as np
import pytest
import threadpoolctl
from sklearn.gaussian_process.kernels import RBF, Matern

import misspec as ms
from misspec.threads import LIMIT, one_thread

DOMAIN = ms.Box([(0, 1)] * 2).grid(60)


def threads():
    return [library.get_num_threads() for library in LIMIT._blas()]


def played(make, n, rounds=40):
    rng = np.random.default_rng(0)
    with threadpoolctl.threadpool_limits(n, user_api="blas"):
        policy = make()
        policy.observe(np.arange(0, 3600, 12), rng.standard_normal(300))
        for _ in range(rounds):
            query = policy.ask()
            policy.tell(query, float(np.sin(9 * query.x[0]) + 0.1 * rng.standard_normal()))
        return policy, policy.band(), policy.recommend()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ms.GPUCB(DOMAIN, ms.Model(Matern(0.2, nu=2.5), norm_bound=2.0, noise=0.1)),
        lambda: ms.ECGPUCB(DOMAIN, ms.Model(RBF(0.1), norm_bound=2.0, noise=0.1), epsilon=0.1),
    ],
)
def test_answers_are_the_same_to_the_bit_on_any_number_of_threads(make):
    (one, *answers), (two, *others) = (played(make, n) for n in (1, 2))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        again = ms.restore(one.state())
        answers_again = [again.band(), again.recommend()]
    for policy, (band, recommendation) in ((two, others), (again, answers_again)):
        np.testing.assert_array_equal(policy.posterior.mean, one.posterior.mean)
        np.testing.assert_array_equal(policy.posterior.variance, one.posterior.variance)
        np.testing.assert_array_equal(band.upper, answers[0].upper)
        assert recommendation.mean == answers[1].mean


def test_limits_of_others_come_back():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread(), one_thread():
            assert set(threads()) == {1}
        assert threads() == before
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert threads() == before


def test_the_last_to_leave_lifts_the_limit():
    rounds = 200

    def work(_):
        for _ in range(rounds):
            with one_thread():
                assert set(threads()) == {1}
        return True

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))
        assert threads() == before


def test_a_context_that_an_interrupt_kept_from_being_left_is_let_go():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        held = one_thread()
        held.__enter__()
        assert set(threads()) == {1}
        del held
        assert threads() == before
        assert not LIMIT._holders

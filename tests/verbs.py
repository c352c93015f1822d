"""Points in user units handed to a posterior the way that policies do it: encoded, one query at a time."""


def expect(posterior, X):
    for x in posterior.domain.encode(X):
        posterior.expect(x[None, :])


def fulfil(posterior, x, y):
    posterior.add(posterior.domain.encode(x), float(y), expected=True)


def release(posterior, x):
    posterior.release(posterior.domain.encode(x))

"""Errors and warnings survive the way to another process (worker pools, parallel test runs)."""

import pickle

import pytest

import polyc


def test_pickled_errors_keep_code_and_text():
    with pytest.raises(polyc.PolycError) as caught:
        polyc.compile("def f(float(N) X) -> (O) { O(i) = Y(i) }")
    for error in (caught.value, polyc.SyntaxErrorInSource(*caught.value.diagnostics)):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and again.code == error.code and str(again) == str(error)


def test_pickled_and_rebuilt_warnings_keep_code_and_text():
    with pytest.warns(polyc.PolycWarning) as caught:
        polyc.compile("def f(float(N) X) -> (O) { O += X(i) }")
    warning = caught[0].message
    for again in (pickle.loads(pickle.dumps(warning)), type(warning)(*warning.args)):
        assert again.code == warning.code and str(again) == str(warning)

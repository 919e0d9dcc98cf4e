"""Environment variables that mean nothing: a warning for each, once, and what holds without them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import polyc
from polyc import config, environment
from tests.negative.support import check_rendering

SUM = "def total(float(N) x) -> (s) { s +=! x(i) }"
X = np.ones(5, np.float32)

NONSENSE = {
    "POLYC_VERIFY=maybe": "is neither on nor off",
    "POLYC_CACHE=2": "is neither on nor off",
    "POLYC_DEBUG=no!": "is neither on nor off",
    "POLYC_CACHE_SIZE=lots": "is no number of bytes",
    "POLYC_CACHE_SIZE=-1": "is no number of bytes",
    "POLYC_HELD_MEMORY=some": "is no number of bytes",
    "POLYC_NUM_THREADS=0": "is no number of threads from 1 to 4096",
    "POLYC_NUM_THREADS=1000000000000": "is no number of threads from 1 to 4096",
    "POLYC_NUM_THREADS=2.5": "is no number of threads from 1 to 4096",
    "POLYC_EINSUM=never": "says nothing",
    "POLYC_THREADS=3": "did you mean POLYC_NUM_THREADS?",
    "POLYC_CACHEDIR=/tmp": "did you mean POLYC_CACHE_DIR?",
}


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    monkeypatch.setattr(environment, "_told", set())


@pytest.mark.parametrize("setting", NONSENSE)
def test_variables_that_mean_nothing_are_named_once(monkeypatch, setting):
    monkeypatch.setenv(*setting.split("=", 1))
    with pytest.warns(polyc.PolycWarning) as caught:
        assert polyc.compile(SUM)(X) == 5
        assert polyc.compile(SUM)(X) == 5
    ours = [w for w in caught if w.message.code == "argument-environment"]
    assert len(ours) == 1 and ours[0].filename == __file__
    check_rendering(str(ours[0].message))
    assert setting in str(ours[0].message) and NONSENSE[setting] in str(ours[0].message)


@pytest.mark.parametrize("word, is_on", {"1": True, "TRUE": True, "on": True, "0": False, "False": False, "off": False}.items())
def test_switches_take_the_words_that_people_write(monkeypatch, word, is_on):
    for name in ("POLYC_VERIFY", "POLYC_DEBUG", "POLYC_CACHE"):
        monkeypatch.setenv(name, word)
    assert config.default_options().verify is is_on
    assert config.debugging() is is_on
    assert (config.cache_settings() is not None) is is_on


def test_the_command_line_shows_them_as_diagnostics():
    given = {**os.environ, "POLYC_HELD_MEMORY": "some", "POLYC_CACHE": "maybe"}
    command = [sys.executable, "-m", "polyc", "compile", "-", "--emit", "loops"]
    done = subprocess.run(command, input=SUM, env=given, capture_output=True, text=True, check=True)
    check_rendering(done.stderr)
    assert done.stderr.count("warning[argument-environment]") == 2, done.stderr

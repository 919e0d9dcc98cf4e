"""`polyc.xarray`: dims, coordinates and attributes of results."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.diagnostics import ArgumentError
from polyc.xarray import apply

xarray = pytest.importorskip("xarray")


def make_field() -> xarray.DataArray:
    values = np.random.default_rng(0).random((6, 5), np.float32)
    coords = {
        "lat": np.arange(6) * 10.0,
        "lon": list("abcde"),
        "area": (("lat", "lon"), np.arange(30).reshape(6, 5)),
        "time": 3,
    }
    return xarray.DataArray(values, dims=("lat", "lon"), coords=coords, attrs={"units": "K"})


@pytest.mark.parametrize(
    ("body", "dims", "lat"),
    [
        ("y(i, j) = x(i, j) * 2.0", ("lat", "lon"), [0, 10, 20, 30, 40, 50]),
        ("y(j, i) = x(i + 1, j) - x(i, j)", ("lon", "lat"), [0, 10, 20, 30, 40]),
        ("y(i, j) = x(i - 1, j) + x(i + 1, j)", ("lat", "lon"), [0, 10, 20, 30]),
        ("y(i) = x(2 * i + 1, 0) where i in 0:3", ("lat",), [10, 30, 50]),
        ("y(i, j) = x(N - 1 - i, j) where i in 0:N", ("lat", "lon"), [50, 40, 30, 20, 10, 0]),
        ("m(j) +=! x(i, j)  y(i, j) = x(i, j) - m(j)", ("lat", "lon"), [0, 10, 20, 30, 40, 50]),
        ("y(j) +=! x(i, j)", ("lon",), None),
        ("y(i) = x(i / 2, 0) where i in 0:4", ("dim_0",), None),
        ("y(j, k) +=! x(i, j) * x(i, k)", ("lon", "lon_2"), None),
    ],
)
def test_results_have_the_labels_of_what_is_read_at_their_indices(
    body: str, dims: tuple[str, ...], lat: list[float] | None
) -> None:
    field, operator = make_field(), polyc.compile(f"def f(float(N, M) x) -> (y) {{ {body} }}")
    result = apply(operator, field)
    np.testing.assert_array_equal(result.values, operator(field.values))
    assert result.dims == dims
    assert result.name == "y"
    assert result.attrs == {"units": "K"}
    assert result.time == 3
    assert (None if "lat" not in result.coords else result.lat.values.tolist()) == lat
    if {"lat", "lon"} <= set(dims):
        assert result.area.equals(field.area.sel(lat=result.lat))


def test_labels_of_several_inputs_and_results() -> None:
    operator = polyc.compile(
        "def f(float(N, K) a, float(K, M) b, int64 n) -> (y, z)"
        " { y(i, j) +=! a(i, k) * b(k, j)  z(i) = a(i + n, 0) where i in 0:N - n }"
    )
    a = xarray.DataArray(np.ones((4, 3), np.float32), dims=("x", "k"), coords={"x": [1, 2, 3, 4]})
    b = xarray.DataArray(np.ones((3, 2), np.float32), dims=("k", "z"), coords={"z": ["p", "q"]}, attrs={"of": "b"})
    y, z = apply(operator, a, b=b, n=2, keep_attrs=False)
    assert (y.dims, z.dims) == (("x", "z"), ("x",))
    assert (y.x.values.tolist(), y.z.values.tolist(), z.x.values.tolist()) == ([1, 2, 3, 4], ["p", "q"], [3, 4])
    assert y.attrs == {}
    (y, _) = apply(operator, a.values, b, 0)
    assert y.dims == ("dim_0", "z")
    assert y.attrs == {"of": "b"}


def test_dims_that_are_asked_for() -> None:
    operator = polyc.compile("def f(float(N, M) x) -> (y) { y(j, k) +=! x(i, j) * x(i, k) }")
    assert apply(operator, make_field(), dims=("from", "to")).dims == ("from", "to")
    assert apply(operator, make_field(), dims={"y": ("from", "to")})["from"].values.tolist() == list("abcde")
    with pytest.raises(ArgumentError, match="does not name the 2 dimensions of y") as caught:
        apply(operator, make_field(), dims=("from",))
    assert caught.value.code == "argument-dims"


def test_chunks_stay_chunks() -> None:
    pytest.importorskip("dask.array")
    operator = polyc.compile("def f(float(N, M) x) -> (y) { y(i, j) = x(i, j) * 2.0 }")
    result = apply(operator, make_field().chunk(lat=3))
    assert result.chunks == ((3, 3), (5,))
    np.testing.assert_array_equal(result.compute(scheduler="synchronous").values, make_field().values * 2)

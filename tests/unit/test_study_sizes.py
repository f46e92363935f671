"""Sizes of a study: numbers, lists, ranges, weights, and lines of CSV files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from offcut.errors import DescribeError
from offcut.studies.errors import Place
from offcut.studies.operators import read_operators
from offcut.studies.sizes import read_values
from tests.agree import agree

AXIS = Place("s.toml") / "sizes" / "m"


def test_sizes_are_numbers_lists_ranges_weights_and_files(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("# requests\nm,t\n3,9\n3,1\n17,1\n")
    values = {
        "one": read_values(5, AXIS, tmp_path),
        "list": read_values([7, 1, 7, 9], AXIS, tmp_path),
        "range": read_values("1:4", AXIS, tmp_path),
        "weights": read_values({"3": 3, "17": 1}, AXIS, tmp_path),
        "file": read_values("lengths.csv", AXIS, tmp_path),
        "column": read_values({"csv": "lengths.csv", "column": "t"}, AXIS, tmp_path),
    }

    assert {name: tuple(one.weights) for name, one in values.items()} == {
        "one": (5,),
        "list": (1, 7, 9),
        "range": (1, 2, 3, 4),
        "weights": (3, 17),
        "file": (3, 17),
        "column": (1, 9),
    }
    assert [name for name, one in values.items() if not one.swept] == ["one"]
    agree(np.array(list(values["weights"].weights.values())), np.array([0.75, 0.25]))
    agree(np.array(list(values["file"].weights.values())), np.array([2 / 3, 1 / 3]))


def test_lines_of_a_csv_file_are_vectors_of_sizes(tmp_path: Path) -> None:
    (tmp_path / "shapes.csv").write_text("M,K,N,name\n1,64,80,a\n7,96,16,b\n1,64,80,c\n")
    table = {"einsum": "mk,kn->mn", "constants": []}
    sizes = {"csv": "shapes.csv", "columns": {"m": "M", "k": "K", "n": "N"}}
    (operator,), absent = read_operators([{**table, "sizes": sizes}], tmp_path / "study.toml")

    assert [(dict(one.sizes), one.weight) for one in operator.points] == [
        ({"m": 1, "k": 64, "n": 80}, 2 / 3),
        ({"m": 7, "k": 96, "n": 16}, 1 / 3),
    ]
    assert absent == ()
    with pytest.raises(DescribeError) as refused:
        read_operators([{**table, "sizes": "shapes.csv"}], tmp_path / "study.toml")
    assert str(refused.value) == (
        "study: cannot read the study\n"
        "  at       study.toml, operator 1, sizes\n"
        "  because  shapes.csv, line 2: 'a' in column 'name' is not a whole number from 1 to 2**31 - 1\n"
        "  help     a whole number in each line\n"
        '  help     {csv = "shapes.csv", columns = {M = "M", K = "K", N = "N"}}\n'
        '  help     {csv = "shapes.csv", names = "name"}, layers by name'
    )


@pytest.mark.parametrize(("comma", "bom"), [(",", ""), (";", "\ufeff"), ("\t", "\ufeff")])
def test_a_table_out_of_a_paper_is_read_as_it_stands(tmp_path: Path, comma: str, bom: str) -> None:
    lines = ("# table 3", "", "layer,M, K ,N,calls", "a,1,64,80,3", ",,,,", "  ", "b,7,96,16,0.5")
    text = "\r\n".join((*lines, 'a again,1,64,80,"0.5"', "")).replace(",", comma)
    (tmp_path / "shapes.csv").write_text(bom + text, encoding="utf-8", newline="")
    table = {"einsum": "mk,kn->mn", "constants": []}
    sizes = {"csv": "shapes.csv", "columns": {"m": "M", "k": "K", "n": "N"}, "weights": "calls"}
    (operator,), _ = read_operators([{**table, "sizes": sizes}], tmp_path / "study.toml")
    one = read_values({"csv": "shapes.csv", "column": "K", "weights": "calls"}, AXIS, tmp_path)

    assert [(dict(one.sizes), one.weight) for one in operator.points] == [
        ({"m": 1, "k": 64, "n": 80}, 0.875),
        ({"m": 7, "k": 96, "n": 16}, 0.125),
    ]
    assert one.weights == {64: 0.875, 96: 0.125}


def test_each_layer_that_a_column_names_is_an_operator(tmp_path: Path) -> None:
    lines = (
        "layer,m,k,n,calls",
        "qkv,1,64,80,3",
        "out,5,80,64,1",
        "qkv,7,64,80,1",
        "again,5,80,64,1",
    )
    (tmp_path / "layers.csv").write_text("\n".join(lines))
    sizes = {"csv": "layers.csv", "names": "layer", "weights": "calls"}
    table = {"einsum": "mk,kn->mn", "sizes": sizes, "type": ["float32", "int8"]}
    file = tmp_path / "study.toml"

    operators, _ = read_operators([table], file)
    assert [one.name for one in operators] == [
        *("qkv", "qkv int8", "out", "out int8", "again", "again int8")
    ]
    assert [(dict(one.sizes), one.weight) for one in operators[0].points] == [
        ({"m": 1, "k": 64, "n": 80}, 0.75),
        ({"m": 7, "k": 64, "n": 80}, 0.25),
    ]
    assert [name for name, axis in operators[0].axes.items() if axis.swept] == ["m"]
    assert not any(axis.swept for axis in operators[2].axes.values())

    (named, *_), _ = read_operators([{**table, "name": "bert"}], file)
    assert named.name == "bert qkv"


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("layer,m\na,3\n", "shapes.csv has no column 'name': its columns are layer, m"),
        ("name,m\na,3\n,4\n", "shapes.csv, line 3: the layer has no name"),
    ],
)
def test_a_layer_without_a_name_is_refused(tmp_path: Path, text: str, because: str) -> None:
    (tmp_path / "shapes.csv").write_text(text)
    table = {"einsum": "mk,kn->mn", "sizes": {"csv": "shapes.csv", "names": "name"}}

    with pytest.raises(DescribeError) as refused:
        read_operators([table], tmp_path / "study.toml")

    assert str(refused.value.at) == "study.toml, operator 1, sizes.names"
    assert refused.value.because == because


def test_layers_of_a_file_without_lines_are_refused(tmp_path: Path) -> None:
    (tmp_path / "shapes.csv").write_text("name,m\n")
    table = {"einsum": "mk,kn->mn", "sizes": {"csv": "shapes.csv", "names": "name"}}

    with pytest.raises(DescribeError, match="has no line with sizes"):
        read_operators([table], tmp_path / "study.toml")


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ({"weights": "count"}, "t.csv has no column 'count': its columns are m, w"),
        ({"weights": "w"}, "t.csv, line 3: the weight '0' is not a number above 0"),
    ],
)
def test_weights_that_are_none_are_refused(
    tmp_path: Path, more: Mapping[str, str], because: str
) -> None:
    (tmp_path / "t.csv").write_text("m,w\n3,1\n4,0\n")

    with pytest.raises(DescribeError) as refused:
        read_values({"csv": "t.csv", "column": "m", **more}, AXIS, tmp_path)

    assert (refused.value.at, refused.value.because) == ("s.toml, sizes.m.weights", because)


def test_a_csv_file_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("m,m\n3,9\n")

    with pytest.raises(DescribeError) as refused:
        read_values("lengths.csv", AXIS, tmp_path)

    assert refused.value.because == "lengths.csv has 2 columns 'm': its columns are m, m"


def test_a_long_range_is_sampled_with_both_ends() -> None:
    values = read_values({"range": "1:512", "points": 9}, AXIS, Path())

    assert len(values.weights) == 9
    assert {1, 512} <= set(values.weights)

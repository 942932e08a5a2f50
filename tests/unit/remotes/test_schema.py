import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.errors import Code, Refused
from tieline_remotes.schema import (
    MAX_FUNCTIONS,
    MAX_NESTING,
    check_arguments,
    check_functions,
    check_name,
    compile_schema,
)

OBJECT = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def nested(levels):
    schema: dict[str, object] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("item", "pointer"),
    [
        ({"name": "f", "parameters": None}, "/0/parameters"),
        ({"name": "f", "parameters": []}, "/0/parameters"),
        ({"name": "f", "parameters": "object"}, "/0/parameters"),
        ({"name": "f", "parameters": {"type": "string"}}, "/0/parameters/type"),
        (
            {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}},
            "/0/parameters/properties/a",
        ),
        ({"name": "f", "parameters": {"type": "object", "properties": []}}, "/0/parameters/properties"),
        ({"name": "f", "parameters": {"type": "object", "required": [1]}}, "/0/parameters/required/0"),
        ({"name": "f", "parameters": {"type": "object", "$ref": "http://127.0.0.1/x"}}, "/0/parameters/$ref"),
        ({"name": "f", "parameters": {"type": "object", "$ref": "#/nowhere"}}, "/0/parameters"),
        ({"name": "f", "parameters": {"type": "object", "pattern": "("}}, "/0/parameters"),
        ({"name": "f", "parameters": {"type": "object", "title": "x" * 70_000}}, "/0/parameters"),
        ({"name": "f", "description": 7}, "/0/description"),
        ({"name": "f", "description": "x" * 17_000}, "/0/description"),
        ({"name": "f", "type": "tool"}, "/0/type"),
        ({"name": ""}, "/0/name"),
        ({"name": "x" * 129}, "/0/name"),
        ({"name": "a\nb"}, "/0/name"),
        ({"name": "\ud83d"}, "/0/name"),
        ({"name": 7}, "/0/name"),
        ({}, "/0/name"),
        ("f", "/0"),
    ],
)
def test_a_bad_function_is_refused_with_a_pointer_and_the_good_ones_are_kept(item, pointer):
    """B12, B20."""
    good, refused = check_functions([item, {"name": "good", "parameters": OBJECT}])

    assert [function.name for function in good] == ["good"]
    [problem] = refused
    assert problem["pointer"].startswith(pointer)
    assert problem["error"]


@pytest.mark.parametrize(
    "name", ["calendar.respondToEvent", "get weather", "naïve", "-x", "../etc/passwd", "😀", "ok"]
)
def test_a_name_that_a_model_could_not_use_is_registered_all_the_same(name):
    """B09: names are mapped where a model is asked, so they reach the remote byte for byte."""
    good, refused = check_functions([{"name": name}])

    assert good[0].name == name
    assert not refused


def test_a_function_without_parameters_takes_no_arguments():
    """B12."""
    [function], _ = check_functions([{"name": "f"}])

    assert function.parameters == {"type": "object", "properties": {}}


def test_the_same_function_twice_is_refused_by_name():
    """B11."""
    good, refused = check_functions([{"name": "f"}, {"name": "f"}])

    assert len(good) == 1
    assert refused == [
        {"name": "f", "error": "there is another function 'f' in this remote", "pointer": "/1/name"}
    ]


def test_nesting_is_bounded():
    allowed, _ = check_functions([{"name": "f", "parameters": nested(MAX_NESTING // 2)}])
    _, refused = check_functions([{"name": "f", "parameters": nested(500)}])

    assert allowed
    assert "levels" in refused[0]["error"]


def test_too_many_functions_are_refused_as_a_whole():
    with pytest.raises(Refused) as caught:
        check_functions([{"name": str(number)} for number in range(MAX_FUNCTIONS + 1)])

    assert caught.value.code == Code.TOO_LARGE


def test_a_remote_needs_a_name():
    assert check_name("my browser") == "my browser"
    with pytest.raises(Refused, match="non-empty"):
        check_name(" ")


def test_arguments_that_do_not_fit_are_named_with_a_pointer():
    validator = compile_schema(OBJECT)

    assert check_arguments(validator, {"city": "Paris"}) == {"city": "Paris"}
    with pytest.raises(Refused, match="/city") as caught:
        check_arguments(validator, {"city": 7})
    assert caught.value.code == Code.INVALID_ARGUMENTS
    assert caught.value.details == {"pointer": "/city"}
    with pytest.raises(Refused, match="required"):
        check_arguments(validator, {})


@pytest.mark.parametrize("args", ['{"a":1}', [1], None, 7])
def test_arguments_must_be_an_object(args):
    """B15."""
    with pytest.raises(Refused, match="object"):
        check_arguments(compile_schema({"type": "object"}), args)


def test_a_regular_expression_cannot_be_made_to_run_for_ever():
    validator = compile_schema(
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    )

    with pytest.raises(Refused):
        check_arguments(validator, {"a": "a" * 50_000 + "b"})


@given(
    st.lists(json_values | st.fixed_dictionaries({"name": st.text(), "parameters": json_values}), max_size=5)
)
def test_whatever_is_registered_each_function_is_either_good_or_refused(items):
    good, refused = check_functions(items)

    assert len(good) + len(refused) == len(items)
    for function in good:
        compile_schema(function.parameters)

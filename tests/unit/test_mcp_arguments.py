"""Arguments of tools: accepted values, rejected values with their errors, and the schema that
clients see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from vmrag_link.errors import JsonInvalid, UsageInvalid
from vmrag_link.models import LONGEST_TEXT, Record
from vmrag_mcp.arguments import Given, fields_as_keywords, format_usage, parse_arguments, read_parameters
from vmrag_mcp.registry import import_function, load_catalogue


def handler(
    call: object,
    *,
    text: str,
    word: Annotated[str, Given(blank=True)] = "",
    limit: Annotated[int, Given("how many", low=1, high=100, clamped=True)] = 20,
    strict: Annotated[int, Given(low=1, high=100)] = 20,
    offset: Annotated[int, Given(low=0)] = 0,
    sure: bool = False,
    where: dict[str, Any] | None = None,
    ids: Annotated[list[str] | None, Given(min_items=1)] = None,
    texts: Annotated[list[str | None] | None, Given()] = None,
    full: Annotated[list[str] | None, Given(full=True)] = None,
    metadatas: list[dict[str, Any] | None] | None = None,
    embeddings: list[list[float] | None] | None = None,
    way: Annotated[Literal["ours", "theirs"], Given(spelled={"--ours": "ours"}, aliases=("strategy",))] = "ours",
    include: list[Literal["documents", "metadatas"]] = ("documents",),  # type: ignore[assignment]
    from_: Annotated[str, Given(wire="from")] = "HEAD",
) -> None:
    """For these tests."""


DECLARED = read_parameters(handler)


def take(**arguments: Any) -> dict[str, Any]:
    """The keywords of a call, without those that have their default."""
    taken = parse_arguments(DECLARED, {"text": "x"} | arguments, no_warning)
    defaults = {parameter.keyword: parameter.default for parameter in DECLARED if not parameter.required}
    return {key: value for key, value in taken.items() if key not in defaults or value != defaults[key]}


def no_warning(code: str, sentence: str) -> None:
    raise AssertionError(f"{code}: {sentence}")


def refuse(kind: type[Exception] = UsageInvalid, **arguments: Any) -> Any:
    with pytest.raises(kind) as caught:
        take(**arguments)
    return caught.value


def schema(name: str) -> dict[str, Any]:
    (result,) = (parameter.build_schema() for parameter in DECLARED if parameter.name == name)
    return result


# -- absent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", [None, ""])
@pytest.mark.parametrize("name", [parameter.name for parameter in DECLARED if not parameter.required])
def test_null_and_an_empty_text_are_as_good_as_nothing(name, absent):
    assert take(**{name: absent}) == {"text": "x"}


@pytest.mark.parametrize("absent", [None, ""])
def test_required_argument_that_is_null_or_empty_is_missing(absent):
    assert refuse(text=absent).details == {"parameter": "text"}


def test_empty_text_is_passed_if_parameter_allows_blank():
    def blank(*, message: Annotated[str, Given(blank=True)]) -> None: ...

    assert parse_arguments(read_parameters(blank), {"message": ""}, no_warning) == {"message": ""}
    with pytest.raises(UsageInvalid, match="'message' is missing"):
        parse_arguments(read_parameters(blank), {}, no_warning)


def test_tuple_default_becomes_a_list_like_json():
    assert parse_arguments(DECLARED, {"text": "x"}, no_warning)["include"] == ["documents"]


# -- names -----------------------------------------------------------------------------------------


def test_unknown_name_is_refused_with_allowed_names_and_nearest_name():
    error = refuse(limits=5, Zebra=1)
    assert error.details["unknown"] == ["Zebra", "limits"]
    assert error.details["allowed"] == sorted(parameter.name for parameter in DECLARED)
    assert "'limit'" in refuse(limits=5).message


def test_alias_counts_unless_the_name_itself_is_given():
    assert take(strategy="theirs") == {"text": "x", "way": "theirs"}
    assert take(strategy="theirs", way="ours") == {"text": "x"}
    assert refuse(strategy="both").details["parameter"] == "way"


def test_parameter_named_like_a_keyword_is_accepted_by_that_name():
    assert take(**{"from": "topic"}) == {"text": "x", "from_": "topic"}
    assert refuse(from_="topic").details["unknown"] == ["from_"]


# -- numbers and booleans --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [7, "7", " 7 ", 7.0, "+7"])
def test_whole_number_is_taken_in_every_spelling(value):
    assert take(offset=value) == {"text": "x", "offset": 7}


@pytest.mark.parametrize(
    "value", [True, False, 7.5, "7.5", "seven", "0x7", float("inf"), float("nan"), [7], {"n": 7}, "7" * 5000]
)
def test_parse_rejects_invalid_integers(value):
    error = refuse(offset=value)
    assert error.details["parameter"] == "offset"
    assert len(error.message) < 200


@pytest.mark.parametrize(("name", "value"), [("strict", 0), ("strict", 101), ("limit", 0), ("limit", -5)])
def test_number_out_of_range_is_refused_with_the_range(name, value):
    assert refuse(**{name: value}).details == {"parameter": name, "value": value, "minimum": 1, "maximum": 100}


def test_range_error_without_maximum_reports_none():
    assert refuse(offset=-1).details == {"parameter": "offset", "value": -1, "minimum": 0, "maximum": None}


@pytest.mark.parametrize("value", [10**25, 2**63])
def test_number_that_no_engine_holds_is_out_of_range(value):
    assert refuse(offset=value).details["value"] == str(value)


@pytest.mark.parametrize("value", [101, 10**25])
def test_number_above_an_own_limit_is_clamped_with_a_warning(value):
    warned = []
    taken = parse_arguments(DECLARED, {"text": "x", "limit": value}, lambda *warning: warned.append(warning))
    assert taken["limit"] == 100
    assert [code for code, _ in warned] == ["IGNORED_SETTING"]
    assert str(value) in warned[0][1]


@pytest.mark.parametrize("value", [True, "true", "True", " TRUE "])
def test_boolean_is_accepted_as_text(value):
    assert take(sure=value) == {"text": "x", "sure": True}


@pytest.mark.parametrize("value", [0, 1, 2, "yes", "1", [], {}, 1.0])
def test_parse_rejects_invalid_booleans(value):
    assert refuse(sure=value).details["parameter"] == "sure"


# -- texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [5, True, ["x"], {"x": 1}, 5.5])
def test_parse_rejects_invalid_texts(value):
    assert refuse(word=value).details["parameter"] == "word"


def test_texts_are_taken_exactly():
    for text in ("  two  ", "C:\\new", "a\nb\x01c", "𝔘ñí", "5", "null", "x" * 4096):
        assert take(word=text)["word"] == text


@pytest.mark.parametrize(
    ("parameter", "value", "maximum"),
    [
        ("text", "x" * 4097, 4096),
        ("ids", ["a", "x" * 4097], 4096),
        ("ids", "x" * (LONGEST_TEXT + 1), LONGEST_TEXT),
        ("texts", [None, "x" * 3_000_000], 4096),
        ("where", {"team": {"$in": ["x" * 1000] * 1100}}, 1 << 20),
        ("where", '{"a": "' + "x" * (1 << 20) + '"}', 1 << 20),
        ("metadatas", [{"y": 1, "x" * (1 << 20): 1}, {"a": [[["x"]]]}], 1 << 20),
        ("metadatas", " " * LONGEST_TEXT + "[]", LONGEST_TEXT),
    ],
)
def test_argument_is_refused_above_its_length(parameter, value, maximum):
    error = refuse(**{parameter: value})
    assert (error.details["parameter"], error.details["maximum"]) == (parameter, maximum)
    assert "characters" in error.message
    assert len(str(error.to_dict())) < 500


@pytest.mark.parametrize("tool", load_catalogue().values(), ids=lambda tool: tool.name)
def test_every_text_of_a_tool_is_limited_in_schema_and_parser(tool):
    def refuse_longer(parameter, value, longest):
        with pytest.raises(UsageInvalid) as caught:
            parameter.parse_value(value, no_warning)
        assert caught.value.details["maximum"] == longest

    for parameter in read_parameters(import_function(tool)):
        schema = tool.schema["properties"][parameter.name]
        assert schema == parameter.build_schema()
        for shape in _text_shapes(schema):
            assert "enum" in shape or shape["maxLength"] <= LONGEST_TEXT
        if parameter.kind == "string" and not parameter.choices:
            refuse_longer(parameter, "x" * (schema["maxLength"] + 1), schema["maxLength"])
        if parameter.kind == "array" and parameter.item_kind == "string" and not parameter.choices:
            refuse_longer(parameter, ["x" * (parameter.longest + 1)], parameter.longest)


def _text_shapes(schema):
    """Return each schema of a text within a parameter's schema."""
    shapes = [schema, *schema.get("anyOf", ())]
    shapes += [shape["items"] for shape in shapes if "items" in shape]
    shapes += [inner for shape in shapes for inner in shape.get("anyOf", ())]
    return [shape for shape in shapes if shape.get("type") == "string"]


def test_schema_names_the_default_of_the_seeds():
    for tool, parameter, default in (
        ("dolt_fetch", "remote", "origin"),
        ("dolt_pull", "remote", "origin"),
        ("dolt_push", "remote", "origin"),
        ("chroma_query_documents", "n_results", 5),
    ):
        assert load_catalogue()[tool].schema["properties"][parameter]["default"] == default


def test_function_can_tell_an_omitted_argument_from_its_default():
    def search(
        call: object,
        *,
        number: Annotated[int | None, Given(omitted=None)] = 5,
        text: Annotated[str, Given(omitted="")] = "a",
    ) -> None:
        """For this test."""

    declared = read_parameters(search)
    assert [parameter.build_schema()["default"] for parameter in declared] == [5, "a"]
    assert parse_arguments(declared, {}, no_warning) == {"number": None, "text": ""}
    assert parse_arguments(declared, {"number": 5, "text": "a"}, no_warning) == {"number": 5, "text": "a"}


def test_question_has_32_kb_and_name_4_kb():
    shapes = {tool.name: tool.schema["properties"] for tool in load_catalogue().values()}
    queries = [shapes[name]["query"]["maxLength"] for name in ("search_documents", "search", "search_issues")]
    assert {*queries, shapes["chroma_query_documents"]["query_texts"]["anyOf"][0]["items"]["maxLength"]} == {32_768}
    assert {shapes["read"][name]["maxLength"] for name in ("name", "ref", "symbol")} == {4096}


@pytest.mark.parametrize(("queries", "maximum"), [(["a"] * 101, 100), (["x" * 30_000] * 2, 32_768)])
def test_queries_of_one_call_have_limits_together(queries, maximum):
    with pytest.raises(UsageInvalid) as caught:
        parse_arguments(
            read_parameters(import_function(load_catalogue()["chroma_query_documents"])),
            {"query_texts": queries},
            no_warning,
        )
    assert (caught.value.details["parameter"], caught.value.details["maximum"]) == ("query_texts", maximum)
    assert caught.value.hint


def test_schema_names_the_largest_number_of_queries():
    for name in ("chroma_query_documents", "chroma_query_documents_with_where_filter"):
        assert load_catalogue()[name].schema["properties"]["query_texts"]["anyOf"][0]["maxItems"] == 100


def test_texts_of_a_list_have_a_limit_together():
    given = {"collection_name": "notes", "ids": ["x" * 4096] * 4097}
    with pytest.raises(UsageInvalid) as caught:
        parse_arguments(read_parameters(import_function(load_catalogue()["chroma_get_documents"])), given, no_warning)
    assert caught.value.details["maximum"] == LONGEST_TEXT


@pytest.mark.parametrize("broken", ["\0", "\ud800"])
@pytest.mark.parametrize(
    ("place", "arguments"),
    [("word", {"word": "ab{}"}), ("ids[0]", {"ids": ["ab{}"]}), ("full[1]", {"full": ["ä", "ab{}"]})],
)
def test_character_that_cannot_be_stored_is_refused_with_its_place(place, arguments, broken):
    sent = json.loads(json.dumps(arguments).replace("{}", json.dumps(broken)[1:-1]))
    error = refuse(**sent)
    assert error.message.startswith(f"{place} contains ")
    assert (error.details["parameter"], error.details["character"]) == (next(iter(arguments)), 3)
    assert "at character 3," in error.message


def test_usage_lists_parameters_in_one_line():
    assert format_usage("tool", DECLARED).startswith("call tool with text (required), word, limit, ")
    assert format_usage("tool", ()) == "call tool without parameters"


def test_choice_is_one_of_its_values_or_another_spelling_of_one():
    assert take(way="theirs")["way"] == "theirs"
    assert take(way="--ours") == {"text": "x"}
    error = refuse(way="both")
    assert error.details == {"parameter": "way", "value": "'both'"}
    assert "ours, theirs" in error.message


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{"n": {"$gt": 1}}, '{"n": {"$gt": 1}}', ' {"n": {"$gt": 1}}\n'])
def test_object_is_accepted_as_json_text(value):
    assert take(where=value)["where"] == {"n": {"$gt": 1}}


@pytest.mark.parametrize("value", ["{broken", "[1]", "5", "null", '"{}"', "{'a': 1}", '{"n": NaN}', '{"n": 1}}'])
def test_parse_rejects_text_that_is_not_a_json_object(value):
    assert refuse(JsonInvalid, where=value).details["parameter"] == "where"


@pytest.mark.parametrize("value", [5, True, [{"n": 1}]])
def test_parse_rejects_values_that_are_not_objects(value):
    assert refuse(where=value).details["parameter"] == "where"


def test_json_text_nested_without_end_is_refused_and_breaks_nothing():
    refuse(JsonInvalid, where='{"a":' * 100_000)
    refuse(JsonInvalid, metadatas="[" * 100_000)


def test_list_of_objects_is_accepted_as_json_text():
    assert take(metadatas='[{"n": 1}, null]')["metadatas"] == [{"n": 1}, None]
    assert take(metadatas=[{"n": 1}, None])["metadatas"] == [{"n": 1}, None]
    refuse(JsonInvalid, metadatas="one")
    refuse(JsonInvalid, metadatas='{"n": 1}')
    assert "metadatas[1]" in refuse(metadatas=[{}, 5]).message


def test_list_of_vectors_holds_lists_of_numbers():
    assert take(embeddings=[[1, 0.5], None])["embeddings"] == [[1, 0.5], None]
    for wrong in ([[1, "2"]], [1, 2], [[True]], [{"n": 1}]):
        assert "embeddings[0]" in refuse(embeddings=wrong).message


# -- lists of texts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (["a", "b"], ["a", "b"]),
        ("a", ["a"]),
        ('["a", "b"]', ["a", "b"]),
        ('{"a": 1}', ['{"a": 1}']),
        ("5", ["5"]),
        ("[broken", ["[broken"]),
        (["[1]"], ["[1]"]),
    ],
)
def test_text_becomes_list_of_one_unless_it_is_json_list(value, taken):
    assert take(ids=value)["ids"] == taken


@pytest.mark.parametrize("value", [5, {"a": 1}, [1], ["a", None], [["a"]], "[1]"])
def test_parse_rejects_values_that_are_not_lists_of_texts(value):
    assert refuse(ids=value).details["parameter"] == "ids"


def test_list_needs_its_minimum_length_and_has_no_maximum():
    assert refuse(ids=[]).details["parameter"] == "ids"
    assert len(take(ids=["x"] * 100_000)["ids"]) == 100_000


def test_element_may_be_null_or_empty_only_with_a_meaning():
    assert take(texts=["a", None, ""])["texts"] == ["a", None, ""]
    assert "full[1]" in refuse(full=["a", ""]).message


def test_each_element_is_one_of_the_choices():
    assert take(include=["metadatas", "documents"])["include"] == ["metadatas", "documents"]
    assert take(include="metadatas")["include"] == ["metadatas"]
    assert take(include=[])["include"] == []
    assert refuse(include=["documents", "vectors"]).details == {"parameter": "include", "value": "'vectors'"}


# -- schema ----------------------------------------------------------------------------------------


def test_schema_has_only_type_limits_and_default():
    assert schema("text") == {"type": "string", "maxLength": 4096}
    assert schema("offset") == {"type": "integer", "minimum": 0, "default": 0}
    assert schema("limit") == {
        "type": "integer",
        "minimum": 1,
        "maximum": 100,
        "default": 20,
        "description": "how many",
    }
    assert schema("sure") == {"type": "boolean", "default": False}
    assert schema("way") == {"type": "string", "enum": ["ours", "theirs"], "default": "ours"}
    assert schema("from") == {"type": "string", "maxLength": 4096, "default": "HEAD"}


def test_schema_of_objects_and_lists_lets_json_text_through():
    assert schema("where") == {"anyOf": [{"type": "object"}, {"type": "string", "maxLength": 1 << 20}]}
    texts = {"type": "array", "items": {"type": "string", "maxLength": 4096}, "minItems": 1}
    assert schema("ids") == {"anyOf": [texts, {"type": "string", "maxLength": LONGEST_TEXT}]}
    assert schema("metadatas")["anyOf"][0]["items"] == {"anyOf": [{"type": "object"}, {"type": "null"}]}
    assert schema("embeddings")["anyOf"][0]["items"] == {
        "anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]
    }
    assert schema("include")["anyOf"][0]["items"] == {"type": "string", "enum": ["documents", "metadatas"]}


class Part(Record, frozen=True):
    name: str
    size: int = 1


class Order(Record, frozen=True):
    item: Annotated[str, Meta(description="what", extra={"aliases": ("thing",)})]
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    parts: Sequence[Part] = ()
    about: Mapping[str, Any] = {}


@fields_as_keywords
def place_order(_call: None, request: Order, *, number: int) -> tuple[Order, int]:
    """Place an order."""
    return request, number


def test_request_fields_become_parameters_after_the_keywords_of_function():
    result = read_parameters(place_order)
    assert [(parameter.name, parameter.required) for parameter in result] == [
        ("number", True),
        ("item", True),
        ("share", False),
        ("parts", False),
        ("about", False),
    ]
    assert {parameter.name: parameter.build_schema() for parameter in result} == {
        "number": {"type": "integer"},
        "item": {"type": "string", "maxLength": 4096, "description": "what"},
        "share": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
        "parts": {
            "anyOf": [{"type": "array", "items": {"type": "object"}}, {"type": "string", "maxLength": LONGEST_TEXT}]
        },
        "about": {"anyOf": [{"type": "object"}, {"type": "string", "maxLength": 1 << 20}]},
    }


def test_function_gets_its_request_with_defaults_of_the_fields():
    given = {"thing": "a", "number": "3", "parts": [{"name": "x", "colour": "red"}]}
    order, number = place_order(None, **parse_arguments(read_parameters(place_order), given, lambda *_: None))
    assert (order.item, order.share, list(order.parts), order.about, number) == ("a", 0.5, [Part("x")], {}, 3)


@pytest.mark.parametrize("parts", [[{"size": 2}], [{"name": "x"}, {"name": 1}]])
def test_parse_rejects_invalid_records_with_their_position(parts):
    given = {"item": "a", "number": 1, "parts": parts}
    with pytest.raises(UsageInvalid, match=r"^parts\[\d\] cannot be used: .*name"):
        parse_arguments(read_parameters(place_order), given, lambda *_: None)

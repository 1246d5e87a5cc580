# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Bodies of requests, in the formats of OpenAI, text-embeddings-inference (TEI), vLLM and Cohere.

As in these servers, `null` means that a field is absent, and unknown fields are ignored.
"""

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from starlette.requests import Request

from .error_format import error_of_body
from .request_guards import read_body


MOST_ITEMS = 2**17  # of a list
QUERY_CHARACTERS = 2**13  # of a search, which reads its query in one step that nothing stops
# The first wrong item ends the validation: an error for each of a million items would take minutes.
LIST = Field(max_length=MOST_ITEMS, fail_fast=True)
Strings: TypeAlias = Annotated[list[str], LIST]
Ids: TypeAlias = Annotated[list[int], LIST]
Texts: TypeAlias = str | Strings
TextsOrIds: TypeAlias = str | Strings | Ids | Annotated[list[Ids], LIST]
T = TypeVar("T", bound="Body")


class Body(BaseModel):
    """The base class of all bodies."""

    model_config = ConfigDict(extra="ignore", strict=True)

    @model_validator(mode="before")
    @classmethod
    def without_nulls(cls, data: Any) -> Any:
        return {name: x for name, x in data.items() if x is not None} if isinstance(data, dict) else data

    @classmethod
    async def read(cls: type[T], request: Request) -> T:
        """Read the body of a request. Raises an `ApiError` if it is invalid."""
        data = await read_body(request, request.app.state.service.settings.max_body_bytes)
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise error_of_body(error) from None


class Truncating(Body):
    """Fields of TEI for texts that are too long."""

    truncate: bool = False
    truncation_direction: Literal["left", "right"] = "right"

    @field_validator("truncation_direction", mode="before")
    @classmethod
    def in_lower_case(cls, value: Any) -> Any:  # TEI writes "Left"
        return value.lower() if isinstance(value, str) else value

    @property
    def side(self) -> str | None:
        """The end at which a text that is too long is cut; `None` refuses it."""
        return self.truncation_direction if self.truncate else None


class OpenAIEmbeddings(Truncating):
    """The body of /v1/embeddings."""

    input: TextsOrIds
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    prompt_name: str | None = None
    input_type: str | None = None


class CohereEmbed(Body):
    """The body of /v2/embed, as in version 2 of Cohere's API. Texts that are too long are cut at their end."""

    texts: Strings
    model: str | None = None
    input_type: str | None = None
    embedding_types: Annotated[list[Literal["float", "base64"]], LIST] = ["float"]
    output_dimension: int | None = None
    truncate: Literal["NONE", "START", "END"] = "END"

    @property
    def side(self) -> str | None:
        """The end at which a text that is too long is cut; `None` refuses it."""
        return {"NONE": None, "START": "left", "END": "right"}[self.truncate]


class TeiEmbed(Truncating):
    """The body of /embed."""

    inputs: TextsOrIds
    normalize: bool = True
    prompt_name: str | None = None
    dimensions: int | None = None


class Rerank(Truncating):
    """The body of /rerank and /v1/rerank: `texts` as in TEI, or `documents` as in Cohere, Jina and vLLM."""

    query: str
    texts: Strings | None = None
    documents: Annotated[list[str | dict[str, Any]], LIST] | None = None
    model: str | None = None
    raw_scores: bool = False
    return_text: bool = False
    return_documents: bool = False
    top_n: int | None = Field(None, ge=1)


class Search(Body):
    """The body of /search."""

    query: str = Field(max_length=QUERY_CHARACTERS)
    top: int = Field(5, ge=1, le=1000)


class TeiPredict(Truncating):
    """The body of /predict: a text, a pair as a list, or a list of such lists with one or two texts each."""

    inputs: Texts | Annotated[list[Strings], LIST]
    raw_scores: bool = False


class Classify(Truncating):
    """The body of /classify, as in vLLM."""

    input: Texts
    model: str | None = None

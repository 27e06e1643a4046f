"""Talks to a running server with OpenAI's own client: `openai_client.py BASE_URL PART [FILE NEXT]`."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
EXPLAIN = {"x-pointsman-explain": "true"}


def decision(headers):
    """What the header of explanation says, by field."""
    return dict(part.split("=", 1) for part in headers["x-pointsman-decision"].split("; "))


def worker_of(headers):
    return decision(headers)["worker"]


def ask(text, headers=None, **more):
    """A chat that is answered whole: the worker and the answer."""
    raw = client.chat.completions.with_raw_response.create(
        model="mock",
        messages=[{"role": "user", "content": text}],
        extra_headers={**EXPLAIN, **(headers or {})},
        **{"max_tokens": 4, **more},
    )
    return worker_of(raw.headers), raw.parse()


def open_stream(text, headers=None):
    """A chat that has begun to stream: the worker and the stream."""
    raw = client.chat.completions.with_raw_response.create(
        model="mock",
        messages=[{"role": "user", "content": text}],
        extra_headers={**EXPLAIN, **(headers or {})},
        max_tokens=2_000,
        stream=True,
    )
    stream = raw.parse()
    next(iter(stream))
    return worker_of(raw.headers), stream


def answers():
    assert [model.id for model in client.models.list()] == ["mock"]
    _, answer = ask("hello")
    assert answer.choices[0].message.content and answer.usage.completion_tokens == 4, answer
    stream = client.chat.completions.create(
        model="mock",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == answer.choices[0].message.content, (text, answer)
    assert chunks[-1].usage.completion_tokens == 4, chunks[-1]
    assert client.completions.create(model="mock", prompt="hello", max_tokens=2).choices[0].text
    assert len(client.embeddings.create(model="mock", input=["a", "b"]).data) == 2
    try:
        client.chat.completions.create(model="other", messages=[{"role": "user", "content": "a"}])
        raise AssertionError("an unknown model was served")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found" and error.param == "model", error.body


def prefix():
    texts = [str(text) * 2_000 for text in range(6)]
    first = [ask(text)[0] for text in texts]
    assert [ask(text + " and more")[0] for text in texts] == first, first


def walk():
    session = {"x-dynamo-session-id": "S"}
    a, stream = open_stream("one", session)
    b, _ = ask("two", session)
    assert a != b, "its worker is busy"
    stream.close()
    third, _ = ask("three", session)
    assert third == b, (a, b, third)


def load():
    streams = [open_stream(str(text)) for text in range(4)]
    workers = sorted(worker for worker, _ in streams)
    assert workers == ["1", "1", "2", "2"], workers
    for _, stream in streams:
        stream.close()


def explained(text, **more):
    """A short chat: what decided it, and the raw answer."""
    raw = client.chat.completions.with_raw_response.create(
        model="mock", messages=[{"role": "user", "content": text}], extra_headers=EXPLAIN, max_tokens=2, **more
    )
    return decision(raw.headers), raw


def swap():
    """Another file takes the policy's place while a stream runs."""
    file, following = sys.argv[3:]
    raw = client.chat.completions.with_raw_response.create(
        model="mock",
        messages=[{"role": "user", "content": "a long one"}],
        extra_headers=EXPLAIN,
        max_tokens=3_000,
        stream=True,
    )
    before, stream = decision(raw.headers)["digest"], iter(raw.parse())
    next(stream)
    os.replace(following, file)
    deadline = time.monotonic() + 30
    while explained("again")[0]["digest"] == before:
        assert time.monotonic() < deadline, "the new file never decides"
    chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason == "length", "the stream goes on to its end"


def trap():
    """A policy that traps now and then fails no request, whole or as a stream."""

    def one(number):
        told, raw = explained(f"request {number}", stream=number % 2 == 0)
        parsed = raw.parse()
        if number % 2 == 0:
            assert list(parsed)[-1].choices[0].finish_reason
        else:
            assert parsed.choices[0].message.content
        return told["fallback"] == "true"

    with ThreadPoolExecutor(8) as pool:
        fallbacks = sum(pool.map(one, range(200)))
    assert 0 < fallbacks < 200, fallbacks


{"answers": answers, "prefix": prefix, "walk": walk, "load": load, "swap": swap, "trap": trap}[sys.argv[2]]()

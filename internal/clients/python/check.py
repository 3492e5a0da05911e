"""Plays the scenarios with OpenAI's and Anthropic's libraries for Python.

Usage: check.py BASE-URL KEY LIMITED-KEY. Prints {scenario: what was seen} as JSON.
"""

import json
import sys
import time

import anthropic
import openai

base, key, limited_key = sys.argv[1:4]
client = openai.OpenAI(base_url=base + "/v1", api_key=key, max_retries=0, timeout=20)
user = [{"role": "user", "content": "grüße 🌍"}]
seen = {}


def scenario(f):
    """Runs f and notes what it returns, or the error it ends with."""
    try:
        seen[f.__name__] = f()
    except (openai.APIError, anthropic.APIError) as e:
        seen[f.__name__] = {
            "error": type(e).__name__,
            "status": getattr(e, "status_code", None),
            "code": getattr(e, "code", None),
            "retry_after": e.response.headers.get("retry-after") if hasattr(e, "response") else None,
            "text": texts.pop(f.__name__, ""),
        }
    except Exception as e:  # a broken connection is the HTTP library's own error
        seen[f.__name__] = {"error": type(e).__name__, "text": texts.pop(f.__name__, "")}


texts = {}


def collect(name, stream):
    """Reads a stream to its end; what came before an error stays known."""
    finish, usage = None, None
    for chunk in stream:
        for choice in chunk.choices:
            texts[name] = texts.get(name, "") + (choice.delta.content or "")
            finish = choice.finish_reason or finish
        usage = chunk.usage or usage
    return {"text": texts.pop(name, ""), "finish": finish, "usage": usage and usage.completion_tokens}


@scenario
def models():
    return {"listed": "m" in [m.id for m in client.models.list()], "one": client.models.retrieve("m").id}


@scenario
def chat():
    r = client.chat.completions.create(model="m", messages=user, max_tokens=5)
    return {"text": bool(r.choices[0].message.content), "usage": r.usage.completion_tokens}


@scenario
def stream():
    r = client.chat.completions.create(model="m", messages=user, max_tokens=5, stream=True, stream_options={"include_usage": True})
    got = collect("stream", r)
    got["text"] = bool(got["text"])
    return got


@scenario
def completion():
    r = client.completions.create(model="m", prompt="one two", max_tokens=3)
    return {"text": bool(r.choices[0].text), "usage": r.usage.completion_tokens}


@scenario
def embeddings():
    r = client.embeddings.create(model="m", input=["a", "b"])
    return {"vectors": len(r.data)}


@scenario
def large():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 700_000}}
    r = client.chat.completions.create(model="echo-length", messages=[{"role": "user", "content": [image]}])
    return {"text": r.choices[0].message.content}


@scenario
def agent():
    """An agent loop: streamed tool calls, two tools run, their results sent, an answer streamed."""
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
        for name in ("weather", "time")
    ]
    messages, calls, rounds = list(user), 0, 0
    while True:
        rounds += 1
        parts, text = {}, ""
        for chunk in client.chat.completions.create(model="agent", messages=messages, tools=tools, stream=True):
            delta = chunk.choices[0].delta
            text += delta.content or ""
            for call in delta.tool_calls or []:
                part = parts.setdefault(call.index, {"id": "", "name": "", "arguments": ""})
                part["id"] += call.id or ""
                part["name"] += call.function.name or ""
                part["arguments"] += call.function.arguments or ""
        if not parts:
            return {"text": text, "calls": calls, "rounds": rounds}
        messages.append({"role": "assistant", "content": text or None, "tool_calls": [
            {"id": p["id"], "type": "function", "function": {"name": p["name"], "arguments": p["arguments"]}} for p in parts.values()]})
        for p in parts.values():
            calls += 1
            messages.append({"role": "tool", "tool_call_id": p["id"], "content": p["name"] + " in " + json.loads(p["arguments"])["city"]})


@scenario
def responses():
    got = ""
    for event in client.responses.create(model="responses", input="hi", stream=True):
        if event.type == "response.output_text.delta":
            got += event.delta
        if event.type == "response.completed":
            return {"text": got, "finish": event.response.status}


@scenario
def unknown_model():
    client.chat.completions.create(model="nobody-has-it", messages=user)


@scenario
def invalid():
    client.chat.completions.create(model="m", messages=user, n=0)


@scenario
def wrong_key():
    client.with_options(api_key=key + "-not").chat.completions.create(model="m", messages=user)


@scenario
def forbidden():
    client.with_options(api_key=limited_key).chat.completions.create(model="says-401", messages=user)


def ask_limited(**options):
    return client.with_options(api_key=limited_key, **options).chat.completions.create(model="m", messages=user, max_tokens=1)


@scenario
def rate_limited():
    ask_limited()
    ask_limited()


@scenario
def rate_limited_then_served():
    return {"text": bool(ask_limited(max_retries=3).choices[0].message.content)}


@scenario
def unauthorized():
    client.chat.completions.create(model="says-401", messages=user)


@scenario
def limited():
    client.chat.completions.create(model="says-429", messages=user)


@scenario
def limited_then_served():
    begun = time.monotonic()
    r = client.with_options(max_retries=1).chat.completions.create(model="says-429-once", messages=user)
    return {"text": r.choices[0].message.content, "waited": time.monotonic() - begun >= 1}


@scenario
def overloaded():
    client.chat.completions.create(model="says-503", messages=user, stream=True)


@scenario
def dies():
    return collect("dies", client.chat.completions.create(model="dies", messages=user, stream=True))


@scenario
def dies_before():
    return collect("dies_before", client.chat.completions.create(model="dies-before", messages=user, stream=True))


@scenario
def cut_short():
    client.chat.completions.create(model="cut-short", messages=user)


@scenario
def stalls():
    return collect("stalls", client.with_options(timeout=2).chat.completions.create(model="stalls", messages=user, stream=True))


@scenario
def leaves():
    """The client has enough after one chunk; the worker must be told."""
    r = client.chat.completions.create(model="leaves", messages=user, stream=True)
    first = next(iter(r)).choices[0].delta.content
    r.close()
    return {"text": first}


claude = anthropic.Anthropic(base_url=base, api_key=key, max_retries=0, timeout=20)


@scenario
def messages():
    with claude.messages.stream(model="messages", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as s:
        text = "".join(s.text_stream)
        return {"text": text, "usage": s.get_final_message().usage.output_tokens}


@scenario
def messages_dies():
    with claude.messages.stream(model="messages-dies", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as s:
        for piece in s.text_stream:
            texts["messages_dies"] = texts.get("messages_dies", "") + piece
    return {"text": texts.pop("messages_dies", "")}


@scenario
def messages_wrong_key():
    claude.with_options(api_key=key + "-not").messages.create(model="messages", max_tokens=9, messages=[{"role": "user", "content": "hi"}])


@scenario
def messages_unknown():
    claude.messages.create(model="nobody-has-it", max_tokens=9, messages=[{"role": "user", "content": "hi"}])


print(json.dumps(seen))

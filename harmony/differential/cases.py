"""Random conversations and completions for the differential scripts.

All random values come from one random.Random, so a seed reproduces a run.
"""

import json

WORDS = """the a of weather in is it {"a":1} functions.f <|start|> <|end|> <|constrain|>json // */ "quoted" back\\slash
naïve 中文字 🙂👩🏽‍🚀 e\u0301 \u2028 \u00a0 don't 3.14 1234567 \t \n\n   x_y-z CamelCase null "null" :""".split(" ")
ROLES = ["system", "developer", "user", "assistant", "tool"]
CHANNELS = [None, "analysis", "commentary", "final", "other", "<|channel|>"]
RECIPIENTS = [None, None, "functions.f", "browser.search", "python", "all", "assistant", "<|end|>", "a b"]
CONTENT_TYPES = [None, None, "json", "<|constrain|>json", "<|constrain|>", "code", "<|constrain|> json", "x<|constrain|>y"]
NUMBERS = [0, 1, -1, 2**53, 2**63, 2**64, -(2**63), -(2**63) - 1, 0.5, 1e22, 1e16, 1e15, 123456.789, 1e-5, 1e-6, 1.5e-7, -0.0, 1e300]


def text(r, most=12):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(0, most)))


def word(r):
    return r.choice(["name", "a-b c", "größe", "x", "limit", "$ref", "type", "", "日本", "0x", "_y", "desc ription"])


def scalar(r):
    return r.choice([text(r, 3), r.choice(NUMBERS), True, False, None, [], [1, "x"], {"k": None, "a": ["q\"z"]}])


def schema(r, depth=3):
    """Any schema, with or without a correct type in the reference."""
    s = {}
    kind = r.randint(0, 13)
    if depth == 0:
        kind = r.choice([0, 1, 2, 3, 4])
    if kind <= 1:
        s["type"] = "string"
        if r.random() < 0.4:
            s["enum"] = [r.choice([text(r, 2), "x", "y", None, 3]) for _ in range(r.randint(0, 4))]
    elif kind <= 3:
        s["type"] = r.choice(["number", "integer", "boolean", "null", "any", "Object"])
    elif kind == 4:
        s["type"] = [r.choice(["string", "integer", "number", "null", "array", 3]) for _ in range(r.randint(0, 3))]
    elif kind <= 8:
        s["type"] = "object"
        if r.random() < 0.9:
            s["properties"] = {word(r): schema(r, depth - 1) for _ in range(r.randint(0, 5))}
        if r.random() < 0.6:
            s["required"] = [r.choice([word(r), 1]) for _ in range(r.randint(0, 4))]
        if r.random() < 0.2:
            s["additionalProperties"] = r.choice([True, False, {"type": "string"}])
    elif kind == 9:
        s["type"] = "array"
        if r.random() < 0.8:
            s["items"] = schema(r, depth - 1)
    elif kind <= 11:
        s["oneOf"] = r.choice([[schema(r, depth - 1) for _ in range(r.randint(0, 3))], "odd", None])
        if r.random() < 0.3:
            s["type"] = "object"
    elif kind == 12:
        s[r.choice(["anyOf", "allOf"])] = [schema(r, depth - 1)]
    for key, value in (("title", text(r, 2)), ("description", text(r, 4)), ("default", scalar(r)), ("nullable", r.random() < 0.7),
                       ("examples", [scalar(r) for _ in range(r.randint(0, 2))])):
        if r.random() < 0.25:
            s[key] = value
    if r.random() < 0.03:
        s["description"] = r.choice([3, None, ["x"]])
    return s


def plain(r, most=4):
    """Text that needs no escape and stays on one line."""
    return " ".join(r.choice(["alpha", "of the", "näïve", "中文", "x_1", "it's", "(a, b)", "null"]) for _ in range(r.randint(1, most)))


def sound_schema(r, depth=3, variant=False):
    """A schema that the reference renders as a correct type."""
    kind = r.randint(0, 9) if depth else r.randint(0, 3)
    s = {}
    if kind == 0:
        s["type"] = "string"
    elif kind == 1:
        s.update(type="string", enum=[f"v{i}" for i in range(r.randint(1, 4))])
    elif kind == 2:
        s["type"] = r.choice(["number", "integer", "boolean"])
    elif kind == 3:
        s["type"] = r.choice([["string", "null"], ["number", "string"], ["integer", "null"]])
    elif kind <= 6 and not variant:
        names = r.sample(["a", "b_c", "größe", "$x", "Name2", "日本"], r.randint(0, 4))
        s.update(type="object", properties={n: sound_property(r, depth - 1) for n in names}, required=r.sample(names, len(names) // 2))
    elif kind == 7 and not variant:
        s["type"] = "array"
        items = sound_schema(r, depth - 1)
        if not compound(items):
            s["items"] = items
    else:
        s["type"] = r.choice(["string", "number", "boolean"])
    if r.random() < 0.2 and s["type"] not in ("object", "array") and not isinstance(s["type"], list):
        s["nullable"] = True
    return s


def compound(s):
    return isinstance(s["type"], list) or len(s.get("enum", [])) > 1 or s.get("nullable")


def sound_property(r, depth):
    if r.random() < 0.2:
        p = {"oneOf": [sound_schema(r, 0, variant=True) for _ in range(r.randint(1, 3))]}
        for i, v in enumerate(p["oneOf"]):
            if i > 0 and r.random() < 0.5:
                v["description"] = plain(r) + f" {i}"
            if r.random() < 0.3 and "enum" not in v:
                v["default"] = r.choice([plain(r), 3, True, None])
    else:
        p = sound_schema(r, depth)
    if r.random() < 0.5 and p.get("type") != "object":
        p["description"] = plain(r)
    if r.random() < 0.2:
        p["title"] = plain(r)
    if r.random() < 0.2:
        p["examples"] = [plain(r) for _ in range(r.randint(0, 2))]
    if r.random() < 0.3:
        p["default"] = r.choice([plain(r), "v0", r.choice(NUMBERS), False, None, ["x", 1, {"k": None}]])
    return p


def tool(r, make_schema, say):
    t = {"name": r.choice(["f", "get_weather", "lookup-2"]), "description": say(r)}
    if r.random() < 0.8:
        t["parameters"] = make_schema(r) if r.random() < 0.9 else {}
    elif r.random() < 0.5:
        t["parameters"] = None
    return t


def namespaces(r, make_schema, say):
    out = {}
    for name in r.sample(["functions", "browser", "python", "Zeta", "mcp_1"], r.randint(0, 3)):
        out[name] = {"name": name, "tools": [tool(r, make_schema, say) for _ in range(r.randint(0, 3))]}
        if r.random() < 0.5:
            out[name]["description"] = say(r)
    return out


def system(r, make_schema, say):
    s = {"type": "system_content"}
    for key, value in (("model_identity", say(r) or "I"), ("reasoning_effort", r.choice(["Low", "Medium", "High"])),
                       ("conversation_start_date", "2025-06-28"), ("knowledge_cutoff", "2024-06"),
                       ("channel_config", {"valid_channels": r.choice([[], ["analysis", "commentary", "final"], ["a b"]]), "channel_required": r.random() < 0.5}),
                       ("tools", namespaces(r, make_schema, say))):
        if r.random() < 0.7:
            s[key] = value
    return s


def developer(r, make_schema, say):
    d = {"type": "developer_content"}
    if r.random() < 0.7:
        d["instructions"] = say(r) or "I"
    if r.random() < 0.7:
        d["tools"] = namespaces(r, make_schema, say)
    return d


def lines(r):
    return "\n".join(text(r, 4) for _ in range(r.randint(1, 3)))


def message(r, make_schema, say):
    role = r.choice(ROLES[2:]) if r.random() < 0.7 else r.choice(ROLES)
    m = {"role": role}
    if role == "tool" and r.random() < 0.97 or r.random() < 0.05:
        m["name"] = r.choice(["functions.f", "bob", "browser.search", "<|end|>", "a b"])
    parts = []
    for _ in range(r.choice([0, 1, 1, 1, 1, 1, 2])):
        if role == "system" and r.random() < 0.8 or r.random() < 0.01:
            parts.append(system(r, make_schema, say))
        elif role == "developer" and r.random() < 0.8 or r.random() < 0.01:
            parts.append(developer(r, make_schema, say))
        else:
            parts.append({"type": "text", "text": text(r, 30)})
    m["content"] = parts
    if len(parts) == 1 and parts[0]["type"] == "text" and r.random() < 0.3:
        m["content"] = parts[0]["text"]
    for key, choices in (("channel", CHANNELS), ("recipient", RECIPIENTS), ("content_type", CONTENT_TYPES)):
        if role == "assistant" or r.random() < 0.15:
            value = r.choice(choices)
            if value is not None or r.random() < 0.2:
                m[key] = value
    return m


def conversation(r, sound=False):
    """The JSON of a conversation. If sound is set, it has only schemas that the
    reference renders as correct types, and no analysis."""
    make, say = (sound_object if sound else schema), lines
    messages = [message(r, make, say) for _ in range(r.randint(0, 8))]
    if sound:
        for m in messages:
            if m.get("channel") == "analysis":
                m["channel"] = "commentary"
    return json.dumps({"messages": messages})


def sound_object(r):
    names = r.sample(["a", "b_c", "größe", "$x", "Name2"], r.randint(0, 4))
    s = {"type": "object", "properties": {n: sound_property(r, 2) for n in names}, "required": names[:2]}
    if r.random() < 0.2:
        s["description"] = plain(r)
    return s


SPECIALS = [199998, 199999, 200002, 200003, 200005, 200006, 200007, 200008, 200012, 200013, 200018, 201087, 201088]
STOPS = [200002, 200007, 200012]


def header(r, encode):
    """The tokens of a header, which is sometimes malformed."""
    parts = []
    to = r.choice(["", "", " to=functions.f", " to=functions.f to=functions.g", "to=f", " to= f", " functions.f", " to=browser.search"])
    at = r.random()
    if at < 0.3:
        parts += encode(to)
    for _ in range(r.choice([0, 1, 1, 1, 1, 1, 1, 2])):
        parts.append(200005)
        parts += encode(r.choice(["analysis", "commentary", "final", "final ", "", "x\u00a0y", "\u3000", "commentary?!", "fin"]))
    if at >= 0.3:
        parts += encode(to)
    kind = r.random()
    if kind < 0.2:
        parts += encode(r.choice([" json", "json", " code", " \u00a0", " a b c", "\"q\\ \u0301\u200b"]))
    elif kind < 0.4:
        parts += encode(r.choice(["", " "])) + [200003] + encode(r.choice(["json", " json", ""]))
    if r.random() < 0.05:
        parts.insert(r.randint(0, len(parts)), r.choice(SPECIALS + [9552, 377, 99999999, 187]))
    return parts


def content(r, encode):
    parts = []
    for _ in range(r.randint(0, 6)):
        kind = r.random()
        if kind < 0.6:
            parts += encode(text(r, 6))
        elif kind < 0.8:  # tokens that are parts of characters
            parts += [r.choice([9552, 377, 1404, 187, 186, 255, 160, 116, 172, 253, 240, 244, 31446, 169, 254, 222, 124]) for _ in range(r.randint(1, 5))]
        elif kind < 0.9:
            parts += [r.randint(0, 199997) for _ in range(r.randint(1, 5))]
        elif kind < 0.97:
            parts.append(r.choice(SPECIALS))
        else:
            parts.append(r.choice([201089, 99999999, 4294967295]))
    return parts


def completion(r, encode, role):
    """The tokens of a completion."""
    tokens = []
    for i in range(r.randint(0, 4)):
        if i > 0 or role is None:
            tokens.append(200006)
            tokens += encode(r.choice(["assistant"] * 6 + ["user", "tool", "bogus", "user:bob", "functions.f", "", " assistant", "assistant assistant"]))
        tokens += header(r, encode)
        if r.random() < 0.95:
            tokens.append(200008)
        tokens += content(r, encode)
        if r.random() < 0.95:
            tokens.append(r.choice(STOPS))
        if r.random() < 0.03:
            tokens.append(r.choice(SPECIALS + encode("stray")))
    return tokens

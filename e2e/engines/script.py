"""Converts the script in a prompt to tokens. The last user message is the script,
with the lines of engine-sim:

    THINK text           the analysis; NOTHINK: none. Default: "The user wants a reply."
    COMMENTARY text      a preamble before the first call
    CALL name arguments  a call of functions.name: the first line follows the user message, the next one
                         the first tool result, and so on
    SAY text             the final answer, after the results of all calls
    WORDS n [ms]         the final answer "w1 w2 … wn", with a delay of ms milliseconds per token
    FREE                 after the analysis the weights generate the rest
    SIM headers=n        the form of the headers of calls, 1 to 4; seed: gpt-oss's own, 1 to 3, one after the other.
                         What else such a line says is for engine-sim

Without SAY and WORDS the answer to a tool result is "RESULT: " and its text. A
message without any of these lines is not a script.

Grammars take precedence: the first form of the script that the grammar accepts is
used. If it accepts none, the weights generate the reply.
"""

import itertools
from dataclasses import dataclass, field

import tiktoken

VOCABULARY = tiktoken.get_encoding("o200k_harmony")
CONTROL = {name[2:-2]: token for name, token in VOCABULARY._special_tokens.items()}
START, MESSAGE, END = CONTROL["start"], CONTROL["message"], CONTROL["end"]
STOPS = (CONTROL["return"], CONTROL["call"])
FORBIDDEN = float("-inf")  # the logit of a token that a grammar masks


def encode(text):
    """Encodes text. Names of control tokens in it are text."""
    return VOCABULARY.encode_ordinary(text)


def decode(tokens):
    """Decodes tokens. Ids beyond the vocabulary are left out."""
    return VOCABULARY.decode([token for token in tokens if token < VOCABULARY.n_vocab])


def harmony(*parts):
    """Returns the token ids of parts: ids of control tokens, and texts."""
    return [token for part in parts for token in ([part] if isinstance(part, int) else encode(part))]


@dataclass
class Message:
    role: str
    body: str


def read(prompt):
    """Returns the messages of a prompt, and the tokens of the reply that it has begun:
    the assistant's messages behind those of others, and an open last message."""
    messages, begun = [], []
    for _, group in itertools.groupby(pieces(prompt), key=lambda piece: piece[0]):
        tokens = [token for _, token in group]
        if tokens.count(MESSAGE) and tokens[-1] in (END, *STOPS):
            at = tokens.index(MESSAGE)
            header = decode(tokens[1:at])
            messages.append(Message(header.split("<|")[0].split(" ")[0], decode(tokens[at + 1 : -1])))
            begun = begun + tokens if messages[-1].role == "assistant" else []
        else:
            begun = begun + tokens
    return messages, begun


def pieces(prompt):
    """Yields each token with the number of its message."""
    number = 0
    for token in prompt:
        number += token == START
        yield number, token


@dataclass
class Script:
    think: str | None = "The user wants a reply."
    commentary: str | None = None
    say: str | None = None
    calls: list = field(default_factory=list)
    delay: float = 0  # seconds per token
    free: bool = False
    form: str = "1"  # of the headers of calls, as engine-sim numbers them


def parse(text):
    """Parses the script of a user message. Returns None if it has none."""
    script, found = Script(), False
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        match word:
            case "THINK":
                script.think = rest
            case "NOTHINK":
                script.think = None
            case "COMMENTARY":
                script.commentary = rest
            case "CALL":
                name, _, arguments = rest.partition(" ")
                script.calls.append((name, arguments))
            case "FREE":
                script.free = True
            case "SAY":
                script.say = rest
            case "WORDS":
                count, _, milliseconds = rest.partition(" ")
                script.say = " ".join(f"w{i + 1}" for i in range(int(count)))
                script.delay = int(milliseconds or 0) / 1000
            case "SIM":
                options = dict(option.partition("=")[::2] for option in rest.split())
                script.form = options.get("headers", script.form)
                continue
            case _:
                continue
        found = True
    return script if found else None


def ways(script, results, begun):
    """Returns every form of the script's next message after some tool results, best
    first, without begun, which is the part that the prompt already has."""
    channel, assistant = CONTROL["channel"], harmony(START, "assistant")
    lead = []
    if script.think is not None:
        lead += harmony(channel, "analysis", MESSAGE, script.think, END) + assistant
    if script.free:
        whole = [assistant + lead]
    elif len(results) < len(script.calls):
        name, arguments = script.calls[len(results)]
        if script.commentary is not None and not results:
            lead += harmony(channel, "commentary", MESSAGE, script.commentary, END) + assistant
        to = " to=functions." + name
        headers = [
            [channel, "commentary" + to + " ", CONTROL["constrain"], "json"],
            [to, channel, "commentary ", CONTROL["constrain"], "json"],
            [channel, "commentary" + to + " json"],
            [to, channel, "commentary json"],
        ]
        first = len(results) % 3 if script.form == "seed" else int(script.form) - 1
        headers = headers[first:] + headers[:first]
        whole = [assistant + lead + harmony(*header, MESSAGE, arguments, CONTROL["call"]) for header in headers]
    else:
        headers = [[channel, "final"], [channel, "final ", CONTROL["constrain"], "json"], [channel, "final json"]]
        text = script.say
        if text is None:
            text = "RESULT: " + results[-1] if results else "Hello."
        whole = [assistant + lead + harmony(*header, MESSAGE, text, CONTROL["return"]) for header in headers]
    rest = [way[len(begun) :] for way in whole if way[: len(begun)] == begun]
    final = harmony(END, START, "assistant", channel, "final", MESSAGE)
    if not rest and begun[-len(final) :] == final:  # the analysis was ended for the model
        rest = [way[way.index(MESSAGE, len(assistant + lead)) + 1 :] for way in whole[:1]]
    return rest


class Play:
    """The state of a request: the forms that are consistent with the output so far."""

    def __init__(self, prompt):
        messages, begun = read(prompt)
        users = [i for i, message in enumerate(messages) if message.role == "user"]
        script = parse(messages[users[-1]].body) if users else None
        self.ways, self.delay = [], 0
        if script is not None:
            results = [m.body for m in messages[users[-1] + 1 :] if m.role not in ("assistant", "developer", "system", "user")]
            self.ways, self.delay = ways(script, results, begun), script.delay

    def next(self, made, allowed):
        """Returns the token after the output made, or None if the weights decide."""
        n = len(made)
        self.ways = [way for way in self.ways if n < len(way) and way[:n] == made]
        for way in self.ways:
            if allowed(way[n]):
                return way[n]
            # After its end a grammar accepts any stop token, or only its own.
            if way[n] in STOPS:
                for stop in STOPS:
                    if allowed(stop):
                        return stop
        return None

    def force(self, made, logits):
        """Leaves only the next token of the script possible, after the output made."""
        token = self.next(made, lambda t: logits[t].item() != FORBIDDEN)
        if token is not None:
            logits.fill_(FORBIDDEN)
            logits[token] = 0.0

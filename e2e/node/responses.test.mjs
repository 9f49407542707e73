// Tests the Responses API with openai-node.
//
// The last user message is the script of the simulated engine. Replies pass through
// a proxy that checks every event and object; this client checks what a program
// reads from them.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const model = process.env.MODEL;
const client = new OpenAI({ maxRetries: 0 });

const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = [
  { type: "function", name: "get_weather", parameters: city, strict: false },
  { type: "custom", name: "shell", description: "Runs a command." },
  {
    type: "namespace",
    name: "places",
    description: "Places of the world.",
    tools: [{ type: "function", name: "find", parameters: city }],
  },
];

// Three ways to create a response: not streamed, by the stream's last event, and with
// the SDK's stream helper.
const ways = {
  notStreamed: (body) => client.responses.create({ model, ...body }),
  streamed: async (body) => lastOf(await client.responses.create({ model, stream: true, ...body })),
  helper: (body) => client.responses.stream({ model, ...body }).finalResponse(),
};

// lastOf returns the response of a stream's last event and checks that the deltas
// join to its text.
async function lastOf(stream) {
  let text = "";
  let response;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") text += event.delta;
    if (/^response\.(completed|incomplete|failed|cancelled)$/.test(event.type)) response = event.response;
  }
  assert.ok(response, "the stream has no last event");
  assert.equal(text, textOf(response));
  return response;
}

const textOf = (response) =>
  response.output
    .filter((item) => item.type === "message")
    .flatMap((item) => item.content.map((part) => part.text))
    .join("");

const ask = (input, more) => client.responses.create({ model, input, ...more });
const user = (content) => ({ role: "user", content });

// eachWay defines a test for each of the ways.
function eachWay(name, run) {
  for (const [way, create] of Object.entries(ways)) test(`${name}, ${way}`, () => run(create));
}

eachWay("answers", async (create) => {
  const reply = await create({ input: "THINK Let me see.\nSAY Grüße, 世界 👋🏽!" });
  assert.equal(textOf(reply), "Grüße, 世界 👋🏽!");
  assert.deepEqual(
    reply.output.map((item) => [item.type, item.phase]),
    [["reasoning", undefined], ["message", "final_answer"]],
  );
  assert.equal(reply.output[0].content[0].text, "Let me see.");
  assert.equal(reply.status, "completed");
  assert.ok(reply.usage.output_tokens_details.reasoning_tokens > 0);
  const truncated = await create({ input: "NOTHINK\nWORDS 100", max_output_tokens: 20 });
  assert.deepEqual([truncated.status, truncated.incomplete_details], ["incomplete", { reason: "max_output_tokens" }]);
});

eachWay("a reasoning summary", async (create) => {
  const reply = await create({ input: "THINK Hm.\nSAY yes", reasoning: { effort: "high", summary: "auto" } });
  assert.equal(reply.output[0].summary[0].text, "Hm.");
  assert.equal(reply.output[0].content, undefined);
});

// outputOf returns the output item of a call.
const outputOf = (call, output) => ({ type: `${call.type}_output`, call_id: call.call_id, output });

eachWay("a turn with several tools in sequence", async (create) => {
  const input = [user('THINK Three.\nCALL get_weather {"city":"Bern"}\nCALL shell {"input":"ls -l"}\nCALL places.find {"city":"Rom"}\nSAY done')];
  const wanted = [
    ["function_call", "get_weather", '{"city":"Bern"}'],
    ["custom_tool_call", "shell", "ls -l"],
    ["function_call", "find", '{"city":"Rom"}'],
  ];
  for (const [type, name, value] of wanted) {
    const reply = await create({ input, tools, store: false });
    const call = reply.output.at(-1);
    assert.deepEqual([call.type, call.name, call.arguments ?? call.input], [type, name, value]);
    assert.equal(call.namespace, name === "find" ? "places" : undefined);
    input.push(...reply.output, outputOf(call, [{ type: "input_text", text: `of ${name}` }]));
  }
  assert.equal(textOf(await create({ input, tools, store: false })), "done");
});

eachWay("parallel tools", async (create) => {
  const calls = ["Bern", "Rom"].map((name) => `to=functions.get_weather <constrain>json<message>{"city":"${name}"}`);
  const script = `@@<channel>commentary ${calls.join("<end><start>assistant<channel>commentary ")}<call>@@<channel>final<message>dry<return>@@`;
  const first = await create({ input: script, tools });
  assert.deepEqual(
    first.output.map((item) => item.arguments),
    ['{"city":"Bern"}', '{"city":"Rom"}'],
  );
  const outputs = first.output.map((call) => outputOf(call, "dry")).reverse();
  const reply = await create({ input: outputs, tools, previous_response_id: first.id });
  assert.equal(reply.status, "completed");
  await assert.rejects(create({ input: outputs.slice(1), tools, previous_response_id: first.id }), OpenAI.BadRequestError);
});

eachWay("a chain with other instructions", async (create) => {
  const first = await create({ input: "SAY one", instructions: "Be brief." });
  const second = await create({ input: "ECHO_SYSTEM", instructions: "Be long.", previous_response_id: first.id });
  assert.equal(textOf(second), "SYSTEM:Be long.");
  const tooled = await create({ input: "ECHO_TOOLS", tools, previous_response_id: second.id });
  assert.equal(textOf(tooled), "TOOLS:get_weather,places.find,shell");
  assert.equal(textOf(await create({ input: "LAST_ASSISTANT", previous_response_id: second.id })), "LAST:SYSTEM:Be long.");
});

eachWay("encrypted reasoning", async (create) => {
  const more = { tools, store: false, include: ["reasoning.encrypted_content"] };
  const question = user('THINK Sealed.\nCALL get_weather {"city":"Bern"}\nSAY sunny');
  const { output: [reasoning, call] } = await create({ input: [question], ...more });
  const sealed = { type: "reasoning", id: reasoning.id, summary: [], encrypted_content: reasoning.encrypted_content };
  const input = [question, sealed, call, outputOf(call, "sun")];
  assert.equal(textOf(await create({ input, ...more })), "sunny");
  sealed.encrypted_content = `x${sealed.encrypted_content}`;
  assert.equal(textOf(await create({ input, ...more })), "sunny"); // no key opens it: it counts as missing
  const { response } = await client.responses.create({ model, input, ...more }).withResponse();
  assert.match(response.headers.get("x-harmony-ignored"), /input\.encrypted_content/);
});

test("retrieve, input_items, delete", async () => {
  const first = await ask([user("one"), user("two"), user("NOTHINK\nSAY three")]);
  const reply = await ask("four", { previous_response_id: first.id });
  assert.deepEqual(await client.responses.retrieve(reply.id), reply);
  const texts = [];
  for await (const item of client.responses.inputItems.list(reply.id, { limit: 2, order: "asc" })) texts.push(item.content[0].text);
  assert.deepEqual(texts, ["one", "two", "NOTHINK\nSAY three", "three", "four"]);
  await assert.rejects(client.responses.cancel(reply.id), OpenAI.BadRequestError);
  await client.responses.delete(reply.id);
  await assert.rejects(client.responses.retrieve(reply.id), OpenAI.NotFoundError);
  await assert.rejects(ask("five", { previous_response_id: reply.id }), { status: 400, code: "previous_response_not_found" });
  const unstored = await ask("SAY one", { store: false });
  await assert.rejects(client.responses.retrieve(unstored.id), OpenAI.NotFoundError);
});

test("item references", async () => {
  const first = await ask("NOTHINK\nSAY blue");
  const input = [user("one"), { type: "item_reference", id: first.output[0].id }, user("LAST_ASSISTANT")];
  assert.equal(textOf(await ask(input)), "LAST:blue");
  await assert.rejects(ask([{ type: "item_reference", id: "msg_none" }, user("hi")]), OpenAI.NotFoundError);
});

test("input tokens", async () => {
  const request = { model, input: "Grüße", instructions: "Be brief.", tools };
  const counted = await client.responses.inputTokens.count(request);
  assert.equal(counted.input_tokens, (await client.responses.create(request)).usage.input_tokens);
});

test("compaction", async () => {
  const input = [user("REMEMBER blue"), { role: "assistant", content: "Noted." }];
  const compacted = await client.responses.compact({ model, input });
  assert.deepEqual(compacted.output.map((item) => item.type), ["message", "compaction"]);
  assert.equal(textOf(await ask([...compacted.output, user("RECALL")])), "RECALL:blue");
});

test("conversations", async () => {
  const { conversations } = client;
  const made = await conversations.create({ metadata: { topic: "a" }, items: [user("REMEMBER blue")] });
  const first = await ask("THINK Hm.\nSAY noted", { conversation: made.id });
  assert.equal(first.conversation.id, made.id);
  const last = await lastOf(await ask("RECALL", { conversation: { id: made.id }, stream: true }));
  assert.equal(textOf(last), "RECALL:blue");

  const added = await conversations.items.create(made.id, { items: [user("REMEMBER red")] });
  const item = await conversations.items.retrieve(added.data[0].id, { conversation_id: made.id });
  assert.equal(item.content[0].text, "REMEMBER red");
  const types = [];
  for await (const one of conversations.items.list(made.id, { order: "asc", limit: 3 })) types.push(one.type);
  assert.deepEqual(types, ["message", "message", "reasoning", "message", "message", "reasoning", "message", "message"]);
  assert.equal(textOf(await ask("RECALL", { conversation: made.id })), "RECALL:blue,red");
  await conversations.items.delete(item.id, { conversation_id: made.id });
  assert.equal(textOf(await ask("RECALL", { conversation: made.id })), "RECALL:blue");

  const changed = await conversations.update(made.id, { metadata: { topic: "b" } });
  assert.deepEqual(changed, { ...made, metadata: { topic: "b" } });
  assert.deepEqual(await conversations.retrieve(made.id), changed);
  assert.equal((await conversations.delete(made.id)).deleted, true);
  await assert.rejects(conversations.retrieve(made.id), OpenAI.NotFoundError);
  await assert.rejects(ask("six", { conversation: made.id }), OpenAI.NotFoundError);
});

// waitForEnd polls a background response until it has ended.
async function waitForEnd(id) {
  for (;;) {
    const response = await client.responses.retrieve(id);
    if (!["queued", "in_progress"].includes(response.status)) return response;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("background", async () => {
  const queued = await ask("THINK Hm.\nSAY later", { background: true });
  assert.ok(["queued", "in_progress"].includes(queued.status), queued.status);
  const response = await waitForEnd(queued.id);
  assert.deepEqual([response.status, textOf(response), response.background], ["completed", "later", true]);
  assert.equal(textOf(await ask("LAST_ASSISTANT", { previous_response_id: queued.id })), "LAST:later");
  await assert.rejects(ask("hi", { background: true, store: false }), OpenAI.BadRequestError);
});

test("background, cancelled", async () => {
  const queued = await ask("NOTHINK\nWORDS 1000 50", { background: true });
  const cancelled = await client.responses.cancel(queued.id);
  assert.equal(cancelled.status, "cancelled");
  assert.deepEqual(await client.responses.cancel(queued.id), cancelled);
  assert.equal((await waitForEnd(queued.id)).status, "cancelled");
});

// A client that has lost its stream resumes it at the same event, with retrieve and
// with the helper, before and after the stream ends.
test("background, streamed and resumed", async () => {
  const script = "THINK Hm.\nWORDS 40 20";
  const stream = await ask(script, { background: true, stream: true });
  const events = [];
  let id;
  for await (const event of stream) {
    id ??= event.response.id;
    events.push(event);
    if (event.type === "response.output_text.delta") break; // closes the connection
  }
  const after = events.at(-1).sequence_number;
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: after })) events.push(event);
  const numbers = events.map((event) => event.sequence_number);
  assert.deepEqual(numbers, numbers.map((_, i) => i));
  const text = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta).join("");
  const response = events.at(-1).response;
  assert.equal(response.status, "completed");
  assert.equal(text, textOf(response));

  const again = [];
  for await (const event of await client.responses.retrieve(id, { stream: true })) again.push(event);
  assert.deepEqual(again, events);
  const replayed = await client.responses.stream({ response_id: id, starting_after: after }).finalResponse();
  assert.equal(textOf(replayed), text);
});

test("errors", async () => {
  await assert.rejects(ask("hi", { tool_choice: "auto", include: ["nothing"] }), { status: 400, param: "include[0]" });
  await assert.rejects(client.responses.create({ model: `${model}-none`, input: "hi" }), OpenAI.NotFoundError);
  await assert.rejects(ask("hi", { previous_response_id: "resp_none" }), { status: 400, code: "previous_response_not_found", param: "previous_response_id" });
  for (const [status, error] of [[400, OpenAI.BadRequestError], [429, OpenAI.RateLimitError], [503, OpenAI.InternalServerError]])
    for (const stream of [false, true]) await assert.rejects(ask(`hi\nSIM status=${status}`, { stream }), error);
  const broken = await lastOf(await ask("NOTHINK\nWORDS 60\nSIM delay=10ms fault=error@30", { stream: true }));
  assert.deepEqual([broken.status, broken.error.code], ["failed", "server_error"]);
});

// openai-node: the plain SDK with its helpers.
import assert from "node:assert/strict";
import OpenAI from "openai";
import * as helpers from "openai/helpers/zod";
import { z } from "zod";
import { api, cases, faults, main, model } from "./matrix.mjs";

const client = new OpenAI({ maxRetries: 0 });
// Version 4 has the helpers of Chat Completions here.
const completions = client.chat.completions.parse ? client.chat.completions : client.beta.chat.completions;
const Weather = z.object({ city: z.string(), celsius: z.number().int().describe(cases.structured.description) });
// For these zod writes keywords that no grammar keeps: "format" beside "pattern",
// "multipleOf".
const Report = Weather.extend({
  id: z.string().uuid(),
  seen: z.string().datetime(),
  station: z.string().email(),
  source: z.string().url(),
  note: z.string().max(80).nullable(),
  codes: z.array(z.string().regex(/^[A-Z]{3}$/)).min(1).max(3),
  wind: z.number().nonnegative().multipleOf(0.5),
});
const report = {
  ...cases.structured.value,
  id: "6f1c7f0e-52a5-4c3b-9d0a-1b2c3d4e5f60",
  seen: "2026-01-02T03:04:05Z",
  station: "west@example.org",
  source: "https://example.org/weather",
  note: null,
  codes: ["BRN", "ZRH"],
  wind: 2.5,
};
const sameReport = (parsed) => {
  assert.deepEqual(parsed, report);
  return { value: { city: parsed.city, celsius: parsed.celsius } };
};
const user = (content) => ({ role: "user", content });
// The lines of a prompt as parts of a message.
const parts = (prompt, type) => user(prompt.split("\n").map((text) => ({ type, text })));

const chat = {
  async text() {
    const reply = await client.chat.completions.create({ model, messages: [parts(cases.text.prompt, "text")] });
    return { text: reply.choices[0].message.content };
  },
  async stream() {
    const stream = completions.stream({ model, messages: [user(cases.stream.prompt)] });
    let pieces = 0;
    stream.on("content.delta", () => pieces++);
    return { text: await stream.finalContent(), pieces };
  },
  async tools() {
    let city;
    const tool = helpers.zodFunction({
      name: "get_weather",
      parameters: z.object({ city: z.string() }),
      function: (args) => {
        city = args.city;
        return cases.tools.result;
      },
    });
    const runner = completions.runTools({ model, messages: [user(cases.tools.prompt)], tools: [tool] });
    return { text: await runner.finalContent(), city };
  },
  async structured() {
    const response_format = helpers.zodResponseFormat(Report, "weather");
    const reply = await completions.parse({ model, messages: [user(`JSON ${JSON.stringify(report)}`)], response_format });
    return sameReport(reply.choices[0].message.parsed);
  },
  async reasoning() {
    const reply = await client.chat.completions.create({ model, messages: [user(cases.reasoning.prompt)] });
    return { reasoning: reply.choices[0].message.reasoning, text: reply.choices[0].message.content };
  },
  async usage() {
    const stream = completions.stream({ model, messages: [user(cases.usage.prompt)], stream_options: { include_usage: true } });
    const used = await stream.totalUsage();
    return { input: used.prompt_tokens, output: used.completion_tokens };
  },
  errors: faults(async ({ model, prompt, stream }) => {
    const reply = await client.chat.completions.create({ model, messages: [user(prompt)], stream });
    if (stream) for await (const _ of reply);
  }, (error) => error.constructor.name),
  async state() {
    const messages = [user(cases.state.first)];
    messages.push((await client.chat.completions.create({ model, messages })).choices[0].message);
    const reply = await client.chat.completions.create({ model, messages: [...messages, user(cases.state.second)] });
    return { history: reply.choices[0].message.content };
  },
};

const responses = {
  async text() {
    return { text: (await client.responses.create({ model, input: [parts(cases.text.prompt, "input_text")] })).output_text };
  },
  async stream() {
    const stream = client.responses.stream({ model, input: cases.stream.prompt });
    let pieces = 0;
    stream.on("response.output_text.delta", () => pieces++);
    // Before version 7 this response has no output_text.
    return { text: (await stream.finalResponse()).output.at(-1).content[0].text, pieces };
  },
  async tools() {
    const tools = [helpers.zodResponsesFunction({ name: "get_weather", parameters: z.object({ city: z.string() }) })];
    const input = [user(cases.tools.prompt)];
    const first = await client.responses.create({ model, input, tools, store: false });
    const call = first.output.at(-1);
    input.push(...first.output, { type: "function_call_output", call_id: call.call_id, output: cases.tools.result });
    const reply = await client.responses.create({ model, input, tools, store: false });
    return { text: reply.output_text, city: JSON.parse(call.arguments).city };
  },
  async structured() {
    const text = { format: helpers.zodTextFormat(Report, "weather") };
    return sameReport((await client.responses.parse({ model, input: `JSON ${JSON.stringify(report)}`, text })).output_parsed);
  },
  async reasoning() {
    const reply = await client.responses.create({ model, input: cases.reasoning.prompt, reasoning: { summary: "auto" } });
    return { reasoning: reply.output[0].summary[0].text, text: reply.output_text };
  },
  async usage() {
    const used = (await client.responses.create({ model, input: cases.usage.prompt })).usage;
    return { input: used.input_tokens, output: used.output_tokens };
  },
  // The SDK has no exception for response.failed: the event is its last.
  errors: faults(async ({ model, prompt, stream }) => {
    const reply = await client.responses.create({ model, input: prompt, stream });
    if (!stream) return;
    let last;
    for await (const event of reply) last = event;
    if (last.response.error) throw { name: last.type, message: last.response.error.message };
  }, (error) => error.name === "response.failed" ? error.name : error.constructor.name),
  async state() {
    const first = [user(cases.state.first)];
    const reply = await client.responses.create({ model, input: first });
    const sent = await client.responses.create({ model, input: [...first, ...reply.output, user(cases.state.second)], store: false });
    const chained = await client.responses.create({ model, input: cases.state.second, previous_response_id: reply.id });
    const ways = { history: sent.output_text, previous_response_id: chained.output_text };
    if (client.conversations) {
      const conversation = (await client.conversations.create()).id;
      await client.responses.create({ model, input: first, conversation });
      ways.conversation = (await client.responses.create({ model, input: cases.state.second, conversation })).output_text;
    }
    return ways;
  },
};

// make makes a response over the connection, which is not stored, and counts the deltas of its text.
let connection;
async function make(prompt, more = {}) {
  if (!connection) {
    const { ResponsesWS } = await import("openai/resources/responses/ws");
    connection = new ResponsesWS(client);
    connection.on("error", () => {}); // those of requests are read below
  }
  let pieces = 0;
  const events = connection.stream();
  connection.send({ type: "response.create", model, input: prompt, store: false, ...more });
  for await (const { type, message, error } of events) {
    if (type === "error") throw { name: `error ${error.error?.status}`, message: error.message };
    if (type !== "message") continue;
    if (message.type === "response.output_text.delta") pieces++;
    if (message.type === "response.failed") throw { name: message.type, message: message.response.error.message };
    if (message.type === "response.completed") return { reply: message.response, pieces };
  }
}

const textOf = (reply) => reply.output.at(-1).content[0].text;

const websocket = {
  async text() {
    return { text: textOf((await make([parts(cases.text.prompt, "input_text")])).reply) };
  },
  async stream() {
    const { reply, pieces } = await make(cases.stream.prompt);
    return { text: textOf(reply), pieces };
  },
  async tools() {
    const tools = [helpers.zodResponsesFunction({ name: "get_weather", parameters: z.object({ city: z.string() }) })];
    const first = (await make(cases.tools.prompt, { tools })).reply;
    const call = first.output.at(-1);
    const output = { type: "function_call_output", call_id: call.call_id, output: cases.tools.result };
    const { reply } = await make([output], { tools, previous_response_id: first.id });
    return { city: JSON.parse(call.arguments).city, text: textOf(reply) };
  },
  async structured() {
    const text = { format: helpers.zodTextFormat(Report, "weather") };
    return sameReport(Report.parse(JSON.parse(textOf((await make(`JSON ${JSON.stringify(report)}`, { text })).reply))));
  },
  async reasoning() {
    const { reply } = await make(cases.reasoning.prompt, { reasoning: { summary: "auto" } });
    return { reasoning: reply.output[0].summary[0].text, text: textOf(reply) };
  },
  async usage() {
    const { usage } = (await make(cases.usage.prompt)).reply;
    return { input: usage.input_tokens, output: usage.output_tokens };
  },
  errors: faults(({ model, prompt }) => make(prompt, { model }), (error) => error.name),
  async state() {
    const first = [user(cases.state.first)];
    const { reply } = await make(first);
    const sent = await make([...first, ...reply.output, user(cases.state.second)]);
    const chained = await make(cases.state.second, { previous_response_id: reply.id });
    return { history: textOf(sent.reply), previous_response_id: textOf(chained.reply) };
  },
};

await main({ chat, responses, websocket }[api]);
connection?.close();

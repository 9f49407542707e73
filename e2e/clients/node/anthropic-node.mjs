// @anthropic-ai/sdk: the plain SDK with its helpers.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { z } from "zod";
import { cases, faults, main, model } from "./matrix.mjs";

const client = new Anthropic({ maxRetries: 0, baseURL: process.env.ANTHROPIC_BASE_URL });
const common = { model, max_tokens: 2000 };
const beta = client.beta.messages;
// What a version does not have is undefined.
const helper = async (name) => import(`@anthropic-ai/sdk/helpers/${name}`).catch(() => ({}));
const { zodOutputFormat } = await helper("zod");
const { betaZodTool, betaZodOutputFormat } = await helper("beta/zod");
// Of the versions that are run, those without a runner of tools have no thinking.
const before = beta.toolRunner ? { type: "enabled", budget_tokens: 1024 } : undefined;
const thinking = zodOutputFormat ? { type: "adaptive", display: "summarized" } : before;
const Weather = z.object({ city: z.string(), celsius: z.number().int().describe(cases.structured.description) });
const user = (content) => ({ role: "user", content });
const textOf = (reply) => reply.content.filter((block) => block.type === "text").map((block) => block.text).join("");
const say = async (prompt, more) => client.messages.create({ ...common, ...more, messages: [user(prompt)] });

// called runs a tool by hand.
async function called() {
  const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const tools = [{ name: "get_weather", input_schema }];
  const messages = [user(cases.tools.prompt)];
  const { content } = await client.messages.create({ ...common, messages, tools });
  const { id, input } = content.at(-1);
  messages.push({ role: "assistant", content });
  messages.push(user([{ type: "tool_result", tool_use_id: id, content: cases.tools.result }]));
  return { text: textOf(await client.messages.create({ ...common, messages, tools })), city: input.city };
}

// forced gets an object as the arguments of a tool that must be called.
async function forced() {
  const { value, description } = cases.structured;
  const properties = { city: { type: "string" }, celsius: { type: "integer", description } };
  const tools = [{ name: "weather", input_schema: { type: "object", properties, required: Object.keys(properties) } }];
  const tool_choice = { type: "tool", name: "weather" };
  const reply = await say(`CALL weather ${JSON.stringify(value)}`, { tools, tool_choice });
  return { value: reply.content.at(-1).input };
}

await main({
  async text() {
    const known = [];
    if (client.models) for await (const { id, type } of client.models.list()) known.push(`${type} ${id}`);
    assert(!client.models || known.includes(`model ${model}`));
    return { text: textOf(await say(cases.text.prompt)) };
  },
  async stream() {
    const stream = client.messages.stream({ ...common, messages: [user(cases.stream.prompt)] });
    let pieces = 0;
    stream.on("text", () => pieces++);
    return { text: await stream.finalText(), pieces };
  },
  async tools() {
    if (!beta.toolRunner) return called();
    let city;
    const tool = betaZodTool({
      name: "get_weather",
      description: "The weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      run(input) {
        city = input.city;
        return cases.tools.result;
      },
    });
    const runner = beta.toolRunner({ ...common, thinking, messages: [user(cases.tools.prompt)], tools: [tool] });
    return { text: textOf(await runner.runUntilDone()), city };
  },
  async structured() {
    const messages = [user(cases.structured.prompt)];
    if (zodOutputFormat) {
      const output_config = { format: zodOutputFormat(Weather) };
      return { value: (await client.messages.parse({ ...common, messages, output_config })).parsed_output };
    }
    if (!betaZodOutputFormat) return forced();
    const output_format = betaZodOutputFormat(Weather);
    return { value: (await beta.parse({ ...common, messages, output_format })).parsed_output };
  },
  reasoning: thinking && async function () {
    const reply = await say(cases.reasoning.prompt, { thinking });
    assert(reply.content[0].signature);
    return { reasoning: reply.content[0].thinking, text: textOf(reply) };
  },
  async usage() {
    const stream = client.messages.stream({ ...common, messages: [user(cases.usage.prompt)] });
    const used = (await stream.finalMessage()).usage;
    const input = used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens;
    const counter = client.messages.countTokens ? client.messages : beta;
    assert.equal((await counter.countTokens({ model, messages: [user(cases.usage.prompt)] })).input_tokens, input);
    return { input, output: used.output_tokens };
  },
  errors: faults(async ({ model, prompt, stream }) => {
    const reply = await client.messages.create({ model, max_tokens: 500, messages: [user(prompt)], stream });
    if (stream) for await (const _ of reply);
  }, (error) => error.constructor.name),
  async state() {
    const messages = [user(cases.state.first)];
    messages.push({ role: "assistant", content: (await client.messages.create({ ...common, messages })).content });
    const reply = await client.messages.create({ ...common, messages: [...messages, user(cases.state.second)] });
    return { history: textOf(reply) };
  },
});

// @anthropic-ai/sdk: the plain SDK with its helpers.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { cases, faults, main, model } from "./matrix.mjs";

const client = new Anthropic({ maxRetries: 0, baseURL: process.env.ANTHROPIC_BASE_URL });
const common = { model, max_tokens: 2000 };
const thinking = { type: "adaptive", display: "summarized" };
const Weather = z.object({ city: z.string(), celsius: z.number().int().describe(cases.structured.description) });
const user = (content) => ({ role: "user", content });
const textOf = (reply) => reply.content.filter((block) => block.type === "text").map((block) => block.text).join("");
const say = async (prompt, more) => client.messages.create({ ...common, ...more, messages: [user(prompt)] });

await main({
  async text() {
    const known = await Array.fromAsync(client.models.list());
    assert(known.some(({ id, type }) => id === model && type === "model"));
    return { text: textOf(await say(cases.text.prompt)) };
  },
  async stream() {
    const stream = client.messages.stream({ ...common, messages: [user(cases.stream.prompt)] });
    let pieces = 0;
    stream.on("text", () => pieces++);
    return { text: await stream.finalText(), pieces };
  },
  async tools() {
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
    const runner = client.beta.messages.toolRunner({ ...common, thinking, messages: [user(cases.tools.prompt)], tools: [tool] });
    return { text: textOf(await runner.runUntilDone()), city };
  },
  async structured() {
    const output_config = { format: zodOutputFormat(Weather) };
    const reply = await client.messages.parse({ ...common, messages: [user(cases.structured.prompt)], output_config });
    return { value: reply.parsed_output };
  },
  async reasoning() {
    const reply = await say(cases.reasoning.prompt, { thinking });
    assert(reply.content[0].signature);
    return { reasoning: reply.content[0].thinking, text: textOf(reply) };
  },
  async usage() {
    const stream = client.messages.stream({ ...common, messages: [user(cases.usage.prompt)] });
    const used = (await stream.finalMessage()).usage;
    const input = used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens;
    assert.equal((await client.messages.countTokens({ model, messages: [user(cases.usage.prompt)] })).input_tokens, input);
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

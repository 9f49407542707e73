// The AI SDK: @ai-sdk/openai-compatible for Chat Completions, @ai-sdk/openai for
// Responses.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { api, baseURL, cases, faults, main, model as name } from "./matrix.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const provider =
  api === "chat"
    ? createOpenAICompatible({ name: "envoy", baseURL, apiKey: "none", includeUsage: true, supportsStructuredOutputs: true })
    : createOpenAI({ baseURL, apiKey: "none" });
const modelOf = (name) => (api === "chat" ? provider(name) : provider.responses(name));
const common = { model: modelOf(name), maxRetries: 0 };
const openai = (options) => ({ providerOptions: { openai: options } });

const getWeather = (seen) => ({
  get_weather: tool({
    description: "Gets the weather.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      seen.city = city;
      return cases.tools.result;
    },
  }),
});

await main({
  async text() {
    return { text: (await generateText({ ...common, prompt: cases.text.prompt })).text };
  },
  async stream() {
    const pieces = [];
    for await (const piece of streamText({ ...common, prompt: cases.stream.prompt }).textStream) pieces.push(piece);
    return { text: pieces.join(""), pieces: pieces.length };
  },
  async tools() {
    const seen = {};
    const { text } = await generateText({ ...common, prompt: cases.tools.prompt, tools: getWeather(seen), stopWhen: stepCountIs(3) });
    return { text, city: seen.city };
  },
  async structured() {
    const schema = z.object({ city: z.string(), celsius: z.number().int().describe(cases.structured.description) });
    return { value: (await generateText({ ...common, prompt: cases.structured.prompt, output: Output.object({ schema }) })).output };
  },
  async reasoning() {
    // The provider asks OpenAI's reasoning models only, which it knows by name.
    const more = openai({ forceReasoning: true, reasoningSummary: "auto" });
    const { reasoningText, text } = await generateText({ ...common, ...more, prompt: cases.reasoning.prompt });
    return { reasoning: reasoningText, text };
  },
  async usage() {
    const result = streamText({ ...common, prompt: cases.usage.prompt });
    await result.consumeStream();
    const used = await result.totalUsage;
    return { input: used.inputTokens, output: used.outputTokens };
  },
  errors: faults(async ({ model, prompt, stream }) => {
    const request = { ...common, model: modelOf(model), prompt };
    if (!stream) return generateText(request);
    let failed;
    const result = streamText({ ...request, onError: ({ error }) => (failed = error) });
    await result.consumeStream();
    if (failed) throw failed;
  }),
  async state() {
    const first = [{ role: "user", content: cases.state.first }];
    const second = { role: "user", content: cases.state.second };
    const reply = await generateText({ ...common, messages: first });
    const messages = [...first, ...reply.response.messages, second];
    const ways = { history: (await generateText({ ...common, messages })).text };
    if (api === "chat") return ways;
    const unstored = await generateText({ ...common, ...openai({ store: false }), messages: first });
    ways["unstored history"] = (await generateText({ ...common, ...openai({ store: false }), messages: [...first, ...unstored.response.messages, second] })).text;
    const previousResponseId = reply.providerMetadata.openai.responseId;
    ways.previous_response_id = (await generateText({ ...common, ...openai({ previousResponseId }), prompt: cases.state.second })).text;
    return ways;
  },
});

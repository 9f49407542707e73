// The OpenAI Agents SDK for JavaScript.
import { Agent, MemorySession, OpenAIConversationsSession, Runner, setDefaultOpenAIClient, setOpenAIAPI, setOpenAIResponsesTransport, tool } from "@openai/agents";
import OpenAI from "openai";
import { WebSocket } from "ws";
import { z } from "zod";
import { api, cases, faults, main, model } from "./matrix.mjs";

const client = new OpenAI({ maxRetries: 0 });
setDefaultOpenAIClient(client);
setOpenAIAPI(api === "chat" ? "chat_completions" : "responses");
if (api === "websocket") setOpenAIResponsesTransport("websocket");
// Node has a WebSocket since version 22.
globalThis.WebSocket ??= WebSocket;
const runner = new Runner({ tracingDisabled: true });
const agent = new Agent({ name: "Weather", model, modelSettings: { reasoning: { summary: "auto" } } });

// outputsOf returns the items of a type in a result.
const outputsOf = (result, type) => result.output.filter((item) => item.type === type);

const capabilities = {
  async text() {
    return { text: (await runner.run(agent, cases.text.prompt)).finalOutput };
  },
  async stream() {
    const result = await runner.run(agent, cases.stream.prompt, { stream: true });
    const pieces = [];
    for await (const piece of result.toTextStream({ compatibleWithNodeStreams: false })) pieces.push(piece);
    await result.completed;
    return { text: pieces.join(""), pieces: pieces.length };
  },
  async tools() {
    let city;
    const getWeather = tool({
      name: "get_weather",
      description: "Gets the weather.",
      parameters: z.object({ city: z.string() }),
      execute: (args) => {
        city = args.city;
        return cases.tools.result;
      },
    });
    const result = await runner.run(agent.clone({ tools: [getWeather] }), cases.tools.prompt);
    return { text: result.finalOutput, city };
  },
  async structured() {
    const outputType = z.object({ city: z.string(), celsius: z.number().int().describe(cases.structured.description) });
    return { value: (await runner.run(agent.clone({ outputType }), cases.structured.prompt)).finalOutput };
  },
  async reasoning() {
    const result = await runner.run(agent, cases.reasoning.prompt);
    const [thought] = outputsOf(result, "reasoning");
    const reasoning = (thought.rawContent ?? []).concat(thought.content).find((part) => part.text)?.text;
    return { reasoning, text: result.finalOutput };
  },
  async usage() {
    const used = (await runner.run(agent, cases.usage.prompt)).state.usage;
    return { input: used.inputTokens, output: used.outputTokens };
  },
  errors: faults(async ({ model, prompt, stream }) => {
    const result = await runner.run(agent.clone({ model }), prompt, { stream });
    if (!stream) return;
    for await (const _ of result);
    await result.completed;
  }, (error) => error.constructor.name),
  async state() {
    const first = await runner.run(agent, cases.state.first);
    const sent = await runner.run(agent, [...first.history, { role: "user", content: cases.state.second }]);
    const session = new MemorySession();
    await runner.run(agent, cases.state.first, { session });
    const ways = { history: sent.finalOutput, session: (await runner.run(agent, cases.state.second, { session })).finalOutput };
    if (api === "chat") return ways;
    const chained = await runner.run(agent, cases.state.second, { previousResponseId: first.lastResponseId });
    const conversations = new OpenAIConversationsSession({ client });
    await runner.run(agent, cases.state.first, { session: conversations });
    const joined = await runner.run(agent, cases.state.second, { session: conversations });
    return { ...ways, previous_response_id: chained.finalOutput, conversation: joined.finalOutput };
  },
};

await main(capabilities);

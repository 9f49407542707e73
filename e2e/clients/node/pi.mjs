// pi.
import { agent, api, model, models, origin, quote, run, write } from "./agent.mjs";

write(".pi/agent/models.json", {
  providers: {
    envoy: {
      baseUrl: `${origin}/v1`,
      apiKey: "none",
      api: { chat: "openai-completions", responses: "openai-responses" }[api],
      models: models.map((id) => ({ id, reasoning: true, contextWindow: 131072, maxTokens: 32000 })),
    },
  },
});

async function ask(prompt, { model: name = model, again } = {}) {
  const options = ["--print", "--mode", "json", "--model", `envoy/${name}`];
  if (again) options.push("--continue");
  const { events, printed } = await run(".bin/pi", options, prompt, { PI_OFFLINE: "1" });
  const message = events.findLast((event) => event.type === "message_end" && event.message.role === "assistant")?.message;
  const block = (type) => message?.content.find((content) => content.type === type);
  const used = message?.usage;
  return {
    printed,
    text: block("text")?.text,
    pieces: events.filter((event) => event.assistantMessageEvent?.type === "text_delta").length,
    reasoning: block("thinking")?.thinking,
    usage: { input: used && used.input + used.cacheRead + used.cacheWrite, output: used?.output },
  };
}

const shell = (command) => `CALL bash ${quote({ command })}`;
await agent({ ask, shell, ways: ["--continue"], lacks: ["structured"] });

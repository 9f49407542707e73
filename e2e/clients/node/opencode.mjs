// opencode.
import { agent, model, models, origin, run, write, quote } from "./agent.mjs";

write(".config/opencode/opencode.json", {
  model: `envoy/${model}`,
  small_model: `envoy/${model}`,
  autoupdate: false,
  share: "disabled",
  permission: "allow",
  provider: {
    envoy: {
      npm: "@ai-sdk/openai-compatible",
      options: { baseURL: `${origin}/v1`, apiKey: "none" },
      models: Object.fromEntries(models.map((name) => [name, { reasoning: true, tool_call: true, limit: { context: 131072, output: 32000 } }])),
    },
  },
});

async function ask(prompt, { model: name = model, again } = {}) {
  const options = ["run", "--pure", "--title", "Test", "--format", "json", "--thinking", "--model", `envoy/${name}`];
  if (again) options.push("--continue");
  const { events, printed } = await run(".bin/opencode", options, prompt, { OPENCODE_DISABLE_MODELS_FETCH: "1" });
  const parts = (type) => events.filter((event) => event.type === type).map((event) => event.part);
  const used = parts("step_finish").at(-1)?.tokens;
  return {
    printed,
    text: parts("text").at(-1)?.text,
    reasoning: parts("reasoning")[0]?.text,
    usage: { input: used && used.input + used.cache.read + used.cache.write, output: used && used.output + used.reasoning },
  };
}

const shell = (command) => `CALL bash ${quote({ command, description: "Look" })}`;
await agent({ ask, shell, ways: ["--continue"], lacks: ["stream", "structured"] });

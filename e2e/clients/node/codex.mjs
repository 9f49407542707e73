// Codex, in the version of the row.
import { agent, api, model, origin, quote, run, write } from "./agent.mjs";

const program = `${process.env.PACKAGE}/bin/codex.js`;
write(".codex/config.toml", `
model_provider = "envoy"
model_reasoning_summary = "auto"

[model_providers.envoy]
name = "Envoy"
base_url = "${origin}/v1"
wire_api = "${api === "chat" ? "chat" : "responses"}"
supports_websockets = ${api === "websocket"}
`);

async function ask(prompt, { model: asked = model, again, schema } = {}) {
  const options = ["exec", "--json", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--model", asked];
  if (schema) options.push("--output-schema", write("schema.json", schema));
  if (again) options.push("resume", "--last");
  const { events, printed } = await run(program, [...options, "-"], prompt);
  const items = (type) => events.filter((event) => event.type === "item.completed" && event.item.type === type).map((event) => event.item.text);
  const text = items("agent_message").at(-1);
  if (schema && !text) throw new Error(printed.text);
  const used = events.findLast((event) => event.type === "turn.completed")?.usage;
  return {
    printed,
    text,
    reasoning: items("reasoning")[0],
    value: schema && JSON.parse(text),
    usage: { input: used?.input_tokens, output: used?.output_tokens },
  };
}

const shell = process.env.PACKAGE === "codex-0.63"
  ? (command) => `CALL shell ${quote({ command: ["bash", "-lc", command] })}`
  : (command) => `CALL exec_command ${quote({ cmd: command })}`;
await agent({ ask, shell, ways: ["resume"], lacks: ["stream"] });

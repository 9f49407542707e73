// qwen-code.
import { agent, model, origin, quote, run, write } from "./agent.mjs";

write(".qwen/settings.json", {
  privacy: { usageStatisticsEnabled: false },
  general: { disableAutoUpdate: true },
  memory: { enableManagedAutoMemory: false },
});

async function ask(prompt, { model: name = model, again, schema } = {}) {
  const env = { OPENAI_BASE_URL: `${origin}/v1`, OPENAI_API_KEY: "none", OPENAI_MODEL: name };
  const options = ["--auth-type", "openai", "--yolo", "--chat-recording", "--output-format", "stream-json", "--include-partial-messages"];
  if (again) options.push("--continue");
  if (schema) options.push("--json-schema", quote(schema));
  const { events, printed } = await run(".bin/qwen", options, prompt, env);
  const end = events.find((event) => event.type === "result") ?? {};
  const blocks = events.filter((event) => event.type === "assistant").flatMap((event) => event.message.content);
  return {
    printed,
    text: end.result,
    pieces: events.filter((event) => event.event?.delta?.type === "text_delta").length,
    reasoning: blocks.find((block) => block.type === "thinking")?.thinking,
    value: end.structured_result,
    usage: { input: end.usage?.input_tokens, output: end.usage?.output_tokens },
  };
}

const shell = (command) => `CALL run_shell_command ${quote({ command, is_background: false })}`;
await agent({ ask, shell, answer: "CALL structured_output", ways: ["--continue"] });

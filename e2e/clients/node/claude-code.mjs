// Claude Code.
import { agent, model, origin, quote, run } from "./agent.mjs";

async function ask(prompt, { model: name = model, again, schema } = {}) {
  const env = {
    ANTHROPIC_BASE_URL: origin,
    ANTHROPIC_AUTH_TOKEN: "none",
    ANTHROPIC_MODEL: name,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: name,
    CLAUDE_CODE_MAX_CONTEXT_TOKENS: "131072",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    IS_SANDBOX: "1", // otherwise root may not skip permissions
  };
  const options = ["--print", "--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose", "--include-partial-messages"];
  if (again) options.push("--continue");
  if (schema) options.push("--json-schema", quote(schema));
  const { events, printed } = await run(".bin/claude", options, prompt, env);
  const end = events.find((event) => event.type === "result") ?? {};
  const blocks = events.filter((event) => event.type === "assistant").flatMap((event) => event.message.content);
  const used = end.usage ?? {};
  return {
    printed,
    text: end.result,
    pieces: events.filter((event) => event.event?.delta?.type === "text_delta").length,
    reasoning: blocks.find((block) => block.type === "thinking")?.thinking,
    value: end.structured_output,
    usage: { input: used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens, output: used.output_tokens },
  };
}

const shell = (command) => `CALL Bash ${quote({ command, description: "Look" })}`;
await agent({ ask, shell, answer: "CALL StructuredOutput", ways: ["--continue"] });

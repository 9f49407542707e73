// An MCP server on standard input and output with one tool, reverse. A model can know
// its result only from a call.
import { createInterface } from "node:readline";

const reverse = {
  name: "reverse",
  description: "Reverses a text.",
  inputSchema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  annotations: { readOnlyHint: true }, // otherwise clients ask for approval
};

function answer({ method, params }) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "texts", version: "1.0.0" },
        instructions: "Works on texts.",
      };
    case "tools/list":
      return { tools: [reverse] };
    case "tools/call":
      return { content: [{ type: "text", text: [...params.arguments.text].reverse().join("") }] };
    case "ping":
      return {};
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request.id === undefined) continue; // a notification
  const result = answer(request);
  const reply = result ? { result } : { error: { code: -32601, message: `no method ${request.method}` } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: request.id, ...reply }) + "\n");
}

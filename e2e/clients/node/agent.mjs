// Runs the command line of a coding agent for the client matrix. An adapter starts it
// and reads its events.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { delimiter, dirname, join } from "node:path";
import { Receiver } from "ws";
import { api, cases, main, model } from "./matrix.mjs";

export { api, cases, model };
export const models = [...new Set([model, ...Object.values(cases.errors).map((fault) => fault.model)])];
export const quote = JSON.stringify;

const home = process.env.HOME;
const folder = join(home, "project");
const modules = join(import.meta.dirname, "../node_modules");

// write makes a file below the home folder, with an object as JSON.
export function write(name, content) {
  const path = join(home, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, typeof content === "string" ? content : quote(content));
  return path;
}

// relay is between the agent and Envoy. It keeps the model calls that the agent makes.
const calls = [];
let called = () => {};
function keep(body) {
  const call = JSON.parse(body);
  if (call.generate === false) return; // Codex has the prompt prepared: no call of the model
  calls.push(call);
  called();
}
const onwards = (from, headers = from.headers) => request(new URL(from.url, process.env.ANTHROPIC_BASE_URL), { method: from.method, headers });
const relay = createServer(async (from, to) => {
  const body = Buffer.concat(await Array.fromAsync(from));
  if (from.method === "POST" && /\/(messages|completions|responses)(\?|$)/.test(from.url)) keep(body);
  const onward = onwards(from);
  onward.on("error", () => to.destroy());
  to.on("close", () => onward.destroy());
  onward.on("response", (reply) => {
    to.writeHead(reply.statusCode, reply.headers);
    reply.on("error", () => to.destroy()).pipe(to);
  });
  onward.end(body);
});
// A WebSocket's frames are passed on as they are, and read beside that: without compression.
relay.on("upgrade", (from, client, begun) => {
  const { "sec-websocket-extensions": _, ...headers } = from.headers;
  const onward = onwards(from, headers);
  const frames = new Receiver({ isServer: true, maxPayload: 0 });
  frames.on("message", (event) => keep(event)).on("error", () => client.destroy());
  const head = (reply) => {
    const lines = reply.rawHeaders.map((text, i) => (i % 2 ? `${text}\r\n` : `${text}: `));
    client.write(`HTTP/1.1 ${reply.statusCode} ${reply.statusMessage}\r\n${lines.join("")}\r\n`);
  };
  onward.on("upgrade", (reply, server, first) => {
    head(reply);
    client.write(first);
    for (const [one, other] of [[client, server], [server, client]]) one.on("error", () => other.destroy()).on("close", () => other.destroy());
    client.on("data", (bytes) => frames.write(Buffer.from(bytes))); // a copy: it unmasks in place
    client.unshift(begun);
    client.pipe(server).pipe(client);
  });
  onward.on("response", (reply) => {
    head(reply);
    reply.pipe(client);
  });
  onward.on("error", () => client.destroy());
  onward.end();
});
relay.listen(0, "127.0.0.1");
await once(relay, "listening");
export const origin = `http://127.0.0.1:${relay.address().port}`;

let running;

// stop ends the running program with all that it has started.
function stop() {
  try {
    process.kill(-running.pid, "SIGKILL");
  } catch {
    // It has ended.
  }
}
process.on("SIGINT", () => {
  stop();
  process.exit(1);
});

// run runs a program of clients/node_modules with the prompt on standard input. It
// returns the objects among the lines of its output, and all that it prints.
export async function run(program, options, prompt, env = {}) {
  const path = [join(modules, "node/bin"), process.env.PATH].join(delimiter);
  running = spawn(join(modules, program), options, { cwd: folder, detached: true, env: { PATH: path, HOME: home, TMPDIR: home, ...env } });
  running.stdin.on("error", () => {}).end(prompt);
  const printed = ["", ""];
  running.stdout.on("data", (text) => (printed[0] += text));
  running.stderr.on("data", (text) => (printed[1] += text));
  const [code] = await once(running, "close");
  const events = printed[0].split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
  return { events, printed: { text: printed.join("\n"), failed: code !== 0 } };
}

// said are the filter's words for each fault.
const said = {
  bad_request: "The engine refused the request",
  not_found: "The engine does not serve the model",
  rate_limit: "The engine is at capacity",
  unavailable: "No engine is available",
  context_length: "maximum context length",
  broken_stream: "server error",
};

// passing are the faults after which a client should retry.
const passing = ["rate_limit", "unavailable", "broken_stream"];

// behavior returns what the agent does about a fault: it retries (and is
// stopped), asks for a summary, shows the filter's words, or its own.
async function behavior(ask, name, { model, prompt }) {
  calls.length = 0;
  let retried = false;
  called = () => {
    if (calls.length < 2 || !passing.includes(name)) return;
    retried = true;
    stop();
  };
  const { printed } = await ask(prompt, { model });
  called = () => {};
  const summarizes = name === "context_length" && calls.slice(1).some((call) => /summar/i.test(quote((call.messages ?? call.input).at(-1))));
  const other = printed.text.includes(said[name]) ? "shown" : printed.failed ? "own words" : "";
  return { type: retried ? "retried" : summarizes ? "summarizes" : other, message: printed.text };
}

// agent reports the capabilities of an adapter:
//   ask(prompt, { model, again, schema })  runs the agent; again continues its session
//   shell(command)                         the line by which the model calls a shell
//   answer                                 the word by which the model gives an object
//   ways                                   how it continues a session
//   lacks                                  capabilities that it does not have
export async function agent({ ask, shell, answer = "JSON", ways, lacks = [] }) {
  mkdirSync(folder, { recursive: true });
  const capabilities = {
    async text() {
      return { text: (await ask(cases.text.prompt)).text };
    },
    async stream() {
      calls.length = 0;
      const { text, pieces } = await ask(cases.stream.prompt);
      if (!calls.every((call) => call.stream)) throw new Error("it does not ask for a stream");
      return { text, pieces };
    },
    async tools() {
      writeFileSync(join(folder, "result.txt"), cases.tools.result);
      const call = shell(`printf %s '${cases.tools.city}' > city.txt; cat result.txt`);
      const { text } = await ask(cases.tools.prompt.replace(/CALL .*/, () => call));
      return { text, city: readFileSync(join(folder, "city.txt"), "utf8") };
    },
    async structured() {
      const { description } = cases.structured;
      const properties = { city: { type: "string" }, celsius: { type: "integer", description } };
      const schema = { type: "object", properties, required: ["city", "celsius"], additionalProperties: false };
      return { value: (await ask(cases.structured.prompt.replace("JSON", answer), { schema })).value };
    },
    async reasoning() {
      const { reasoning, text } = await ask(cases.reasoning.prompt);
      return { reasoning, text };
    },
    async usage() {
      return (await ask(cases.usage.prompt)).usage;
    },
    async errors() {
      const seen = {};
      for (const [name, fault] of Object.entries(cases.errors)) seen[name] = await behavior(ask, name, fault);
      return seen;
    },
    async state() {
      const seen = {};
      for (const way of ways) {
        await ask(cases.state.first);
        seen[way] = (await ask(cases.state.second, { again: way })).text;
      }
      return seen;
    },
  };
  await main(Object.fromEntries(Object.entries(capabilities).filter(([name]) => !lacks.includes(name))));
  process.stdout.write("", () => process.exit()); // connections may be open
}

// One exchange, or the prompts of two side by side.
import { $, address, block, clock, download, el, mark, millis } from "./common.js";
import { message } from "./message.js";

// maxOpen is about how many tokens of outputs are shown at once. More open with a click.
const maxOpen = 50000;

export function show(x) {
  // The browser lays out each token of what is open.
  let tokens = 0;
  const opens = (m) => {
    tokens += m.pieces.length;
    return tokens - m.pieces.length < maxOpen;
  };

  $("main").replaceChildren(
    section("Summary", el("h2", {}, x.result.response || x.id), summary(x), links(x)),
    section("Timeline", el("h2", {}, "Timeline"), timeline(x.view)),
    ...x.view.calls.map((c, i) => call(c, i + 1, opens)),
    fold("Request", true, x.request.method + " " + x.request.path, textOf(x.request.body)),
    fold("Reply", true, "", x.view.refused || x.view.reply || (x.redacted ? "The record does not have it." : "")),
    fold("Configuration", false, "", x.config || ""),
  );
}

const section = (name, ...children) => el("section", { "aria-label": name }, ...children);

function fold(name, open, first, text) {
  return section(name, el("details", { open }, el("summary", {}, el("h2", {}, name)),
    first && el("p", {}, el("code", {}, first)), text && block(text)));
}

// textOf is a text of a record, which may not have it.
function textOf(t) {
  if (typeof t === "string") return t;
  if (!t) return "";
  return t.bytes ? t.bytes + " bytes, which the record does not have" : JSON.stringify(t);
}

function links(x) {
  const raw = "records/" + encodeURIComponent(x.id) + "?raw=1";
  const save = (e) => {
    e.preventDefault();
    download(raw, x.id + ".json").catch((err) => { e.target.after(el("span", { class: "bad" }, " " + err.message)); });
  };
  return el("p", { class: "links" },
    x.before && el("a", { href: address(x.id, x.before) }, "compare with the turn before"),
    x.live ? "" : el("a", { href: raw, click: save }, "download the record"));
}

function summary(x) {
  const r = x.result;
  const repairs = Object.entries(r.repairs || {}).map(([kind, n]) => kind + " " + n).join(", ");
  const cached = r.cached_tokens === undefined ? "" : ", " + r.cached_tokens + " cached";
  const rows = [
    ["question", x.question],
    ["outcome", x.live ? "goes on" : r.status + " " + r.outcome + (r.error ? ": " + r.error : "")],
    ["began", x.started],
    ["took", millis(r.us)],
    ["model", [x.target.model, x.target.engine, x.target.kind].filter(Boolean).join(" · ")],
    ["tenant", x.tenant],
    ["session", x.session],
    ["request id", r.response && x.id],
    ["tokens", (r.prompt_tokens || 0) + " prompt" + cached + ", " + (r.output_tokens || 0) + " output, " +
      (r.reasoning_tokens || 0) + " of these reasoning"],
    ["calls", (r.model_calls || 0) + (r.retries ? ", " + r.retries + " retries" : "")],
    ["repairs", repairs && el("span", {}, mark(repairs), " ", nextRepair(x))],
    ["prefix", x.view.prefix],
    ["record", x.redacted ? "redacted: record.content is false" : ""],
  ];
  return el("dl", {}, ...rows.filter(([, v]) => v).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
}

// nextRepair is a button that goes through the repaired messages.
function nextRepair(x) {
  const placed = x.view.calls.some((c) => c.output.some((m) => m.pieces.some((p) => p.repairs)));
  let next = 0;
  const go = () => {
    const all = $("main").querySelectorAll("summary:has(.repair)");
    all[next].parentElement.open = true;
    all[next].focus();
    all[next].scrollIntoView({ block: "center" });
    next = (next + 1) % all.length;
  };
  return placed ? el("button", { type: "button", click: go }, "show where") : "";
}

function timeline(view) {
  const total = Math.max(1, ...view.steps.map((s) => s.to));
  return el("div", { class: "bars" }, ...view.steps.flatMap((s) => {
    const name = s.name + (!s.call ? " " + (s.of || "") : view.calls.length > 1 ? " of call " + s.call : "");
    const bar = el("i");
    // The shortest bar has two pixels, and stays inside.
    bar.style.left = `min(${(100 * s.from) / total}%, 100% - 2px)`;
    bar.style.width = (100 * (s.to - s.from)) / total + "%";
    return [el("span", {}, name), el("span", { class: "soft" }, millis(s.to - s.from)),
      el("span", { class: "bar", "aria-hidden": "true" }, bar)];
  }));
}

function call(c, number, opens) {
  const cached = c.cached || 0;
  const head = "Model call " + number + ": " + c.tokens + " tokens" +
    (c.cached === undefined ? "" : ", " + cached + " from the engine's cache") + (c.retry ? ", retry " + c.retry : "") +
    ", ended by " + (c.ended || "nothing yet");

  return section("Model call " + number,
    el("h2", {}, head),
    el("p", { class: "soft" }, [c.id, c.replica && "replica " + c.replica].filter(Boolean).join(" · ")),
    el("h3", {}, "Prompt"), ...c.prompt.map((m) => message(m, { cached })),
    el("h3", {}, "Output"), ...c.output.map((m) => message(m, { open: opens(m) })),
    el("details", {}, el("summary", {}, "Parameters"), block(c.options || "")));
}

// compare shows the prompts of two exchanges, and where they begin to differ.
export function compare(before, now) {
  const [a, b] = [before.view.calls[0], now.view.calls[0]];
  if (!a || !b) return show(now);

  const ids = (c) => c.prompt.flatMap((m) => m.pieces.map((p) => p.id));
  const [was, is] = [ids(a), ids(b)];
  let n = 0;
  while (n < was.length && n < is.length && was[n] === is[n]) n++;
  const whole = n === was.length;
  const said = whole
    ? "The prompt continues the one before: all of its " + n + " tokens are the same."
    : "The first difference is token " + n + ": " + (was.length - n) +
      " tokens of the prompt before are lost to the engine's cache.";

  const holds = (m) => !whole && n >= m.start && n < m.start + m.pieces.length;
  const side = (x, c) => el("div", {}, el("h3", {}, x.id + " · " + clock(x.started)),
    ...c.prompt.map((m) => message(m, holds(m) ? { differs: n } : {})));
  $("main").replaceChildren(section("Two prompts",
    el("h2", {}, "Two prompts"), el("p", { role: "status" }, said),
    el("p", {}, el("a", { href: address(now.id) }, "back")),
    el("div", { class: "pair" }, side(before, a), side(now, b))));
  $("main").querySelector(".differs")?.scrollIntoView({ block: "center" });
}

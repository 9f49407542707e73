"use strict";
// The inspector's page. All texts of records are set as text, never as markup.

const $ = (id) => document.getElementById(id);
const state = { lines: [], shown: "", token: sessionStorage.getItem("token") || "" };

// el makes an element. attributes that are functions are listeners.
function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") e.addEventListener(key, value);
    else if (value !== undefined && value !== "" && value !== false) e.setAttribute(key, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== undefined && c !== ""));
  return e;
}

async function get(path) {
  const answer = await fetch(path, state.token ? { headers: { Authorization: "Bearer " + state.token } } : {});
  $("sign-in").hidden = answer.status !== 401;
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

const millis = (us) => (us < 10000 ? (us / 1000).toFixed(2) : Math.round(us / 1000)) + " ms";
const clock = (time) => new Date(time).toISOString().slice(11, 23);

// ---- the list

async function refresh() {
  const query = new URLSearchParams();
  for (const name of ["model", "outcome", "tenant", "repair"]) {
    const value = $("filters").elements[name].value;
    if (value) query.set(name, value);
  }
  try {
    state.lines = await get("records?" + query);
  } catch (err) {
    $("status").textContent = err.message;
    return;
  }
  $("status").textContent = state.lines.length ? state.lines.length + " exchanges" : "No exchange is recorded: see record.percent.";
  addChoices();
  const focused = document.activeElement && document.activeElement.dataset.id;
  $("list").replaceChildren(...state.lines.map(line));
  if (focused) for (const a of $("list").querySelectorAll("a")) if (a.dataset.id === focused) a.focus();
}

function line(l) {
  const r = l.result;
  const failed = !l.live && r.outcome !== "ok";
  const repairs = Object.values(r.repairs || {}).reduce((a, b) => a + b, 0);
  const first = el("div", {}, clock(l.started) + " ", el("b", {}, l.target.api), " " + (l.target.model || ""));
  const second = el("div", { class: "soft" }, l.live ? "goes on" : r.status + " " + r.outcome, " · " + millis(r.us), r.output_tokens ? " · " + r.output_tokens + " tokens" : "", repairs ? " · " + repairs + " repairs" : "", l.tenant ? " · " + l.tenant : "");
  if (failed) second.className = "bad";
  return el("li", {}, el("a", { href: "#" + encodeURIComponent(l.id), "data-id": l.id, "aria-current": l.id === state.shown && "true" }, first, second));
}

// addChoices adds to the filters what the list has.
function addChoices() {
  const add = (name, values) => {
    const select = $("filters").elements[name];
    const known = new Set([...select.options].map((o) => o.value));
    for (const v of values) if (v && !known.has(v)) { select.append(el("option", { value: v }, v)); known.add(v); }
  };
  add("model", state.lines.map((l) => l.target.model));
  add("outcome", state.lines.map((l) => l.result.outcome));
  add("tenant", state.lines.map((l) => l.tenant));
  add("repair", state.lines.flatMap((l) => Object.keys(l.result.repairs || {})));
}

$("list").addEventListener("keydown", (e) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
  if (!step) return;
  const all = [...$("list").querySelectorAll("a")];
  const next = all[all.indexOf(document.activeElement) + step];
  if (next) { e.preventDefault(); next.focus(); }
});
$("filters").addEventListener("change", refresh);
$("sign-in").addEventListener("submit", (e) => {
  e.preventDefault();
  state.token = e.target.elements.token.value;
  sessionStorage.setItem("token", state.token);
  refresh().then(open);
});

// ---- one exchange

async function open() {
  const [id, other] = decodeURIComponent(location.hash.slice(1)).split("|");
  state.shown = id;
  for (const a of $("list").querySelectorAll("a")) {
    if (a.dataset.id === id) a.setAttribute("aria-current", "true");
    else a.removeAttribute("aria-current");
  }
  if (!id) return;
  try {
    const x = await get("records/" + encodeURIComponent(id));
    if (other) compare(await get("records/" + encodeURIComponent(other)), x);
    else show(x);
  } catch (err) {
    $("main").replaceChildren(el("p", { class: "bad" }, err.message));
  }
  $("main").focus();
}

function show(x) {
  const compareLink = x.before && el("a", { href: "#" + encodeURIComponent(x.id + "|" + x.before) }, "compare with the turn before");
  const raw = el("a", { href: "records/" + encodeURIComponent(x.id) + "?raw=1", download: x.id + ".json" }, "download the record");
  $("main").replaceChildren(
    el("section", { "aria-label": "Summary" }, el("h2", {}, x.result.response || x.id), summary(x), el("p", {}, compareLink || "", compareLink ? " · " : "", raw)),
    el("section", { "aria-label": "Timeline" }, el("h2", {}, "Timeline"), timeline(x.view.steps)),
    ...x.view.calls.map(call),
    el("section", {}, el("h2", {}, "Request"), el("pre", { tabindex: 0 }, x.request.method + " " + x.request.path + "\n" + text(x.request.body))),
    el("section", {}, el("h2", {}, "Reply"), el("pre", { tabindex: 0 }, x.view.refused || x.view.reply)),
    el("section", {}, el("h2", {}, "Configuration"), el("pre", { tabindex: 0 }, x.config || "")),
  );
}

const text = (t) => (typeof t === "string" ? t : t ? JSON.stringify(t) : "");

function summary(x) {
  const r = x.result;
  const rows = [
    ["outcome", x.live ? "goes on" : r.status + " " + r.outcome + (r.error ? ": " + r.error : "")], ["began", x.started], ["took", millis(r.us)],
    ["model", [x.target.model, x.target.engine, x.target.kind].filter(Boolean).join(" · ")], ["tenant", x.tenant], ["session", x.session],
    ["tokens", (r.prompt_tokens || 0) + " prompt" + (r.cached_tokens !== undefined ? ", " + r.cached_tokens + " cached" : "") + ", " + (r.output_tokens || 0) + " output, " + (r.reasoning_tokens || 0) + " of these reasoning"],
    ["calls", (r.model_calls || 0) + (r.retries ? ", " + r.retries + " retries" : "")],
    ["repairs", Object.entries(r.repairs || {}).map(([kind, n]) => kind + " " + n).join(", ")], ["prefix", x.view.prefix], ["record", x.redacted ? "redacted: record.content is false" : ""],
  ];
  return el("dl", {}, ...rows.filter(([, v]) => v).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, String(v))]));
}

function timeline(steps) {
  const total = Math.max(1, ...steps.map((s) => s.to));
  return el("div", { class: "bars" }, ...steps.flatMap((s) => {
    const bar = el("i");
    bar.style.left = (100 * s.from) / total + "%";
    bar.style.width = (100 * (s.to - s.from)) / total + "%";
    return [el("span", {}, s.name + (s.of ? " " + s.of : "")), el("span", { class: "soft" }, millis(s.to - s.from)), el("span", { class: "bar", "aria-hidden": "true" }, bar)];
  }));
}

function call(c, i) {
  const cached = c.cached || 0;
  const head = "Model call " + (i + 1) + ": " + c.tokens + " tokens" + (c.cached !== undefined ? ", " + cached + " from the engine's cache" : "") + (c.retry ? ", retry " + c.retry : "") + ", ended by " + (c.ended || "nothing yet");
  return el("section", { "aria-label": "Model call " + (i + 1) }, el("h2", {}, head), c.replica && el("p", { class: "soft" }, "replica " + c.replica) || "",
    el("h3", {}, "Prompt"), ...c.prompt.map((m) => message(m, { cached })), el("h3", {}, "Output"), ...c.output.map((m) => message(m, { open: true })),
    el("details", {}, el("summary", {}, "Parameters"), el("pre", { tabindex: 0 }, c.options || "")));
}

// message makes a message whose tokens are made when it is opened.
function message(m, o = {}) {
  const name = [m.choice ? "choice " + m.choice : "", m.role || "?", m.channel, m.type, m.recipient ? "to " + m.recipient : ""].filter(Boolean).join(" ");
  const brief = m.pieces.filter((p) => !p.kind).slice(0, 24).map((p) => p.text).join("").replace(/\s+/g, " ").slice(0, 90);
  const d = el("details", { open: o.open || o.differs !== undefined }, el("summary", {}, el("b", { class: m.channel }, name), el("span", { class: "soft" }, "  " + m.pieces.length + " tokens  " + (o.open ? "" : brief))));
  const fill = () => { if (d.open && d.children.length === 1) d.append(tokens(m, o)); };
  d.addEventListener("toggle", fill);
  fill();
  return d;
}

// tokens makes the tokens of a message. Arrow keys go from one to the next.
function tokens(m, o) {
  const pre = el("pre", { tabindex: 0, class: m.channel, "aria-label": "Tokens of " + (m.role || "a message") });
  m.pieces.forEach((p, i) => {
    const at = m.start + i;
    const span = document.createElement("span");
    span.textContent = p.text;
    span.index = i;
    span.className = [p.kind, at < (o.cached || 0) ? "cached" : "", at === o.differs ? "differs" : ""].filter(Boolean).join(" ");
    pre.append(span);
  });
  let now = -1;
  const say = (i) => {
    if (i < 0 || i >= m.pieces.length) return;
    if (pre.children[now]) pre.children[now].classList.remove("now");
    now = i;
    pre.children[now].classList.add("now");
    $("token").hidden = false;
    $("token").textContent = about(m, i);
  };
  pre.addEventListener("mouseover", (e) => { if (e.target.index !== undefined) say(e.target.index); });
  pre.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (step) { e.preventDefault(); say(now + step); pre.children[now].scrollIntoView({ block: "nearest" }); }
  });
  pre.addEventListener("mouseleave", () => { $("token").hidden = true; });
  pre.addEventListener("blur", () => { $("token").hidden = true; });
  return pre;
}

function about(m, i) {
  const p = m.pieces[i];
  const bytes = [...new TextEncoder().encode(p.text)].map((b) => b.toString(16).padStart(2, "0")).join(" ");
  return ["token " + (m.start + i), "id " + p.id, JSON.stringify(p.text), bytes, p.at ? "at " + millis(p.at) : "", p.logprob !== undefined ? "log probability " + p.logprob.toFixed(4) : ""].filter(Boolean).join("  ·  ");
}

// ---- two prompts side by side

function compare(before, now) {
  const a = before.view.calls[0], b = now.view.calls[0];
  if (!a || !b) return show(now);
  const ids = (c) => c.prompt.flatMap((m) => m.pieces.map((p) => p.id));
  const was = ids(a), is = ids(b);
  let n = 0;
  while (n < was.length && n < is.length && was[n] === is[n]) n++;
  const whole = n === was.length;
  const side = (x, c) => el("div", {}, el("h3", {}, x.id + " · " + clock(x.started)), ...c.prompt.map((m) => {
    const holds = n >= m.start && n < m.start + m.pieces.length && !whole;
    return message(m, holds ? { differs: n } : {});
  }));
  const said = whole ? "The prompt continues the one before: all of its " + n + " tokens are the same." : "The first difference is token " + n + ": " + (was.length - n) + " tokens of the prompt before are lost to the engine's cache.";
  $("main").replaceChildren(el("section", {}, el("h2", {}, "Two prompts"), el("p", { role: "status" }, said), el("p", {}, el("a", { href: "#" + encodeURIComponent(now.id) }, "back")), el("div", { class: "pair" }, side(before, a), side(now, b))));
  const mark = $("main").querySelector(".differs");
  if (mark) mark.scrollIntoView({ block: "center" });
}

window.addEventListener("hashchange", open);
setInterval(() => { if ($("filters").elements.follow.checked && !document.hidden && $("sign-in").hidden) refresh(); }, 2000);
refresh().then(open);

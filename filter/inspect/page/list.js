// The list of exchanges.
import { $, address, clock, el, get, mark, millis } from "./common.js";

const filters = $("filters").elements;
const rows = () => [...$("list").querySelectorAll("a")];

// The id of the exchange that is shown.
let shown = "";
// What the list shows, to leave it alone while nothing changes.
let listed = "";
// The number of the last question: an answer to an earlier one may come later.
let asked = 0;

// refresh shows the exchanges that the filters choose.
export async function refresh() {
  const query = new URLSearchParams();
  for (const name of ["q", "model", "outcome", "tenant", "repair"]) {
    if (filters[name].value) query.set(name, filters[name].value);
  }

  const number = ++asked;
  let lines;
  try {
    lines = await get("records?" + query);
  } catch (err) {
    $("status").textContent = err.message;
    return;
  }
  if (number !== asked || JSON.stringify(lines) === listed) return;

  listed = JSON.stringify(lines);
  const none = query.size ? "No exchange is like that." : "No exchange is recorded: see record.percent.";
  $("status").textContent = lines.length ? lines.length + " exchanges" : none;
  addChoices(lines);
  showRows(lines);
}

function showRows(lines) {
  const focused = document.activeElement?.dataset.id;
  $("list").replaceChildren(...lines.map(row));
  const now = rows().find((a) => a.dataset.id === focused);
  if (now) now.focus({ preventScroll: true });
  select(shown);
}

// short is the beginning of a name, which others choose.
const short = (name = "") => (name.length > 40 ? name.slice(0, 40) + "…" : name);

function row(l) {
  const r = l.result;
  const repairs = Object.values(r.repairs || {}).reduce((a, b) => a + b, 0);
  const facts = [
    l.live ? "goes on" : r.status + " " + r.outcome, millis(r.us), r.output_tokens && r.output_tokens + " tokens",
    short(l.tenant),
  ].filter(Boolean).join(" · ");

  return el("li", {}, el("a", { href: address(l.id), "data-id": l.id },
    el("div", { class: "question" }, l.question || r.error || ""),
    el("div", {}, clock(l.started).slice(0, 8) + " ", el("b", {}, l.target.api), " " + short(l.target.model)),
    el("div", { class: !l.live && r.outcome !== "ok" ? "bad" : "soft" }, facts, " ",
      repairs ? mark(repairs === 1 ? "1 repair" : repairs + " repairs") : "")));
}

// select marks the exchange that is shown. One row is in the order of the Tab key: this one, or the first.
export function select(id) {
  shown = id;
  const all = rows();
  const entry = all.find((a) => a === document.activeElement) || all.find((a) => a.dataset.id === id) || all[0];
  for (const a of all) {
    if (a.dataset.id === id) a.setAttribute("aria-current", "true");
    else a.removeAttribute("aria-current");
    a.tabIndex = a === entry ? 0 : -1;
  }
}

// enter moves the focus into the list.
export const enter = () => rows().find((a) => a.tabIndex === 0)?.focus();

// openFirst opens the first exchange that the filters choose.
export async function openFirst() {
  await refresh();
  rows()[0]?.click();
}

// addChoices adds to the filters what the list has.
function addChoices(lines) {
  const add = (name, values) => {
    const known = new Set([...filters[name].options].map((o) => o.value));
    for (const v of new Set(values)) if (v && !known.has(v)) filters[name].append(el("option", { value: v }, v));
  };
  add("model", lines.map((l) => l.target.model));
  add("outcome", lines.map((l) => l.result.outcome));
  add("tenant", lines.map((l) => l.tenant));
  add("repair", lines.flatMap((l) => Object.keys(l.result.repairs || {})));
}

$("list").addEventListener("keydown", (e) => {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  const next = { ArrowDown: all[at + 1], ArrowUp: all[at - 1], Home: all[0], End: all.at(-1) }[e.key];
  if (!next) return;
  e.preventDefault();
  next.focus();
});

// The row that has the focus is the one to which Tab comes back.
$("list").addEventListener("focusin", () => select(shown));

// A message of a prompt or an output, token by token.
import { $, el, mark, millis } from "./common.js";

// message makes a message, whose tokens are made when it is opened. o.cached is how many tokens of the prompt come from
// the engine's cache, o.differs the index of the token that is marked.
export function message(m, o = {}) {
  const name = [
    m.choice ? "choice " + m.choice : "", m.role || "?", m.channel, m.type, m.recipient ? "to " + m.recipient : "",
  ].filter(Boolean).join(" ");
  const first = m.pieces.filter((p) => !p.kind).slice(0, 24).map((p) => p.text).join("");
  const brief = first.replace(/\s+/g, " ").slice(0, 90);
  const repairs = [...new Set(m.pieces.flatMap((p) => p.repairs || []))];

  const details = el("details", { open: o.open || o.differs !== undefined }, el("summary", {},
    el("b", { class: m.channel }, name), " ", el("span", { class: "soft" }, m.pieces.length + " tokens"), " ",
    repairs.length ? mark("repaired: " + repairs.join(", ")) : "", " ", el("span", { class: "soft brief" }, brief)));
  const fill = () => { if (details.open && details.children.length === 1) details.append(tokens(m, o)); };
  details.addEventListener("toggle", fill);
  fill();
  return details;
}

function tokens(m, o) {
  const pre = el("pre", { tabindex: 0, class: m.channel, "aria-label": "Tokens of " + (m.role || "a message") });
  m.pieces.forEach((p, i) => {
    const at = m.start + i;
    const span = document.createElement("span");
    span.textContent = p.text;
    span.index = i;
    span.className = [
      p.kind, p.repairs && "repaired", at < (o.cached || 0) && "cached", at === o.differs && "differs",
    ].filter(Boolean).join(" ");
    pre.append(span);
  });

  // One token is pointed at: by the pointer, or by the arrow keys.
  let now = -1;
  const point = (i) => {
    if (!pre.children[i]) return;
    pre.children[now]?.classList.remove("now");
    now = i;
    pre.children[now].classList.add("now");
    $("token").hidden = false;
    $("token").textContent = about(m, i);
  };
  const leave = () => {
    pre.children[now]?.classList.remove("now");
    $("token").hidden = true;
  };

  for (const event of ["mouseover", "click"]) {
    pre.addEventListener(event, (e) => { if (e.target.index !== undefined) point(e.target.index); });
  }
  pre.addEventListener("mouseleave", leave);
  pre.addEventListener("blur", leave);
  pre.addEventListener("keydown", (e) => {
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: m.pieces.length - 1 }[e.key];
    if (next === undefined || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    point(next);
    pre.children[now]?.scrollIntoView({ block: "nearest" });
  });
  return pre;
}

// about is what is known of a token.
function about(m, i) {
  const p = m.pieces[i];
  const bytes = [...new TextEncoder().encode(p.text)].map((b) => b.toString(16).padStart(2, "0")).join(" ");
  return [
    "token " + (m.start + i), "id " + p.id, JSON.stringify(p.text), bytes, p.at ? "at " + millis(p.at) : "",
    p.logprob !== undefined ? "log probability " + p.logprob.toFixed(4) : "",
    p.repairs ? "repaired: " + p.repairs.join(", ") : "",
  ].filter(Boolean).join("  ·  ");
}
